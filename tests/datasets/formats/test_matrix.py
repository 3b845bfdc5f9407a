import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from examples import few
from gnnexp.cli.main import run_command
from gnnexp.config.compose import compose
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.formats.matrix import AdjacencyMatrix
from gnnexp.datasets.looking.guess import recognised
from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph

CLASSES = classes_of("dataset", own_folders())
AS_IT_IS: dict[str, Any] = {"symmetrize": False, "self_loops": "keep", "duplicates": "keep"}


def load(path: Path, **options: Any) -> Graph:
    return AdjacencyMatrix(path=str(path), **options).load()


def dense(graph: Graph) -> np.ndarray:
    """`[V, V]`: the sum of the weights of the edges from i to j."""
    found = np.zeros((graph.num_nodes, graph.num_nodes), np.float32)
    weights = torch.ones(graph.num_edges) if graph.edge_weights is None else graph.edge_weights
    np.add.at(found, (graph.indices.numpy(), graph.destinations().numpy()), weights.numpy())
    return found


def save(matrix: Any, path: Path, **options: Any) -> Path:
    if path.name.endswith(".npz"):
        scipy.sparse.save_npz(path, matrix)
    else:
        plain = path.with_suffix("") if path.suffix == ".gz" else path
        scipy.io.mmwrite(plain, matrix, **options)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
    return path


MATRIX = np.array([[0, 2, 0, 0], [0, 0, 0.5, 0], [3, 0, 4, 0], [0, 0, 0, 0]], np.float32)


@pytest.mark.parametrize("file", ["m.npz", "m.mtx", "m.mtx.gz"])
@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "coo_array", "csr_matrix", "csc_matrix", "coo_matrix"])
@pytest.mark.parametrize("source", ["row", "column"])
def test_entries_are_edges(file: str, kind: str, source: Any, tmp_path: Path) -> None:
    path = save(getattr(scipy.sparse, kind)(MATRIX), tmp_path / file)
    graph = load(path, source=source, **AS_IT_IS)
    assert (dense(graph) == (MATRIX if source == "row" else MATRIX.T)).all() and graph.num_nodes == 4
    assert "weight=values of the matrix" in graph.notes


@few(40)
@given(
    count=st.integers(1, 5),
    data=st.data(),
    file=st.sampled_from(["m.npz", "m.mtx"]),
    dtype=st.sampled_from(["int32", "int64", "float32", "float64"]),
)
def test_any_matrix(count: int, data: Any, file: str, dtype: str, tmp_path_factory: Any) -> None:
    pairs = data.draw(
        st.lists(
            st.tuples(st.integers(0, count - 1), st.integers(0, count - 1), st.integers(-5, 5)), min_size=1, max_size=12
        )
    )
    rows, columns, values = (np.array(one) for one in zip(*pairs, strict=True))
    matrix = scipy.sparse.coo_array((values.astype(dtype), (rows, columns)), shape=(count, count))
    path = (
        save(matrix, tmp_path_factory.mktemp("m") / file, symmetry="general")
        if file.endswith("x")
        else save(matrix, tmp_path_factory.mktemp("m") / file)
    )
    graph = load(path, weights=True, **AS_IT_IS)
    assert graph.num_edges == len(pairs) and (dense(graph) == matrix.toarray()).all()


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric"])
@pytest.mark.parametrize("field", ["real", "integer"])
def test_a_triangle_is_mirrored(symmetry: str, field: str, tmp_path: Path) -> None:
    sign = -1 if symmetry.startswith("skew") else 1
    (tmp_path / "m.mtx").write_text(
        f"%%MatrixMarket matrix coordinate {field} {symmetry}\n% a comment\n\n3 3 2\n2 1 5\n3 2 7\n"
    )
    assert dense(load(tmp_path / "m.mtx", **AS_IT_IS)).tolist() == [[0, sign * 5, 0], [5, 0, sign * 7], [0, 7, 0]]


def test_ones_are_no_weights_and_arrays_are_read(tmp_path: Path) -> None:
    (tmp_path / "p.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n2 3\n")
    assert load(tmp_path / "p.mtx").edge_weights is None
    assert load(tmp_path / "p.mtx", weights=True).edge_weights is not None
    scipy.io.mmwrite(tmp_path / "a.mtx", MATRIX)
    assert (dense(load(tmp_path / "a.mtx", **AS_IT_IS)) == MATRIX).all()
    path = save(scipy.sparse.csr_array(MATRIX > 0), tmp_path / "b.npz")
    assert load(path).edge_weights is None and load(path, weights=False).num_edges == load(path).num_edges
    zero = scipy.sparse.coo_array(([0.0, 2.0], ([0, 1], [1, 2])), shape=(3, 3))
    graph = load(save(zero, tmp_path / "z.npz"), symmetrize=False)
    assert graph.num_edges == 2 and any("1 entries are 0" in note for note in graph.notes)


def test_a_matrix_of_two_types(tmp_path: Path) -> None:
    save(scipy.sparse.csr_array(MATRIX[:3, :2]), tmp_path / "m.npz")
    np.save(tmp_path / "labels.npy", np.array([0, 1, 1]))
    graph = load(tmp_path / "m.npz", labels="labels.npy")
    assert graph.node_types is not None and graph.node_types.tolist() == [0, 0, 0, 1, 1]
    assert graph.labels is not None and graph.labels.tolist() == [0, 1, 1, -1, -1]
    ends = {*zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True)}
    assert ends == {(0, 4), (4, 0), (2, 3), (3, 2)}


