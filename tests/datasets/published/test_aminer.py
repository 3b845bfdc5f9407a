"""AMiner on its published files, and other data sets in HeCo's form, made here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from gnnexp.datasets.published.aminer import Aminer
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


def test_other_bytes_are_refused_if_asked(copied: Find) -> None:
    folder = copied("aminer")
    with (folder / "pa.txt").open("a") as file:
        file.write("0\t0\n")
    with pytest.raises(DataError, match=r"pa\.txt.*\n.*dataset\.verify=false"):
        Aminer(path=str(folder), verify=True).load()
    assert Aminer(path=str(folder)).load().num_edges == 2 * 76838 + 2 * ((0, 0) not in pairs(folder))


def pairs(folder: Path) -> set[tuple[int, int]]:
    return {(int(p), int(a)) for p, a in np.loadtxt(folder / "pa.txt", dtype=int)[:-1]}


@pytest.mark.parametrize(
    ("file", "array", "found"),
    [
        ("labels.npy", np.zeros((3, 2), int), "int64"),
        ("labels.npy", np.array([0, -1]), "-1..0"),
        ("train_20.npy", np.array([PAPERS]), "6564..6564"),
        ("val_20.npy", np.empty(0, int), "nothing"),
        ("test_20.npy", np.array([0.5]), "float64"),
    ],
)
def test_wrong_arrays(copied: Find, file: str, array: Any, found: str) -> None:
    folder = copied("aminer")
    np.save(folder / file, array)
    with pytest.raises(DataError, match=file) as caught:
        Aminer(path=str(folder)).load()
    assert found in str(caught.value)


def test_all_that_is_wrong_is_said_at_once(copied: Find) -> None:
    folder = copied("aminer")
    (folder / "pa.txt").write_text(f"{PAPERS}\t0\n")
    (folder / "pr.txt").write_text("0\n")
    np.save(folder / "train_20.npy", np.array([PAPERS]))
    with pytest.raises(DataError) as caught:
        Aminer(path=str(folder)).load()
    assert [Path(one.key).name for one in caught.value.problems] == ["pa.txt", "pr.txt", "train_20.npy"]
    (folder / "val_20.npy").unlink()
    with pytest.raises(DataError, match=r"val_20\.npy"):
        Aminer(path=str(folder)).sources()


def test_other_numbers_of_labelled_papers() -> None:
    with pytest.raises(ConfigError, match="20, 40 or 60"):
        Aminer(labelled_per_class=30)


# Edges of each relation. Types of ACM: 6 papers, 4 authors, 2 subjects; of DBLP: 5 authors, 6 papers, 2 conferences.
RELATIONS = {
    "acm": {"pa": [(0, 0), (1, 1), (2, 2), (3, 3), (4, 0), (5, 1)], "ps": [(paper, paper % 2) for paper in range(6)]},
    "dblp": {
        "pa": [(paper, paper % 5) for paper in range(6)],
        "pc": [(paper, paper % 2) for paper in range(6)],
        "pt": [(0, 3), (5, 0)],
    },
    "freebase": {"ma": [(0, 1)], "md": [(1, 0)], "mw": [(2, 0), (5, 1)]},
    "mine": {"xy": [(0, 0), (5, 2)], "xx": [(0, 1), (1, 2)]},
}
LABELLED = {"acm": 6, "dblp": 5, "freebase": 6, "mine": 6}


def put_heco(folder: Path, name: str, *, meta_path: str = "", features: str = "") -> Path:
    """As in HeCo's repository: text with tabs, arrays of numpy, matrices of scipy."""
    folder.mkdir(parents=True, exist_ok=True)
    for relation, edges in RELATIONS[name].items():
        (folder / f"{relation}.txt").write_text("".join(f"{one}\t{two}\n" for one, two in edges))
    count = LABELLED[name]
    np.save(folder / "labels.npy", np.arange(count) % 3)
    for split, ids in (("train", [0, 1, 2]), ("val", [3]), ("test", range(4, count))):
        for per_class in (20, 40, 60):
            np.save(folder / f"{split}_{per_class}.npy", np.array(ids))
    if meta_path:
        scipy.sparse.save_npz(folder / f"{meta_path}.npz", scipy.sparse.coo_matrix(np.eye(count, dtype=bool)))
    scipy.sparse.save_npz(folder / "pos.npz", scipy.sparse.coo_matrix(np.eye(count)))
    for letter in features:
        rows = count if letter == {"dblp": "a"}.get(name, "p") else 6
        matrix = scipy.sparse.csr_matrix if letter == "p" else scipy.sparse.coo_matrix
        scipy.sparse.save_npz(folder / f"{letter}_feat.npz", matrix(np.arange(2 * rows).reshape(rows, 2)))
    return folder


