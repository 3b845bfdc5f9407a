import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from gnnexp.datasets.base import ROOT_VARIABLE
from gnnexp.datasets.published.planetoid import Planetoid
from gnnexp.errors import DataError
from gnnexp.graph.sparse import SparseRows

Find = Callable[[str], Path]

# The README's "measured" columns: nodes, undirected edges, max degree, isolated, features, class sizes, unlabelled.
MEASURED = {
    "cora": (2708, 5278, 168, 0, 1433, [351, 217, 418, 818, 426, 298, 180], 0),
    "citeseer": (3327, 4552, 99, 48, 3703, [249, 590, 668, 701, 596, 508], 15),
    "pubmed": (19717, 44324, 171, 0, 500, [4103, 7739, 7875], 0),
}
CITESEER_GAPS = [2407, 2489, 2553, 2682, 2781, 2953, 3042, 3063, 3212, 3214, 3250, 3292, 3305, 3306, 3309]


@pytest.mark.parametrize("name", MEASURED)
def test_counts_are_the_published_ones(name: str, real: Find) -> None:
    folder = real(name)
    graph = Planetoid(name=name, path=str(folder), missing_features="zeros").load()
    nodes, edges, max_degree, isolated, features, sizes, unlabelled = MEASURED[name]
    assert graph.labels is not None
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (nodes, 2 * edges, features)
    assert int(graph.in_degree.max()) == max_degree
    assert int((graph.in_degree == 0).sum()) == isolated
    assert graph.labels[graph.labels >= 0].bincount().tolist() == sizes
    assert int((graph.labels < 0).sum()) == unlabelled
    train = int(20 * graph.num_classes)
    assert graph.splits.train.tolist() == list(range(train))
    assert graph.splits.val.tolist() == list(range(train, train + 500))
    index = [int(line) for line in (folder / f"ind.{name}.test.index").read_text().split()]
    assert graph.splits.test.tolist() == sorted(index)


@pytest.mark.parametrize(("name", "non_zeros"), [("cora", 49216), ("citeseer", 105165)])
def test_features_are_row_normalised_bags_of_words(name: str, non_zeros: int, real: Find) -> None:
    folder = str(real(name))
    graph = Planetoid(name=name, path=folder).load()
    assert isinstance(graph.features, torch.Tensor)
    assert int((graph.features != 0).sum()) == non_zeros
    sums = graph.features.sum(1)
    assert torch.allclose(sums[sums > 0], torch.ones(()), atol=1e-5)
    plain = Planetoid(name=name, path=folder, normalize_features=False, sparse=True).load()
    assert isinstance(plain.features, SparseRows)
    assert set(plain.features.values.unique().tolist()) == {1.0}
    assert torch.equal((plain.features.to_dense() > 0), graph.features > 0)


def test_citeseer_gaps_are_unlabelled_and_said(real: Find) -> None:
    graph = Planetoid(name="citeseer", path=str(real("citeseer"))).load()
    assert graph.labels is not None
    assert isinstance(graph.features, torch.Tensor)
    assert (graph.labels < 0).nonzero().ravel().tolist() == CITESEER_GAPS
    assert not graph.features[CITESEER_GAPS].any()
    assert any("15 vertices" in note for note in graph.notes)


def test_cora_test_rows_follow_test_index(real: Find) -> None:
    """Features, labels and edges line up: neighbours agree as often as published (edge homophily 0.810)."""
    graph = Planetoid(name="cora", path=str(real("cora"))).load()
    assert graph.labels is not None
    same = graph.labels[graph.destinations().long()] == graph.labels[graph.indices.long()]
    assert float(same.float().mean()) == pytest.approx(0.810, abs=0.001)


def test_pubmed_without_allx_names_the_file_and_goes_on_if_told(real: Find) -> None:
    folder = str(real("pubmed"))
    with pytest.raises(DataError) as error:
        Planetoid(name="pubmed", path=folder).load()
    assert len(error.value.problems) == 1
    assert "ind.pubmed.allx" in str(error.value)
    assert "missing_features=zeros" in str(error.value)
    graph = Planetoid(name="pubmed", path=folder, missing_features="zeros").load()
    assert isinstance(graph.features, torch.Tensor)
    with_features = graph.features.any(1).nonzero().ravel()
    expected = torch.cat([graph.splits.train, graph.splits.test])
    assert torch.equal(with_features, expected)
    assert any("allx" in note for note in graph.notes)


