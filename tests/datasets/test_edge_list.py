import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnexp.datasets.edge_list import EdgeList
from gnnexp.errors import ConfigError, DataError

EDGES = np.array([[0, 1], [1, 2], [2, 2], [1, 2], [4, 0]])


def pairs(dataset: EdgeList) -> list[tuple[int, int]]:
    graph = dataset.load()
    return list(zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True))


def write(path: Path, text: str) -> str:
    if path.suffix == ".gz":
        with gzip.open(path, "wt") as file:
            file.write(text)
    else:
        path.write_text(text)
    return str(path)


@pytest.mark.parametrize("file", ["e.tsv", "e.csv", "e.txt", "e.tsv.gz", "e.csv.gz", "e.npy"])
def test_every_format_is_the_same_graph(file: str, tmp_path: Path) -> None:
    path = tmp_path / file
    if path.suffix == ".npy":
        np.save(path, EDGES)
    else:
        separator = "," if ".csv" in file else "\t" if ".tsv" in file else "  "
        write(path, "# a comment\n" + "".join(f"{u}{separator}{v}\n" for u, v in EDGES) + "\n")
    dataset = EdgeList(path=str(path))
    assert pairs(dataset) == [(1, 0), (4, 0), (0, 1), (2, 1), (1, 2), (0, 4)]
    directed = EdgeList(path=str(path), symmetrize=False, self_loops="keep", duplicates="keep")
    assert pairs(directed) == [(4, 0), (0, 1), (1, 2), (1, 2), (2, 2)]
    assert dataset.load().num_nodes == 5


def test_folder_header_and_delimiter(tmp_path: Path) -> None:
    write(tmp_path / "edges.csv", "from;to\n0;1\n")
    assert pairs(EdgeList(path=str(tmp_path), header=True, delimiter=";")) == [(1, 0), (0, 1)]
    write(tmp_path / "edges.tsv", "0\t1\n")
    with pytest.raises(DataError, match="one file edges"):
        EdgeList(path=str(tmp_path)).load()