@pytest.mark.parametrize("name", ["acm", "dblp", "freebase"])
def test_other_data_sets_of_heco(name: str, tmp_path: Path) -> None:
    folder = put_heco(tmp_path / "HeCo-data", name)
    dataset = Aminer(path=str(folder))
    graph = dataset.load()
    assert graph.name == name and graph.node_types is not None and graph.labels is not None
    sizes = {"acm": [6, 4, 2], "dblp": [5, 6, 2, 4], "freebase": [6, 2, 1, 2]}[name]
    assert graph.node_types.bincount().tolist() == sizes
    assert (graph.labels[: LABELLED[name]] >= 0).all() and (graph.labels[LABELLED[name] :] == -1).all()
    assert graph.num_relations == 2 * len(RELATIONS[name]) and graph.num_classes == 3
    assert "bytes not known" in graph.notes[-1]
    if name == "dblp":
        assert graph.notes[0] == "vertices: 5 authors, then 6 papers, then 2 conferences, then 4 terms"
        forward = {(5 + paper, 0, author) for paper, author in RELATIONS["dblp"]["pa"]}
        assert {edge for edge in edges_of(dataset) if edge[1] == 0} == forward


def test_given_features_have_columns_by_type(tmp_path: Path) -> None:
    folder = put_heco(tmp_path, "dblp", features="ap")
    assert any("a_feat.npz, p_feat.npz are not used" in note for note in Aminer(path=str(folder)).load().notes)
    features = Aminer(path=str(folder), features="given").load().features
    assert isinstance(features, torch.Tensor) and features.shape == (17, 4 + 2 + 2)
    assert features[:5, 4:6].tolist() == np.arange(10).reshape(5, 2).tolist()
    assert features[5:11, 6:].tolist() == np.arange(12).reshape(6, 2).tolist()
    assert features[:, :4].argmax(1).tolist() == [0] * 5 + [1] * 6 + [2] * 2 + [3] * 4
    assert [path.name for path in Aminer(path=str(folder), features="given").sources()][-2:] == [
        "a_feat.npz",
        "p_feat.npz",
    ]


def test_any_letters_are_types(tmp_path: Path) -> None:
    graph = Aminer(path=str(put_heco(tmp_path / "mine", "mine"))).load()
    assert graph.name == "mine" and graph.node_types is not None
    assert graph.node_types.bincount().tolist() == [6, 3], "vertices without edges count up to the largest id"
    assert graph.num_edges == 8


def test_a_meta_path_says_which_type_has_labels(tmp_path: Path) -> None:
    folder = put_heco(tmp_path / "own", "dblp")
    (folder / "pq.txt").write_text("0\t0\n")
    plain = Aminer(path=str(folder))
    assert plain.name == "own"
    with pytest.raises(DataError, match=r"pa\.txt.*papers must be below 5"):
        plain.load()
    before = plain.key()
    scipy.sparse.save_npz(folder / "apa.npz", scipy.sparse.coo_matrix(np.eye(5)))
    assert plain.key() != before, "another type is labelled"
    assert plain.load().node_types.bincount().tolist() == [5, 6, 2, 1, 4]  # type: ignore[union-attr]
    scipy.sparse.save_npz(folder / "pap.npz", scipy.sparse.coo_matrix(np.eye(5)))
    with pytest.raises(DataError, match="not clear of which"):
        plain.load()


def test_folders_are_recognised(tmp_path: Path) -> None:
    assert Aminer.recognised(put_heco(tmp_path / "x", "acm", features="p")) == [
        "dataset.name=acm",
        "dataset.features=given",
    ]
    assert Aminer.recognised(put_heco(tmp_path / "mine", "mine")) == ["dataset.name=mine"]
    assert Aminer.recognised(tmp_path) is None and Aminer.recognised(tmp_path / "x" / "pa.txt") is None
    (tmp_path / "x" / "labels.npy").unlink()
    assert Aminer.recognised(tmp_path / "x") is None


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("pa.txt", "0\t99999999999\n", "numbered from 0 on"),
        ("ps.txt", "6\t0\n", "papers must be below 6"),
        ("ps.txt", "0,0\n", "ps.txt"),
        ("p_feat.npz", "no", "p_feat"),
    ],
)
def test_wrong_files_of_another_data_set(file: str, content: str, said: str, tmp_path: Path) -> None:
    folder = put_heco(tmp_path, "acm", features="p")
    (folder / file).write_text(content)
    with pytest.raises(DataError, match=said):
        Aminer(path=str(folder), features="given").load()


def test_features_of_other_sizes_are_refused(tmp_path: Path) -> None:
    folder = put_heco(tmp_path, "acm")
    with pytest.raises(DataError, match=r"dataset\.features='given'.*no file"):
        Aminer(path=str(folder), features="given").load()
    for letter in "pa":
        scipy.sparse.save_npz(folder / f"{letter}_feat.npz", scipy.sparse.csr_matrix(np.eye(3)))
    with pytest.raises(DataError) as caught:
        Aminer(path=str(folder), features="given").load()
    assert len(caught.value.problems) == 2
    np.savez(folder / "p_feat.npz", data=np.ones(1), row=np.array([7]), col=np.array([0]), shape=np.array([6, 2]))
    with pytest.raises(DataError, match="matrix of 6 x 2"):
        Aminer(path=str(folder), features="given").load()


def test_a_known_data_set_needs_all_its_relations(copied: Find) -> None:
    folder = copied("aminer")
    (folder / "pr.txt").unlink()
    with pytest.raises(DataError, match=r"pr\.txt.*missing"):
        Aminer(path=str(folder)).load()
    with pytest.raises(DataError, match=r"such as pa\.txt"):
        Aminer(path=str(folder.parent), name="other").sources()