def test_nell_is_sparse_with_one_hot_relations(real: Find) -> None:
    graph = Planetoid(name="nell", path=str(real("nell"))).load()
    assert graph.labels is not None
    assert (graph.num_nodes, graph.num_edges) == (65755, 2 * 125775)
    assert int(graph.in_degree.max()) == 4549
    assert isinstance(graph.features, SparseRows)
    assert graph.features.shape == (65755, 5414 + 55864)
    assert graph.features.values.numel() == 334_331 + 36_469 + 55_864
    assert graph.num_classes == 210
    assert int((graph.labels >= 0).sum()) == 1074
    assert graph.splits.test.numel() == 969
    held = torch.cat([graph.splits.train, graph.splits.val]).sort().values
    assert held.tolist() == list(range(105))
    assert graph.splits.val.numel() == 21
    assert any("held out" in note for note in graph.notes)


def test_root_variable_finds_the_folder(real: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(real("cora").parent))
    assert Planetoid(name="cora").sources()
    monkeypatch.delenv(ROOT_VARIABLE)
    with pytest.raises(DataError, match=ROOT_VARIABLE):
        Planetoid(name="cora").load()


def test_missing_files_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        Planetoid(name="cora", path=str(tmp_path)).load()
    assert len(error.value.problems) == 8
    with pytest.raises(DataError, match="no such"):
        Planetoid(name="cora", path=str(tmp_path / "absent")).key()


def test_key_follows_bytes_and_options_not_the_place(copied: Find) -> None:
    folder = copied("cora")
    base = Planetoid(name="cora", path=str(folder))
    elsewhere = folder.parent / "elsewhere"
    shutil.copytree(folder, elsewhere)
    assert base.key() == Planetoid(name="cora", path=str(elsewhere)).key()
    assert base.key() != Planetoid(name="cora", path=str(folder), normalize_features=False).key()
    with (elsewhere / "ind.cora.test.index").open("a") as file:
        file.write("\n")
    assert base.key() != Planetoid(name="cora", path=str(elsewhere)).key()


def test_one_flipped_bit_is_noticed_if_asked(copied: Find) -> None:
    folder = copied("cora")
    path = folder / "ind.cora.allx"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"ind\.cora\.allx.*sha256"):
        Planetoid(name="cora", path=str(folder), verify=True).load()


@pytest.mark.parametrize("part", ["x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"])
def test_truncated_files_are_refused_without_checksums(part: str, copied: Find) -> None:
    folder = copied("cora")
    path = folder / f"ind.cora.{part}"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"ind\.cora"):
        Planetoid(name="cora", path=str(folder)).load()


@pytest.mark.parametrize("part", ["x", "y", "graph"])
def test_executing_pickles_are_refused_and_not_executed(part: str, copied: Find, bomb: tuple[bytes, Path]) -> None:
    folder = copied("cora")
    (folder / f"ind.cora.{part}").write_bytes(bomb[0])
    with pytest.raises(DataError, match="mkdir"):
        Planetoid(name="cora", path=str(folder)).load()
    assert not bomb[1].exists()


@pytest.mark.parametrize("times", [10, pytest.param(40, marks=pytest.mark.slow)])
def test_random_damage_never_ends_in_another_error(copied: Find, times: int) -> None:
    folder = copied("cora")
    generator = np.random.default_rng(0)
    for part in ("y", "allx", "graph", "x"):
        path = folder / f"ind.cora.{part}"
        content = path.read_bytes()
        for _ in range(times):
            damaged = bytearray(content)
            # Mostly in the first bytes, where the structure is.
            for place in generator.integers(0, min(len(content), 400), 3):
                damaged[place] = generator.integers(0, 256)
            path.write_bytes(damaged)
            try:
                graph = Planetoid(name="cora", path=str(folder)).load()
            except DataError:
                continue
            assert graph.num_nodes == 2708
        path.write_bytes(content)


