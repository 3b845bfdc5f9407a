"""Archives of published families under any name: the file is found, and the data set is called by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from gnnexp.config.compose import compose
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.base import ROOT_VARIABLE, Dataset
from gnnexp.datasets.looking.guess import recognised
from gnnexp.datasets.published.fb100 import Fb100
from gnnexp.datasets.published.npz import GraphDataNpz, HeterophilousNpz
from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows

CLASSES = classes_of("dataset", own_folders())
RING = scipy.sparse.csr_matrix(np.roll(np.eye(9, dtype=np.float32), 1, axis=1))
WORDS = scipy.sparse.csr_matrix(np.eye(9, 4, dtype=np.float32))
LABELS = np.arange(9, dtype=np.int32) % 3


def boxed(value: object) -> np.ndarray:
    array = np.empty((), object)
    array[()] = value
    return array


def put_graphdata(path: Path, **more: Any) -> Path:
    """As GraphData's notebook saves: pickled matrices in arrays without dimensions."""
    arrays = {
        "adj_matrix": boxed(RING),
        "node_attr": boxed(WORDS),
        "node_label": LABELS,
        "metadata": boxed({"class_names": ["a", "b", "c"]}),
        **more,
    }
    np.savez_compressed(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def put_hetero(path: Path, splits: int = 3) -> Path:
    rows = np.arange(12)
    masks = np.zeros((splits, 12), bool)
    np.savez_compressed(
        path,
        node_features=np.eye(12, 3, dtype=np.float32),
        node_labels=rows % 3,
        edges=np.array([[0, 1], [2, 3], [4, 11]]),
        train_masks=masks | (rows < 6),
        val_masks=masks | (rows == 7),
        test_masks=masks | (rows > 8),
    )
    return path


def put_mat(path: Path, dtype: type = np.uint16) -> Path:
    info = np.tile(np.arange(9)[:, None] % 3, (1, 7)).astype(dtype)
    scipy.io.savemat(path, {"A": scipy.sparse.csc_matrix(RING + RING.T), "local_info": info}, do_compression=True)
    return path


PUT: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "graphdata_npz": (put_graphdata, "karate_club.npz", "karate-club"),
    "heterophilous_npz": (put_hetero, "roman_empire.npz", "roman-empire"),
    "fb100": (put_mat, "Penn94.mat", "Penn94"),
}


def made(choice: str, *overrides: str) -> Dataset:
    return build(compose([f"dataset={choice}", *overrides]).config["dataset"], Dataset)


@pytest.mark.parametrize("place", ["the file", "its folder"])
@pytest.mark.parametrize("choice", PUT)
def test_a_path_alone_does(choice: str, place: str, tmp_path: Path) -> None:
    put, file, name = PUT[choice]
    put(tmp_path / file)
    dataset = made(choice, f"dataset.path={tmp_path / file if place == 'the file' else tmp_path}")
    graph = dataset.load()
    assert dataset.name == graph.name == name and graph.num_edges > 0
    assert "bytes not known" in graph.notes[-1]


@pytest.mark.parametrize("choice", PUT)
def test_what_data_prints_reads_the_same(choice: str, tmp_path: Path) -> None:
    put, file, name = PUT[choice]
    (tmp_path / "notes.md").write_text("mine")
    put(tmp_path / file)
    for place in (tmp_path, tmp_path / file):
        overrides = list(recognised(place, CLASSES).overrides)
        assert overrides[:2] == [f"dataset={choice}", f"dataset.name={name}"]
        assert build(compose(overrides).config["dataset"], Dataset).load().name == name


@pytest.mark.parametrize("choice", PUT)
def test_a_folder_in_the_root_has_the_only_file_or_that_of_the_name(
    choice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, file, name = PUT[choice]
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    folder = tmp_path / (f"fb100-{name.lower()}" if choice == "fb100" else name)
    folder.mkdir()
    put(folder / f"download-3{Path(file).suffix}")
    assert made(choice, f"dataset.name={name}").load().name == name
    put(folder / file)
    assert made(choice, f"dataset.name={name}").sources() == [folder / file]


@pytest.mark.parametrize("choice", PUT)
def test_several_files_are_listed_and_a_name_chooses(choice: str, tmp_path: Path) -> None:
    put, file, name = PUT[choice]
    put(tmp_path / file)
    put(tmp_path / f"other{Path(file).suffix}")
    with pytest.raises(DataError, match=rf"{file}.*\n.*dataset\.name={name}"):
        made(choice, f"dataset.path={tmp_path}").load()
    with pytest.raises(DataError, match="has 2 data sets"):
        recognised(tmp_path, CLASSES)
    assert made(choice, f"dataset.path={tmp_path}", f"dataset.name={name}").load().name == name
    with pytest.raises(DataError, match=r"dataset\.name=other"):
        made(choice, f"dataset.path={tmp_path}", "dataset.name=third").load()


@pytest.mark.parametrize("choice", PUT)
def test_another_name_than_the_only_file_has_is_a_mistake(choice: str, tmp_path: Path) -> None:
    put, file, name = PUT[choice]
    put(tmp_path / file)
    with pytest.raises(DataError, match=rf"third.*\n.*dataset\.name={name}"):
        made(choice, f"dataset.path={tmp_path}", "dataset.name=third").sources()
    assert made(choice, f"dataset.path={tmp_path / file}", "dataset.name=third").load().name == "third"


@pytest.mark.parametrize("choice", PUT)
def test_files_of_other_forms_are_not_taken_for_one(choice: str, tmp_path: Path) -> None:
    suffix = Path(PUT[choice][1]).suffix
    (tmp_path / f"text{suffix}").write_text("no archive")
    (tmp_path / f"folder{suffix}").mkdir()
    np.savez(tmp_path / "arrays.npz", indptr=np.zeros(3))
    scipy.io.savemat(tmp_path / "B.mat", {"B": np.eye(2)})
    assert CLASSES[choice].recognised(tmp_path) is None  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=f"the folder has .*text{suffix}"):
        made(choice, f"dataset.path={tmp_path}").load()


