"""Integers that a file writes as `1.0`, as pandas does after an empty cell: by file, column and type of vertices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_tables import ids_of, load, made, named_edges, text

from gnnexp.errors import DataError
from gnnexp.kernels.tables.texts import Dictionary

INTEGERS = st.one_of(st.integers(-3, 12), st.integers(-(2**63), 2**63 - 1))
ROWS = st.tuples(INTEGERS, INTEGERS, st.integers(0, 11))
# For each file its rows, and which of its columns are written with a fraction of zero.
SHARDS = st.lists(
    st.tuples(st.lists(ROWS, min_size=1, max_size=4), st.tuples(*[st.booleans()] * 3)), min_size=1, max_size=4
)


def shards(
    folder: Path, header: str, files: Sequence[tuple[Sequence[Sequence[int]], Sequence[bool]]], sign: str
) -> None:
    """A folder of files of one table; a pointed column has `.0` behind all of its integers."""
    folder.mkdir()
    gap = ";" if sign == "," else ","
    for number, (rows, pointed) in enumerate(files):
        lines = (
            gap.join(f"{one}{sign}0" if point else str(one) for one, point in zip(row, pointed, strict=True))
            for row in rows
        )
        text(folder / f"{number:03}.csv", header.replace(",", gap), *lines)


def relations_of(folder: Path) -> list[str]:
    """Names of the types of edges of a graph."""
    found: list[str] = json.loads((folder / "names.json").read_text("utf-8"))["relations"]
    return found


def check(sign: str, files: list[tuple[list[tuple[int, int, int]], tuple[bool, ...]]]) -> None:
    """Ids, relations and classes of several files are integers, and what counts so is said."""
    rows = {row for file, _ in files for row in file}
    ids, kinds = sorted({one for row in rows for one in row[:2]}), sorted({row[2] for row in rows})
    labelled = [(one, 5 * number % 12) for number, one in enumerate(ids)]
    parts = [part for part in (labelled[::2], labelled[1::2]) if part]
    with TemporaryDirectory() as place:
        folder = Path(place)
        shards(folder / "e", "src,dst,relation", files, sign)
        shards(folder / "n", "id,label", [(part, (bool(number),) * 2) for number, part in enumerate(parts)], sign)
        graph, made_in = made(
            folder,
            edges="e",
            nodes="n",
            symmetrize=False,
            self_loops="keep",
            label_kind="class",
            decimal=sign,
            delimiter=";" if sign == "," else None,
        )
        own, names = ids_of(made_in), json.loads((made_in / "names.json").read_text("utf-8"))
    assert own == [one for part in parts for one, _ in part] and names["relations"] == list(map(str, kinds))
    types = [0] * graph.num_edges if graph.edge_types is None else graph.edge_types.tolist()
    ends = zip(graph.indices.tolist(), graph.destinations().tolist(), types, strict=True)
    assert sorted((own[u], own[v], kinds[kind]) for u, v, kind in ends) == sorted(rows)
    assert graph.labels is not None
    assert {one: int(names["classes"][label]) for one, label in zip(own, graph.labels.tolist(), strict=True)} == dict(
        labelled
    )
    for place_of, (column, what) in enumerate((("src", "ids"), ("dst", "ids"), ("relation", "relations"))):
        pointed = [len(file) for file, points in files if points[place_of]]
        several = f"{len(pointed)} of {len(files)} files write all of theirs"
        ways = "the file writes all of them" if len(files) == 1 else several
        note = f"{sum(pointed)} {what} of the column {column} count as integers: {ways} with {sign}0"
        assert (note in graph.notes) == bool(pointed)


@pytest.mark.parametrize("sign", [".", ","])
@pytest.mark.parametrize(
    "files",
    [
        [([(1, 2, 1)], (False,) * 3), ([(2, 1, 1)], (True,) * 3)],
        [([(1, 2, 1)], (True,) * 3), ([(2, 3, 1)], (False,) * 3)],
        [([(1, 2, 3)], (False,) * 3)] * 30 + [([(2, 3, 3)], (True, False, True))],
        [([(2**63 - 1, -(2**63), 11), (0, -1, 2)], (True,) * 3)],
        [([(3, 2, 3), (4, 4, 10)], (True, False, True))],
    ],
)
def test_each_file_of_a_table_writes_its_integers_in_one_way(
    sign: str, files: list[tuple[list[tuple[int, int, int]], tuple[bool, ...]]]
) -> None:
    check(sign, files)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [".", ","])
@given(files=SHARDS)
def test_any_files_of_a_table_write_their_integers_in_one_way(
    sign: str, files: list[tuple[list[tuple[int, int, int]], tuple[bool, ...]]]
) -> None:
    check(sign, files)


def test_counts_of_integers_with_points_are_said(tmp_path: Path) -> None:
    shards(tmp_path / "e", "src,dst", [([(1, 2), (2, 3)], (False, True)), ([(3, 1)], (True, True))], ".")
    shards(tmp_path / "n", "id,label", [([(1, 0), (2, 1)], (False, False)), ([(3, 1)], (True, True))], ".")
    graph, folder = made(tmp_path, edges="e", nodes="n", symmetrize=False)
    assert ids_of(folder) == [1, 2, 3] and named_edges(graph, [1, 2, 3]) == {(1, 2), (2, 3), (3, 1)}
    assert graph.labels is not None and graph.labels.tolist() == [0, 1, 1]
    assert [one for one in graph.notes if "count as integers" in one] == [
        "1 ids of the column id count as integers: 1 of 2 files write all of theirs with .0",
        "1 ids of the column src count as integers: 1 of 2 files write all of theirs with .0",
        "3 ids of the column dst count as integers: 2 of 2 files write all of theirs with .0",
        "1 classes of the column label count as integers: 1 of 2 files write all of theirs with .0",
    ]


@pytest.mark.parametrize("late", [False, True])
def test_a_file_with_both_forms_has_texts(late: bool, tmp_path: Path) -> None:
    """`1` and `1.0` in one file are no integers that pandas wrote."""
    rows = [f"{one},{one + 1}" for one in range(150_000 if late else 3)]
    (tmp_path / "e").mkdir()
    text(tmp_path / "e" / "a.csv", "src,dst", *rows, "1.0,2")
    text(tmp_path / "e" / "b.csv", "src,dst", "5,6")
    graph, folder = made(tmp_path, edges="e", symmetrize=False)
    ids = ids_of(folder)
    assert {"1", "1.0"} <= {*ids} and {("1.0", "2"), ("1", "2"), ("5", "6")} <= named_edges(graph, ids)
    assert not [one for one in graph.notes if "count as integers" in one]


@pytest.mark.parametrize("labels", [["1", "1.0", "2"], ["1.0", "x", "2.0"]])
def test_a_file_with_both_forms_of_classes_has_texts(labels: list[str], tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1", "1,2")
    text(tmp_path / "nodes.csv", "id,label", *(f"{row},{one}" for row, one in enumerate(labels)))
    _, folder = made(tmp_path, nodes="nodes.csv")
    assert json.loads((folder / "names.json").read_text("utf-8"))["classes"] == sorted(labels)


def test_a_label_that_means_none_with_decimal_commas(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src;dst", "0;1", "1;2")
    text(tmp_path / "nodes.csv", "id;label", "0,0;-1,0", "1,0;3,0", "2,0;7,0")
    graph = load(tmp_path, nodes="nodes.csv", decimal=",", delimiter=";", no_label=-1)
    assert graph.labels is not None and graph.labels.tolist() == [-1, 0, 1]
    assert "2 classes of the column label count as integers: the file writes all of them with ,0" in graph.notes
    text(tmp_path / "nodes.csv", "id;label", "0.0;-1,0", "1.0;3,0", "2.0;7,0")
    with pytest.raises(DataError, match="is no vertex"):  # 1.0 is a text where fractions have commas
        load(tmp_path, nodes="nodes.csv", decimal=",", delimiter=";", no_label=-1)


TYPES = {"buys": ("person", "thing"), "likes": ("person", "person"), "goes_with": ("thing", "thing")}


def two_types(folder: Path, *, pointed: bool, things: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """Tables of people with integers and things with texts."""
    point = ".0" * pointed
    text(folder / "buys.csv", "src,dst", f"10{point},{things[0]}", f"9{point},{things[1]}", f"10{point},{things[2]}")
    text(folder / "likes.csv", "src,dst", "9,10", "11,9")
    text(folder / "goes_with.csv", "src,dst", f"{things[0]},{things[1]}")
    text(folder / "people.csv", "id", *(f"{one}{point}" for one in (9, 10, 11)))
    text(folder / "things.csv", "id", *things)
    return {name: {"table": f"{name}.csv", "from": ends[0], "to": ends[1]} for name, ends in TYPES.items()}


# Bytes of a dictionary: all texts fit in memory, or none.
@pytest.mark.parametrize("num_bytes", [1, 2**60])
@pytest.mark.parametrize(
    "nodes", [{}, {"person": "people.csv"}, {"thing": "things.csv"}, {"person": "people.csv", "thing": "things.csv"}]
)
@pytest.mark.parametrize("pointed", [False, True])
def test_types_of_texts_and_of_integers_are_next_to_each_other(
    pointed: bool, nodes: dict[str, str], num_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dictionary, "num_bytes", num_bytes)
    things = ["a", "b", "7.0"]
    edges = two_types(tmp_path, pointed=pointed, things=things)
    graph, folder = made(tmp_path, edges=edges, nodes=nodes or None, symmetrize=False)
    people, known = ids_of(folder, "person"), ids_of(folder, "thing")
    assert people == [9, 10, 11] and sorted(known) == sorted(things)
    every = [*people, *known] if next(iter(nodes), "person") == "person" else [*known, *people]
    assert named_edges(graph, every) == {(10, "a"), (9, "b"), (10, "7.0"), (9, 10), (11, 9), ("a", "b")}
    notes = [one for one in graph.notes if "count as integers" in one]
    assert len(notes) == pointed * (1 + ("person" in nodes))


def test_a_late_text_makes_texts_of_its_type_only(tmp_path: Path) -> None:
    people = [f"{one},{one + 1}" for one in range(150_000)]
    text(tmp_path / "buys.csv", "src,dst", *people, "5,x")
    edges = {"buys": {"table": "buys.csv", "from": "person", "to": "thing"}}
    graph, folder = made(tmp_path, edges=edges, symmetrize=False)
    assert ids_of(folder, "person") == [*range(150_000)] and graph.num_edges == 150_001
    things = ids_of(folder, "thing")
    assert things == sorted([*map(str, range(1, 150_001)), "x"])
    assert (5, "x") in named_edges(graph, [*range(150_000), *things])


def test_an_unknown_id_of_a_type_of_integers_next_to_texts(tmp_path: Path) -> None:
    edges = two_types(tmp_path, pointed=True, things=["a", "b", "c"])
    text(tmp_path / "people.csv", "id", "9", "10")
    with pytest.raises(DataError, match=r"likes\.csv, line 3, column src=11: is no vertex of type person"):
        load(tmp_path, edges=edges, nodes={"person": "people.csv"})


def test_a_missing_integer_next_to_texts(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "1,a", ",b")
    edges = {"buys": {"table": "edges.csv", "from": "person", "to": "thing"}}
    with pytest.raises(DataError, match=r"edges\.csv, line 3, column src=None: is missing"):
        load(tmp_path, edges=edges)


@pytest.mark.parametrize("given", ["auto", "relation"])
def test_relations_with_points_are_integers(given: str, tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,relation,dst", "0,10.0,1", "1,9.0,2", "2,10.0,0")
    graph, folder = made(tmp_path, symmetrize=False, relation=given)
    assert relations_of(folder) == ["9", "10"]
    assert graph.edge_types is not None and sorted(graph.edge_types.tolist()) == [0, 1, 1]
    assert "3 relations of the column relation count as integers: the file writes all of them with .0" in graph.notes


def test_real_numbers_are_no_relations_by_themselves(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,relation,dst", "0,10.0,1", "1,9.5,2")
    graph = load(tmp_path)
    assert graph.edge_types is None and any("not used: relation" in one for one in graph.notes)


def test_categories_of_two_files_are_the_same_values(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1", "1,2")
    shards(tmp_path / "n", "id,city", [([(0, 7), (1, 8)], (False, False)), ([(2, 7)], (False, True))], ".")
    graph, folder = made(tmp_path, nodes="n", categories=["city"])
    [column] = json.loads((folder / "names.json").read_text("utf-8"))["columns"]["vertex"]
    assert column["values"] == ["7", "8"]
    assert "1 categories of the column city count as integers: 1 of 2 files write all of theirs with .0" in graph.notes
    assert isinstance(graph.features, torch.Tensor) and graph.features.tolist() == [[1, 0], [0, 1], [1, 0]]