def test_parts_that_do_not_fit_together_are_refused(copied: Find) -> None:
    folder = copied("cora")
    shutil.copyfile(folder / "ind.cora.ty", folder / "ind.cora.ally")
    with pytest.raises(DataError, match="allx and ally"):
        Planetoid(name="cora", path=str(folder)).load()


def test_ids_out_of_range_are_refused(copied: Find) -> None:
    folder = copied("cora")
    path = folder / "ind.cora.test.index"
    path.write_text(path.read_text().replace("2692\n", "999999\n", 1))
    with pytest.raises(DataError, match=r"0\.\.2707"):
        Planetoid(name="cora", path=str(folder)).load()


def put_any(folder: Path, name: str, *, labelled: int = 790, ally: bool = True) -> Path:
    """As the authors' script writes: pickles of protocol 2, and ids as text."""
    folder.mkdir(parents=True, exist_ok=True)
    hot = np.eye(3, dtype=np.int32)[np.arange(800) % 3]
    rows: Any = scipy.sparse.random(800, 5, 0.5, format="csr", random_state=0, dtype=np.float32)
    parts = {
        "x": rows[:9],
        "y": hot[:9],
        "allx": rows[:labelled],
        "tx": rows[790:],
        "ty": hot[790:],
        "graph": {vertex: [(vertex + 1) % 800] for vertex in range(800)},
    }
    if ally:
        parts["ally"] = hot[:labelled]
    for part, value in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / f"ind.{name}.test.index").write_text("".join(f"{vertex}\n" for vertex in range(790, 800)))
    return folder


@pytest.mark.parametrize("name", ["mine", "blog.catalog", "NELL-2", "größe 1"])
def test_a_path_alone_does(name: str, tmp_path: Path) -> None:
    folder = put_any(tmp_path / "x", name)
    for path in (folder, folder / f"ind.{name}.graph"):
        graph = Planetoid(path=str(path)).load()
        assert (graph.name, graph.num_nodes, graph.splits.val.numel()) == (name, 800, 500)
        assert "bytes not known" in graph.notes[-1]


def test_folders_of_pytorch_geometric_are_read(tmp_path: Path) -> None:
    put_any(tmp_path / "Cora" / "raw", "cora")
    assert Planetoid.recognised(tmp_path / "Cora") == ["dataset.name=cora"]
    assert Planetoid(path=str(tmp_path / "Cora")).load().num_nodes == 800


@pytest.mark.parametrize(
    ("labelled", "ally", "sizes"),
    [(790, True, [9, 500, 10]), (100, True, [9, 91, 10]), (9, True, [7, 2, 10]), (100, False, [7, 2, 10])],
)
def test_validation_vertices_of_smaller_data(labelled: int, ally: bool, sizes: list[int], tmp_path: Path) -> None:
    graph = Planetoid(path=str(put_any(tmp_path, "mine", labelled=labelled, ally=ally))).load()
    assert [part.numel() for part in (graph.splits.train, graph.splits.val, graph.splits.test)] == sizes
    assert any("held out" in note for note in graph.notes) is (sizes[0] == 7)


def test_several_data_sets_in_a_folder(tmp_path: Path) -> None:
    put_any(tmp_path, "one")
    put_any(tmp_path, "two")
    with pytest.raises(DataError, match=r"ind\.cora\.x.*the folder has ind\.one.*\n.*dataset\.name=one or"):
        Planetoid(path=str(tmp_path)).load()
    with pytest.raises(DataError, match="has 2 data sets: one, two"):
        Planetoid.recognised(tmp_path)
    assert Planetoid(name="two", path=str(tmp_path)).load().name == "two"
    assert Planetoid(path=str(tmp_path / "ind.two.x")).load().name == "two"
    with pytest.raises(DataError, match=r"ind\.three\.x"):
        Planetoid(name="three", path=str(tmp_path)).load()


def test_published_files_keep_their_names(real: Find) -> None:
    for name in ("cora", "citeseer", "pubmed", "nell"):
        dataset = Planetoid(path=str(real(name)), missing_features="zeros")
        origin = dataset.origin()
        assert dataset.name == name and origin is not None and origin.dataset == name
