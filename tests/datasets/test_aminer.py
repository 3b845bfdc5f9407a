"""AMiner on its published files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnexp.datasets.aminer import Aminer
from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.sparse import SparseRows

Find = Callable[[str], Path]
PAPERS, AUTHORS, REFERENCES = 6564, 13329, 35890


def edges_of(dataset: Aminer) -> set[tuple[int, int, int]]:
    graph = dataset.load()
    assert graph.edge_types is not None
    columns = graph.indices.tolist(), graph.edge_types.tolist(), graph.destinations().tolist()
    return set(zip(*columns, strict=True))


def test_published_numbers(real: Find) -> None:
    graph = Aminer(path=str(real("aminer"))).load()
    assert graph.node_types is not None and graph.edge_types is not None and graph.labels is not None
    assert graph.num_nodes == 55783
    assert graph.node_types.bincount().tolist() == [PAPERS, AUTHORS, REFERENCES]
    assert graph.edge_types.bincount().tolist() == [18007, 58831, 18007, 58831]
    assert graph.labels[:PAPERS].bincount().tolist() == [1333, 1114, 526, 3591]
    assert (graph.labels[PAPERS:] == -1).all()
    assert graph.features is None and graph.num_classes == 4


@pytest.mark.parametrize("per_class", [20, 40, 60])
def test_splits(real: Find, per_class: int) -> None:
    graph = Aminer(path=str(real("aminer")), labelled_per_class=per_class).load()
    assert graph.labels is not None
    assert graph.labels[graph.splits.train].bincount().tolist() == [per_class] * 4
    assert graph.splits.val.numel() == graph.splits.test.numel() == 1000


def test_relations_lead_between_their_types(real: Find) -> None:
    folder = real("aminer")
    papers, authors = np.loadtxt(folder / "pa.txt", dtype=int).T
    forward = {(int(p), 0, PAPERS + int(a)) for p, a in zip(papers, authors, strict=True)}
    both = edges_of(Aminer(path=str(folder)))
    assert {edge for edge in both if edge[1] == 0} == forward
    assert {(v, 0, u) for u, r, v in both if r == 2} == forward
    papers, references = np.loadtxt(folder / "pr.txt", dtype=int).T
    forward = {(int(p), 1, PAPERS + AUTHORS + int(r)) for p, r in zip(papers, references, strict=True)}
    assert {edge for edge in both if edge[1] == 1} == forward
    assert {(v, 1, u) for u, r, v in both if r == 3} == forward


def test_reverses_may_be_of_the_same_relation_or_absent(real: Find) -> None:
    folder = str(real("aminer"))
    both = edges_of(Aminer(path=folder))
    directed = edges_of(Aminer(path=folder, symmetrize=False))
    assert directed == {edge for edge in both if edge[1] < 2}
    assert edges_of(Aminer(path=folder, inverse_relations=False)) == {(u, r % 2, v) for u, r, v in both}


def test_one_hot_features(real: Find) -> None:
    features = Aminer(path=str(real("aminer")), features="one_hot").load().features
    assert isinstance(features, SparseRows)
    assert features.shape == (55783, 55783)
    assert torch.equal(features.columns, torch.arange(55783, dtype=torch.int32))


def test_other_bytes_are_refused(copied: Find) -> None:
    folder = copied("aminer")
    with (folder / "pa.txt").open("a") as file:
        file.write("0\t0\n")
    with pytest.raises(DataError, match=r"pa\.txt.*\n.*dataset\.verify=false"):
        Aminer(path=str(folder)).load()
    assert Aminer(path=str(folder), verify=False).load().num_edges == 2 * 76838 + 2 * ((0, 0) not in pairs(folder))


def pairs(folder: Path) -> set[tuple[int, int]]:
    return {(int(p), int(a)) for p, a in np.loadtxt(folder / "pa.txt", dtype=int)[:-1]}


@pytest.mark.parametrize(("file", "array", "found"), [
    ("labels.npy", np.zeros((3, 2), int), "int64"), ("labels.npy", np.array([0, -1]), "-1..0"),
    ("train_20.npy", np.array([PAPERS]), "6564..6564"), ("val_20.npy", np.empty(0, int), "nothing"),
    ("test_20.npy", np.array([0.5]), "float64"),
])
def test_wrong_arrays(copied: Find, file: str, array: Any, found: str) -> None:
    folder = copied("aminer")
    np.save(folder / file, array)
    with pytest.raises(DataError, match=file) as caught:
        Aminer(path=str(folder), verify=False).load()
    assert found in str(caught.value)


def test_all_that_is_wrong_is_said_at_once(copied: Find) -> None:
    folder = copied("aminer")
    (folder / "pa.txt").write_text(f"{PAPERS}\t0\n")
    (folder / "pr.txt").write_text("0\t0\n1\t2\n")
    np.save(folder / "train_20.npy", np.array([PAPERS]))
    with pytest.raises(DataError) as caught:
        Aminer(path=str(folder), verify=False).load()
    assert [Path(one.key).name for one in caught.value.problems] == ["pa.txt", "pr.txt", "train_20.npy"]
    (folder / "val_20.npy").unlink()
    with pytest.raises(DataError, match=r"val_20\.npy"):
        Aminer(path=str(folder)).sources()


def test_other_numbers_of_labelled_papers() -> None:
    with pytest.raises(ConfigError, match="20, 40 or 60"):
        Aminer(labelled_per_class=30)