def test_third_column_is_the_type(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tsv", "0\t1\t5\n0\t1\t2\n0\t1\t5\n")
    graph = EdgeList(path=path, symmetrize=False).load()
    assert graph.edge_types is not None
    assert graph.indices.tolist() == [0, 0]
    assert graph.edge_types.tolist() == [2, 5]


@pytest.mark.parametrize("kind", ["npy", "csv"])
def test_features_labels_and_random_split(kind: str, tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", EDGES)
    features, labels = np.arange(10, dtype=np.float32).reshape(5, 2), np.array([0, 1, -1, 1, 0])
    if kind == "npy":
        np.save(tmp_path / "f.npy", features)
        np.save(tmp_path / "l.npy", labels)
    else:
        np.savetxt(tmp_path / "f.csv", features, delimiter=",")
        np.savetxt(tmp_path / "l.csv", labels, fmt="%d")
    dataset = EdgeList(path=str(tmp_path / "e.npy"), features=f"f.{kind}", labels=f"l.{kind}", train=0.5, val=0.25)
    graph = dataset.load()
    assert isinstance(graph.features, torch.Tensor)
    assert graph.labels is not None
    assert graph.features.tolist() == features.tolist()
    assert graph.labels.tolist() == labels.tolist()
    assert graph.num_classes == 2
    drawn = torch.cat([graph.splits.train, graph.splits.val, graph.splits.test])
    assert sorted(drawn.tolist()) == [0, 1, 3, 4]
    assert [ids.numel() for ids in (graph.splits.train, graph.splits.val, graph.splits.test)] == [2, 1, 1]


def test_multilabel_and_split_files(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", EDGES)
    labels = np.eye(5, 3, dtype=np.float32)
    labels[4] = np.nan
    np.save(tmp_path / "l.npy", labels)
    write(tmp_path / "train.txt", "3\n1\n")
    np.save(tmp_path / "val.npy", np.array([True, False, False, False, False]))
    dataset = EdgeList(
        path=str(tmp_path / "e.npy"), labels="l.npy", split="files", train_ids="train.txt", val_ids="val.npy"
    )
    graph = dataset.load()
    assert graph.multilabel
    assert graph.num_classes == 3
    assert (graph.splits.train.tolist(), graph.splits.val.tolist()) == ([1, 3], [0])
    assert graph.splits.test.numel() == 0
    assert dataset.key() != EdgeList(path=str(tmp_path / "e.npy"), labels="l.npy").key()


@pytest.mark.parametrize(
    ("text", "line", "content"),
    [
        ("0\t1\n1\tx\n", 2, "1\\tx"),
        ("0\t1\n\n# c\n1\n2\t3\n", 4, "1"),
        ("0\t1\n1\t-2\n", 2, "-2"),
        ("0\t1\n1.5\t2\n", 2, "1.5"),
        ("0\t1\n1\t99999999999999999999999\n", 2, "999"),
        ("0\t1\n1\tnan\n", 2, "nan"),
    ],
)
def test_malformed_lines_are_named_with_their_content(text: str, line: int, content: str, tmp_path: Path) -> None:
    path = write(tmp_path / "e.tsv", text)
    with pytest.raises(DataError) as error:
        EdgeList(path=path).load()
    assert f"e.tsv, line {line}=" in str(error.value)
    assert content in str(error.value)


@pytest.mark.parametrize(
    ("file", "text", "options", "fix"),
    [
        ("e.tsv", "src dst\n0 1\n", {}, "dataset.header=true"),
        ("e.tsv", "0 1\na b\n", {}, "correct or remove"),
        ("e.tsv", "src dst\na b\n0 1\n", {"header": True}, "correct or remove"),
        ("e.tsv", "0,1\n1,2\n", {}, "\"dataset.delimiter=','\""),
        ("e.csv", "0;1\n1;2\n", {}, "\"dataset.delimiter=';'\""),
        ("e.csv", "0;x\n", {}, "dataset.header=true"),
    ],
)
def test_how_a_text_is_read_is_the_fix_where_that_would_help(
    file: str, text: str, options: dict[str, Any], fix: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as error:
        EdgeList(path=write(tmp_path / file, text), **options).load()
    assert fix in error.value.problems[0].fix


def test_what_may_be_a_misunderstanding_is_noted(tmp_path: Path) -> None:
    write(tmp_path / "labels.txt", "0\n9\n2\n")
    graph = EdgeList(path=write(tmp_path / "e.tsv", "0 1 7\n1 2 4\n"), labels="labels.txt", split="random").load()
    assert "the third column of the edges is used as their types: 8 relations" in graph.notes
    assert "no vertex has the classes 1, 3, 4, 5, 6 and 2 more" in graph.notes
    both = EdgeList(path=str(tmp_path / "e.tsv"), inverse_relations=True).load()
    assert any("8 relations" in note for note in both.notes), "of the file"
    plain = EdgeList(path=write(tmp_path / "f.tsv", "0 1\n1 2\n")).load()
    assert not any("column" in note or "classes" in note for note in plain.notes)


def test_several_bad_lines_are_named_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tsv", "0 1\na b\n" * 9)
    with pytest.raises(DataError) as error:
        EdgeList(path=path).load()
    assert [problem.key.rsplit(" ", 1)[1] for problem in error.value.problems] == ["2", "4", "6", "8", "10"]


def test_ids_beyond_the_given_count_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tsv", "0\t1\n1\t7\n")
    with pytest.raises(DataError, match="line 2"):
        EdgeList(path=path, num_nodes=5).load()
    assert EdgeList(path=path, num_nodes=9).load().num_nodes == 9


def test_ids_that_were_never_numbered_do_not_take_the_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tsv", "0\t1\n1\t900000000000000\n")
    with pytest.raises(DataError, match="renumber"):
        EdgeList(path=path).load()
    with pytest.raises(DataError, match="memory"):
        EdgeList(path=path, num_nodes=10**15).load()


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"\xff\xfe\x00binary", b"0\t1\t2\t3\n"])
def test_files_without_edges(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "e.tsv").write_bytes(content)
    with pytest.raises(DataError, match=r"e\.tsv"):
        EdgeList(path=str(tmp_path / "e.tsv")).load()


def test_damaged_gzip(tmp_path: Path) -> None:
    path = tmp_path / "e.tsv.gz"
    write(path, "".join(f"{i}\t{i + 1}\n" for i in range(5000)))
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"plain text", content[:50] + b"\0\0\0" + content[53:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="gz"):
            EdgeList(path=str(path)).load()


@pytest.mark.parametrize("array", [np.zeros((3, 4), np.int64), np.zeros((3, 2)), np.array([[0, -1]]), np.zeros(4, int)])
def test_wrong_npy_edges(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", array)
    with pytest.raises(DataError, match=r"e\.npy"):
        EdgeList(path=str(tmp_path / "e.npy")).load()


def test_lengths_nan_and_labels_are_checked(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", EDGES)
    np.save(tmp_path / "short.npy", np.zeros((3, 2)))
    np.save(tmp_path / "nan.npy", np.full((5, 2), np.nan))
    np.save(tmp_path / "l.npy", np.array([0, 1, -7, 1, 0]))
    np.save(tmp_path / "half.npy", np.array([0, 1, 0.5, 1, 0]))
    path = str(tmp_path / "e.npy")
    for options, named in (
        ({"features": "short.npy", "labels": "l.npy"}, "number of vertices"),
        ({"features": "nan.npy"}, "finite"),
        ({"labels": "l.npy"}, "-7"),
        ({"labels": "half.npy"}, "whole"),
        ({"features": "absent.npy"}, "absent.npy"),
    ):
        with pytest.raises(DataError, match=named):
            EdgeList(path=path, **options).load()  # type: ignore[arg-type]


def test_options_that_contradict_each_other() -> None:
    for options in (
        {"split": "files"},
        {"train_ids": "x.txt"},
        {"train": 0.9, "val": 0.2},
        {"num_nodes": 0},
        {"val": -1},
    ):
        with pytest.raises(ConfigError):
            EdgeList(**options)  # type: ignore[arg-type]


def test_edges_alone_can_be_loaded(tmp_path: Path) -> None:
    graph = EdgeList(path=write(tmp_path / "e.tsv", "0 1\n")).load()
    assert graph.labels is None
    assert graph.splits.train.numel() == 0


def all_problems(folder: Path, **options: Any) -> dict[str, str]:
    with pytest.raises(DataError) as caught:
        EdgeList(path=str(folder / "edges.npy"), **options).load()
    return {Path(problem.key).name: str(problem.value) for problem in caught.value.problems}


def test_what_is_wrong_in_several_files_is_said_at_once(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.array([[0, 1], [1, 99], [2, 3]]))
    np.save(tmp_path / "x.npy", np.array([[0.0], [np.nan], [2], [3], [4]], np.float32))
    np.save(tmp_path / "y.npy", np.array([0, 1, -5, 1, 0]))
    (tmp_path / "train.txt").write_text("0\n7\n")
    files = {"features": "x.npy", "labels": "y.npy"}
    found = all_problems(tmp_path, **files, split="files", train_ids="train.txt")
    assert set(found) == {"edges.npy", "edge_list: features", "edge_list: labels", "train.txt, line 2"}
    (tmp_path / "edges.npy").write_bytes(b"damaged")
    assert set(all_problems(tmp_path, **files)) == {"edges.npy", "edge_list: features", "edge_list: labels"}
    (tmp_path / "x.npy").write_bytes(b"damaged")
    assert set(all_problems(tmp_path, features="x.npy")) == {"edges.npy", "x.npy"}


def test_a_file_that_cannot_be_read_has_no_false_consequences(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.array([[0, 1], [1, 2]]))
    (tmp_path / "y.npy").write_bytes(b"damaged")
    (tmp_path / "train.txt").write_text("9\n")
    assert set(all_problems(tmp_path, labels="y.npy", split="files", train_ids="train.txt")) == {"y.npy"}


def test_all_missing_files_are_named(tmp_path: Path) -> None:
    assert set(all_problems(tmp_path, features="x.npy", labels="y.npy")) == {"dataset.path", "x.npy", "y.npy"}
    np.save(tmp_path / "edges.npy", np.array([[0, 1]]))
    assert set(all_problems(tmp_path, features="x.npy", labels="y.npy")) == {"x.npy", "y.npy"}


def test_types_of_edges_and_vertices(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tsv", "0\t2\t0\n1\t2\t1\n2\t0\t1\n")
    np.save(tmp_path / "x.npy", np.array([[1, 2], [3, 4], [5, 6]]))
    write(tmp_path / "t.txt", "0\n0\n2\n")
    options: dict[str, Any] = {"path": path, "features": "x.npy", "node_types": "t.txt", "inverse_relations": True}
    graph = EdgeList(**options).load()
    assert graph.edge_types is not None and graph.node_types is not None
    found = zip(graph.indices.tolist(), graph.edge_types.tolist(), graph.destinations().tolist(), strict=True)
    assert sorted(found) == [(0, 0, 2), (0, 3, 2), (1, 1, 2), (2, 1, 0), (2, 2, 0), (2, 3, 1)]
    assert graph.node_types.tolist() == [0, 0, 2]
    wide = EdgeList(**options, features_by_type=True).load().features
    assert isinstance(wide, torch.Tensor)
    assert wide.tolist() == [[1, 0, 1, 2, 0, 0], [1, 0, 3, 4, 0, 0], [0, 1, 0, 0, 5, 6]]
    assert [file.name for file in EdgeList(**options).sources()] == ["e.tsv", "x.npy", "t.txt"]


@pytest.mark.parametrize(
    ("types", "found"),
    [("0\n1\n", "number of vertices"), ("0\n-1\n2\n", "from 0 on"), ("0 1\n1 1\n2 1\n", "one column")],
)
def test_wrong_types_of_vertices(types: str, found: str, tmp_path: Path) -> None:
    path = write(tmp_path / "e.tsv", "0\t2\t0\n")
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    write(tmp_path / "t.txt", types)
    with pytest.raises(DataError, match=found):
        EdgeList(path=path, features="x.npy", node_types="t.txt").load()


def test_options_of_types_without_types(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.node_types"):
        EdgeList(features_by_type=True)
    for options in ({"node_types": "t.txt"}, {"inverse_relations": True}):
        with pytest.raises(ConfigError, match=r"dataset\.streamed"):
            EdgeList(streamed=True, **options)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="have no types"):
        EdgeList(path=write(tmp_path / "e.tsv", "0 1\n"), inverse_relations=True).load()


@pytest.mark.parametrize("streamed", [False, True])
def test_names_comments_and_delimiters_may_be_any_characters(streamed: bool, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("quäle\u2192ziel\n# grün\n0\u21921 # \u0661\n", encoding="utf-8")
    dataset = EdgeList(path=str(tmp_path), header=True, delimiter="\u2192", streamed=streamed)
    assert pairs(dataset) == [(1, 0), (0, 1)]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_line_whose_numbers_are_not_ascii_is_named(streamed: bool, tmp_path: Path) -> None:
    for line in ("1\u01fe\t2", "1\u00a0\t2", "\u0661\t2", "1 2 \u3000"):
        (tmp_path / "edges.tsv").write_text(f"0\t1\n{line}\n", encoding="utf-8")
        with pytest.raises(DataError, match=r"edges\.tsv, line 2"):
            EdgeList(path=str(tmp_path), streamed=streamed).load()