def test_any_name_can_be_typed(tmp_path: Path) -> None:
    put_graphdata(tmp_path / "größe [1].npz")
    dataset = GraphDataNpz(path=str(tmp_path))
    assert dataset.load().name == "größe [1]"
    assert CLASSES["graphdata_npz"].recognised(tmp_path) == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("sparse", [True, False])
def test_archives_of_gnn_benchmark_hold_the_same(sparse: bool, tmp_path: Path) -> None:
    pickled = put_graphdata(tmp_path / "a.npz")
    plain = {"labels": LABELS, "attr_matrix": WORDS.toarray()}
    for name, matrix in (("adj", RING), ("attr", WORDS)):
        if name == "adj" or sparse:
            plain |= {
                f"{name}_data": matrix.data,
                f"{name}_indices": matrix.indices,
                f"{name}_indptr": matrix.indptr,
                f"{name}_shape": np.array(matrix.shape),
            }
    if sparse:
        del plain["attr_matrix"]
    np.savez(tmp_path / "b.npz", **plain)
    one, two = (GraphDataNpz(path=str(path)).load() for path in (pickled, tmp_path / "b.npz"))
    for name in ("indptr", "indices", "features", "labels"):
        assert getattr(one, name).equal(getattr(two, name))
    assert one.splits.train.equal(two.splits.train)


def test_graphs_without_attributes_or_with_dense_ones(tmp_path: Path) -> None:
    none = GraphDataNpz(path=str(put_graphdata(tmp_path / "none.npz", node_attr=None))).load()
    dense = GraphDataNpz(path=str(put_graphdata(tmp_path / "dense.npz", node_attr=WORDS.toarray()))).load()
    usual = GraphDataNpz(path=str(put_graphdata(tmp_path / "usual.npz"))).load()
    assert none.features is None and any("no features" in note for note in none.notes)
    assert dense.features is not None and not isinstance(dense.features, SparseRows)
    assert dense.features.equal(usual.features)  # type: ignore[arg-type]


def test_a_row_too_few_is_said(tmp_path: Path) -> None:
    path = put_graphdata(tmp_path / "x.npz", node_label=LABELS[:4])
    with pytest.raises(DataError, match="same rows"):
        GraphDataNpz(path=str(path)).load()
    np.savez(
        path,
        adj_data=RING.data,
        adj_indices=RING.indices,
        adj_indptr=RING.indptr,
        labels=LABELS,
        adj_shape=np.array([9, -9]),
    )
    with pytest.raises(DataError, match="adj_shape"):
        GraphDataNpz(path=str(path)).load()


def split_sizes(graph: Graph) -> list[int]:
    return [part.numel() for part in (graph.splits.train, graph.splits.val, graph.splits.test)]


def test_files_may_have_one_split_or_any_number(tmp_path: Path) -> None:
    path = str(put_hetero(tmp_path / "minesweeper.npz", 2))
    assert HeterophilousNpz(path=path, split_index=1).load().notes[0] == "published split 1 of 2"
    with pytest.raises(DataError, match=r"dataset\.split_index=2.*splits 0 to 1"):
        HeterophilousNpz(path=path, split_index=2).load()
    with np.load(path) as archive:
        one = {name: array[0] if "masks" in name else array for name, array in archive.items()}
    np.savez(path, **one)
    assert split_sizes(HeterophilousNpz(path=path).load()) == [6, 1, 3]
    np.savez(path, **{**one, "train_masks": np.array(True)})
    with pytest.raises(DataError, match="train_masks"):
        HeterophilousNpz(path=path).load()


def test_columns_of_a_school_may_be_doubles(tmp_path: Path) -> None:
    whole, short = (
        Fb100(path=str(put_mat(tmp_path / f"{kind.__name__}.mat", kind))).load() for kind in (np.float64, np.uint16)
    )
    assert whole.features is not None and whole.features.equal(short.features)  # type: ignore[union-attr,arg-type]


@pytest.mark.parametrize(
    ("directory", "kind", "name"),
    [
        ("amazon-computers", GraphDataNpz, "amazon-computers"),
        ("coauthor-physics", GraphDataNpz, "coauthor-physics"),
        ("tolokers", HeterophilousNpz, "tolokers"),
        ("fb100-cornell5", Fb100, "Cornell5"),
    ],
)
def test_published_files_keep_their_names(
    directory: str, kind: Callable[..., Dataset], name: str, real: Callable[[str], Path]
) -> None:
    folder = real(directory)
    dataset = kind(path=str(folder))
    assert dataset.name == kind(path=str(next(folder.iterdir()))).name == name
    origin = dataset.origin()
    assert origin is not None and origin.dataset == name and "@" in origin.source and not dataset.origin_notes()
