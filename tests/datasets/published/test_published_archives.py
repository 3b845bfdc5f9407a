"""GraphData archives, Facebook100 and the heterophilous benchmarks on their published files."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch

from gnnexp.datasets.base import Dataset
from gnnexp.datasets.published.fb100 import Fb100
from gnnexp.datasets.published.npz import GraphDataNpz, HeterophilousNpz
from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.sparse import SparseRows

Find = Callable[[str], Path]
ARCHIVES: dict[str, tuple[str, Callable[..., Dataset]]] = {
    "amazon-computers": ("amazon_cs.npz", GraphDataNpz),
    "fb100-cornell5": ("Cornell5.mat", Fb100),
    "tolokers": ("tolokers.npz", HeterophilousNpz),
}


def test_computers(real: Find) -> None:
    graph = GraphDataNpz(name="amazon-computers", path=str(real("amazon-computers"))).load()
    assert graph.labels is not None
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (13752, 2 * 245861, 767)
    assert int(graph.in_degree.max()) == 2992
    assert int((graph.in_degree == 0).sum()) == 281
    assert graph.labels.bincount().tolist() == [436, 2142, 1414, 542, 5158, 308, 487, 818, 2156, 291]
    assert isinstance(graph.features, torch.Tensor)
    assert int((graph.features == 1).sum()) == 3_675_081
    sizes = [ids.numel() for ids in (graph.splits.train, graph.splits.val, graph.splits.test)]
    assert sizes == [8251, 2750, 2751]


def test_computers_as_crawled_is_directed(real: Find) -> None:
    dataset = GraphDataNpz(path=str(real("amazon-computers")), symmetrize=False, self_loops="keep")
    graph = dataset.load()
    assert graph.num_edges == 287_209
    assert not torch.equal(graph.in_degree, graph.out_degree)


def test_shchur_split_is_per_class_on_the_largest_component(real: Find) -> None:
    def load(seed: int) -> Any:
        return GraphDataNpz(path=str(real("amazon-computers")), split="shchur", seed=seed).load()

    graph = load(0)
    assert graph.labels[graph.splits.train].bincount().tolist() == [20] * 10
    assert graph.labels[graph.splits.val].bincount().tolist() == [30] * 10
    assert graph.splits.test.numel() == 13381 - 500
    assert not torch.equal(graph.splits.train, load(1).splits.train)


def test_physics_is_sparse(real: Find) -> None:
    graph = GraphDataNpz(name="coauthor-physics", path=str(real("coauthor-physics"))).load()
    assert graph.labels is not None
    assert (graph.num_nodes, graph.num_edges) == (34493, 2 * 247962)
    assert int(graph.in_degree.max()) == 382
    assert graph.labels.bincount().tolist() == [5750, 5045, 17426, 2753, 3519]
    assert isinstance(graph.features, SparseRows)
    assert graph.features.shape == (34493, 8415)
    assert graph.features.values.numel() == 1_137_311
    assert (float(graph.features.values.min()), float(graph.features.values.max())) == (1, 98)


def test_cornell5(real: Find) -> None:
    graph = Fb100(path=str(real("fb100-cornell5"))).load()
    assert graph.labels is not None
    assert (graph.num_nodes, graph.num_edges) == (18660, 2 * 790_777)
    assert int(graph.in_degree.max()) == 3156
    assert int((graph.labels < 0).sum()) == 1838
    assert graph.labels[graph.labels >= 0].bincount().tolist() == [8135, 8687]
    assert isinstance(graph.features, SparseRows)
    assert graph.features.shape == (18660, 4735)
    assert graph.features.values.numel() == 6 * 18660
    sizes = [ids.numel() for ids in (graph.splits.train, graph.splits.val, graph.splits.test)]
    assert sizes == [8411, 4206, 4205]
    labels = graph.labels
    source, target = labels[graph.indices.long()], labels[graph.destinations().long()]
    known = (source >= 0) & (target >= 0)
    assert float((source == target)[known].float().mean()) == pytest.approx(0.546, abs=0.001)


def test_tolokers_and_its_ten_splits(real: Find) -> None:
    folder = str(real("tolokers"))
    first = HeterophilousNpz(path=folder).load()
    assert first.labels is not None
    assert (first.num_nodes, first.num_edges, first.num_features) == (11758, 2 * 519_000, 10)
    assert int(first.in_degree.max()) == 2138
    assert first.labels.bincount().tolist() == [9192, 2566]
    assert first.num_classes == 2
    for index in (0, 9):
        splits = HeterophilousNpz(path=folder, split_index=index).load().splits
        assert [ids.numel() for ids in (splits.train, splits.val, splits.test)] == [5879, 2939, 2940]
        assert torch.cat([splits.train, splits.val, splits.test]).sort().values.tolist() == list(range(11758))
    assert not torch.equal(first.splits.train, splits.train)
    with pytest.raises(DataError, match=r"dataset\.split_index.*splits 0 to 9"):
        HeterophilousNpz(path=folder, split_index=10).load()
    with pytest.raises(ConfigError, match="split_index"):
        HeterophilousNpz(split_index=-1)


@pytest.mark.parametrize("directory", ARCHIVES)
def test_the_file_itself_may_be_the_path(directory: str, real: Find) -> None:
    file, kind = ARCHIVES[directory]
    assert kind(path=str(real(directory) / file)).key() == kind(path=str(real(directory))).key()


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
@pytest.mark.parametrize("directory", ARCHIVES)
def test_damaged_files_are_refused(directory: str, damage: str, copied: Find) -> None:
    file, kind = ARCHIVES[directory]
    path = copied(directory) / file
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 16
    path.write_bytes(content if damage == "flipped" else content[: len(content) // 2])
    with pytest.raises(DataError, match=file):
        kind(path=str(path)).load()


def test_executing_member_is_refused_and_not_executed(copied: Find, bomb: tuple[bytes, Path]) -> None:
    path = copied("amazon-computers") / "amazon_cs.npz"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = members["adj_matrix.npy"].split(b"\n")[0] + b"\n"
    members["adj_matrix.npy"] = header + bomb[0]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match="mkdir"):
        GraphDataNpz(path=str(path)).load()
    assert not bomb[1].exists()


def rewrite(path: Path, **changes: np.ndarray) -> None:
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, **{**arrays, **changes})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"edges": np.array([[0, 11758]])}, "0..11757"),
        ({"edges": np.array([[0, -1]])}, "0..11757"),
        ({"edges": np.zeros((5, 3), np.int64)}, "edges"),
        ({"node_features": np.full((11758, 10), np.nan, np.float32)}, "finite"),
        ({"node_features": np.zeros((7, 10), np.float32)}, "node_features"),
        ({"node_labels": np.full(11758, -5)}, "labels"),
        ({"train_masks": np.zeros((10, 11758), bool)}, "train"),
        ({"val_masks": np.zeros((3, 11758), bool), "test_masks": np.zeros(3)}, "val_masks"),
    ],
)
def test_wrong_contents_of_tolokers(changes: dict[str, np.ndarray], named: str, copied: Find) -> None:
    folder = copied("tolokers")
    rewrite(folder / "tolokers.npz", **changes)
    with pytest.raises(DataError, match=named):
        HeterophilousNpz(path=str(folder)).load()


def test_missing_member(copied: Find) -> None:
    folder = copied("tolokers")
    np.savez(folder / "tolokers.npz", edges=np.zeros((1, 2), np.int64))
    with pytest.raises(DataError) as error:
        HeterophilousNpz(path=str(folder)).load()
    assert len(error.value.problems) == 5


def test_other_matlab_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    for content in ({"B": np.eye(2)}, {"A": np.eye(2), "local_info": np.zeros((2, 7))}):
        scipy.io.savemat(path, content)
        with pytest.raises(DataError, match=r"x\.mat"):
            Fb100(path=str(path)).load()
    path.write_bytes(b"MATLAB 7.3 MAT-file" + b" " * 105 + b"\x00\x02IM" + b"\0" * 400)
    with pytest.raises(DataError, match=r"x\.mat"):
        Fb100(path=str(path)).load()


def test_small_matlab_file_with_missing_genders(tmp_path: Path) -> None:
    info = np.zeros((6, 7), np.uint16)
    info[:, 1] = [0, 1, 2, 1, 2, 0]
    info[:, 5] = [7, 7, 8, 0, 0, 9]
    adjacency = scipy.sparse.csc_matrix(np.eye(6, k=1) + np.eye(6, k=-1))
    scipy.io.savemat(tmp_path / "Tiny.mat", {"A": adjacency, "local_info": info})
    graph = Fb100(name="Tiny", path=str(tmp_path), sparse=False).load()
    assert graph.labels is not None
    assert isinstance(graph.features, torch.Tensor)
    assert graph.labels.tolist() == [-1, 0, 1, 0, 1, -1]
    assert graph.features.shape == (6, 5 + 4)
    assert graph.features.sum(1).tolist() == [6] * 6
    assert graph.num_edges == 10
    assert torch.cat([graph.splits.train, graph.splits.val, graph.splits.test]).sort().values.tolist() == [1, 2, 3, 4]