@pytest.mark.parametrize(
    ("features", "labels"),
    [("features.npy", "labels.npy"), ("features.npz", "labels.txt"), ("features.csv", "labels.csv")],
)
def test_a_folder_may_have_features_and_labels(features: str, labels: str, tmp_path: Path) -> None:
    rows = np.arange(8, dtype=np.float64).reshape(4, 2)
    path = save(scipy.sparse.csr_array(MATRIX), tmp_path / ("graph.npz" if features.endswith("z") else "adj.npz"))
    if features == "features.npy":
        np.save(tmp_path / features, rows)
        np.save(tmp_path / labels, np.array([1, 0, 1, -1]))
    elif features == "features.npz":
        scipy.sparse.save_npz(tmp_path / features, scipy.sparse.csc_array(rows))
        (tmp_path / labels).write_text("1\n0\n1\n-1\n")
    else:
        np.savetxt(tmp_path / features, rows, delimiter=",")
        (tmp_path / labels).write_text("two\none\ntwo\n\n")
    (tmp_path / "README.md").write_text("about it")
    if labels == "labels.csv":
        with pytest.raises(DataError, match=r"3 rows.*there are 4 vertices"):
            load(path, features=features, labels=labels)
        (tmp_path / labels).write_text("two\none\ntwo\none\n")
    lines = recognised(tmp_path, CLASSES).overrides
    graph = build(compose([*lines]).config["dataset"], Dataset).load()
    assert isinstance(graph.features, torch.Tensor) and graph.features.tolist() == rows.tolist()
    assert graph.labels is not None and graph.labels.tolist()[:3] == [1, 0, 1] and graph.num_classes == 2


def test_features_can_be_standardized(tmp_path: Path) -> None:
    path = save(scipy.sparse.csr_array(MATRIX), tmp_path / "adj.npz")
    np.save(tmp_path / "x.npy", np.array([[0, 5], [2, 5], [0, 5], [2, 5]]))
    graph = load(path, features="x.npy", standardize=True)
    assert isinstance(graph.features, torch.Tensor) and graph.features.tolist() == [[-1, 0], [1, 0], [-1, 0], [1, 0]]
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_array(np.eye(4)))
    with pytest.raises(DataError, match="not sparse"):
        load(path, features="x.npz", standardize=True)


@pytest.mark.parametrize("file", ["a.npz", "a.mtx", "a.mtx.gz"])
def test_data_prints_overrides_that_load_it(file: str, tmp_path: Path) -> None:
    path = save(scipy.sparse.csr_array(MATRIX), tmp_path / file)
    for place in (path, tmp_path):
        lines = recognised(place, CLASSES).overrides
        assert lines[0] == "dataset=matrix"
        assert build(compose([*lines]).config["dataset"], Dataset).load().num_nodes == 4


BANNER = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "must begin with"),
        ("1 2\n", "must begin with"),
        (BANNER, "line of sizes"),
        (BANNER + "2 2\n", "line of sizes"),
        (BANNER + "3 3 1000000000000\n1 1 1\n", "bytes cannot hold them"),
        (BANNER + "2 2 1\n3 1 1\n", "m.mtx"),
        (BANNER + "2 2 2\n1 1 1\n                \n", "m.mtx"),
        (BANNER + "2 2 1\n0 1 1\n", "m.mtx"),
        (BANNER + "2 2 1\n1 2 x\n", "m.mtx"),
        (BANNER + "2 2 1\n1 2 nan\n", "weights must be finite"),
        (BANNER.replace("real", "complex") + "2 2 1\n1 2 1 1\n", "numbers may be"),
        (BANNER.replace("general", "hermitian") + "2 2 1\n1 2 1\n", "symmetry"),
        ("%%MatrixMarket matrix array real general\n100000 100000\n1\n", "bytes cannot hold them"),
        (BANNER + "9999999999999 9999999999999 1\n1 1 1\n", "memory are available"),
    ],
)
def test_damaged_texts_are_named(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "m.mtx").write_text(content)
    with pytest.raises(DataError, match=said):
        load(tmp_path / "m.mtx")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": b"bsr"}, "formats are csr, csc and coo"),
        ({"format": np.array({})}, "format"),
        ({"indptr": np.array([0, 9, 9, 9, 9])}, "must ascend"),
        ({"indptr": np.array([0, 3])}, "must ascend"),
        ({"indptr": np.array([0, 2, 1, 2, 4])}, "must ascend"),
        ({"indices": np.array([0, 1, 2, 9])}, "must be below 4"),
        ({"indices": np.array([0.0, 1, 2, 3])}, "whole numbers"),
        ({"data": np.array([1, 2])}, "one length"),
        ({"shape": np.array([4])}, "must be a matrix"),
        ({"shape": np.array([2**60, 4])}, "must ascend"),
        ({"data": np.array([1, 2, np.nan, 3])}, "weights must be finite"),
    ],
)
def test_damaged_archives_are_named(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    matrix = scipy.sparse.csr_array(MATRIX)
    parts = {
        "format": b"csr",
        "shape": matrix.shape,
        "data": matrix.data,
        "indices": matrix.indices,
        "indptr": matrix.indptr,
        **change,
    }
    np.savez(tmp_path / "m.npz", **parts)
    with pytest.raises(DataError, match=said):
        load(tmp_path / "m.npz")


def test_a_pickle_is_not_executed(tmp_path: Path, bomb: tuple[bytes, Path]) -> None:
    content, trace = bomb
    (tmp_path / "m.npz").write_bytes(content)
    with pytest.raises(DataError):
        load(tmp_path / "m.npz")
    assert not trace.exists()


def test_data_advises_keys_that_the_dataset_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(scipy.sparse.csr_array(MATRIX), tmp_path / "adj.npz")
    np.save(tmp_path / "features.npy", np.array([[0], [100], [200], [300]]))
    assert run_command(["data", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == "matrix" and found["edges"] == 4 and "dataset.standardize=true" in found["run"]
    assert compose(found["run"]).config["dataset"]["features"] == "features.npy"
