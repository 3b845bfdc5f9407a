"""Ids, classes, relations and splits of texts are what the file writes, byte by byte, in every format."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from own_tables import ids_of, load, made, named_edges, text
from pyarrow import parquet

from gnnexp.errors import DataError

LOOKALIKES = (
    "1.10",
    "1.1",
    "1E5",
    "100000",
    "0x1F",
    "31",
    "1e999",
    "9e999",
    "inf",
    "nan",
    "NaN",
    "-0",
    "0",
    "+1",
    "1",
    "01",
    " 1",
    "1 ",
    "1_0",
    "10",
    "1.0",
    "2.0",
    "true",
    "True",
    "yes",
    "no",
    "t",
    "2024-01-02",
    "2024-1-2",
    "02/01/2024",
    "10:30:00",
    "2024-01-02 10:30:00",
    "null",
    "NULL",
    "NA",
    "None",
    "-1",
    str(2**63),
    str(2**53),
    str(2**53 + 1),
    "{a}",
    "[1]",
    "'x'",
    '"q"',
    "a,b",
    "a;b",
    "a|b",
    "a\tb",
    "#c",
    "%d",
    "é",
)
POINT = re.compile(r"(0|-?[1-9][0-9]*)\.0", re.ASCII)
FORMS = ("csv", "tsv", "jsonl", "parquet")
PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z"), include_characters=" "), min_size=1)
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(repr),
    st.dates().map(str),
    st.integers(0, 2**64).map(hex),
    st.decimals().map(str),
)
IDS = st.lists(st.one_of(st.sampled_from(LOOKALIKES), NUMBERS, PRINTABLE), min_size=2, max_size=8, unique=True)


def write(folder: Path, name: str, columns: dict[str, Sequence[str]], form: str) -> str:
    """A table of texts: the name of its file."""
    file = folder / f"{name}.{form}"
    rows = list(zip(*columns.values(), strict=True))
    if form == "parquet":
        parquet.write_table(pa.table({key: pa.array(values, pa.string()) for key, values in columns.items()}), file)
    elif form == "jsonl":
        file.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows), "utf-8")
    else:
        with file.open("w", encoding="utf-8", newline="") as opened:
            writer = csv.writer(opened, delimiter="\t" if form == "tsv" else ",", lineterminator="\n")
            writer.writerows([list(columns), *rows])
    return file.name


def check(form: str, ids: list[str], *, by_edges: bool) -> None:
    """Ids, and with a table of vertices classes, come back from tables of this form."""
    expected = set(zip(ids, [*ids[1:], ids[0]], strict=True))
    with TemporaryDirectory() as place:
        folder = Path(place)
        files = {"edges": write(folder, "edges", {"src": ids, "dst": [*ids[1:], ids[0]]}, form)}
        if not by_edges:
            files["nodes"] = write(folder, "nodes", {"id": ids, "label": ids}, form)
        graph, made_in = made(folder, symmetrize=False, header=True, label_kind="class", no_label=None, **files)
        found = [str(one) for one in ids_of(made_in)]
        classes = json.loads((made_in / "names.json").read_text("utf-8"))["classes"]
    points = form in ("csv", "tsv") and all(POINT.fullmatch(one) for one in ids)
    whole = {one: one.removesuffix(".0") if points else one for one in ids}
    assert (sorted(found) if by_edges else found) == (sorted(whole.values()) if by_edges else list(whole.values()))
    assert named_edges(graph, found) == {(whole[u], whole[v]) for u, v in expected}
    if not by_edges:
        assert graph.labels is not None
        assert [classes[one] for one in graph.labels.tolist()] == list(whole.values())


@pytest.mark.parametrize("form", FORMS)
@given(ids=IDS, by_edges=st.booleans())
@settings(max_examples=20)
@example(ids=list(LOOKALIKES), by_edges=False)
@example(ids=list(LOOKALIKES), by_edges=True)
@example(ids=["2.0", "1.0", "3.0"], by_edges=False)
@example(ids=["1.10", "nan"], by_edges=False)
def test_any_ids_and_classes_come_back(form: str, ids: list[str], by_edges: bool) -> None:
    check(form, ids, by_edges=by_edges)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("form", FORMS)
@given(ids=IDS, by_edges=st.booleans())
@settings(max_examples=2_500)
def test_any_ids_and_classes_come_back_of_many(form: str, ids: list[str], by_edges: bool) -> None:
    check(form, ids, by_edges=by_edges)


def test_a_name_space_has_integers_only_if_all_of_its_values_are_some(tmp_path: Path) -> None:
    """One text among the ids, far below the rows that types are found by, or in another table, makes all texts."""
    rows = [f"{one},{one + 1}" for one in range(150_000)]
    text(tmp_path / "edges.csv", "src,dst", *rows)
    _, plain = made(tmp_path, edges="edges.csv")
    assert ids_of(plain)[:3] == [0, 1, 2]
    text(tmp_path / "edges.csv", "src,dst", *rows, "007,7")
    graph, folder = made(tmp_path, edges="edges.csv")
    found = ids_of(folder)
    assert len(found) == graph.num_nodes == 150_002 and {"007", "7"} <= {*found} and found == sorted(found)
    assert named_edges(graph, found) >= {("007", "7"), ("7", "007"), ("0", "1")}


def test_ids_of_one_table_may_be_written_with_points(tmp_path: Path) -> None:
    """pandas writes integers so if a cell of the column is empty."""
    text(tmp_path / "edges.csv", "src,dst", "3.0,1", "1.0,2", "2.0,3")
    text(tmp_path / "nodes.csv", "id,label", "1,1.0", "2,", "3,0.0")
    graph, folder = made(tmp_path, nodes="nodes.csv", symmetrize=False)
    assert named_edges(graph, ids_of(folder)) == {(3, 1), (1, 2), (2, 3)}
    assert graph.labels is not None and graph.labels.tolist() == [1, -1, 0]
    assert "3 ids of the column src count as integers: the file writes all of them with .0" in graph.notes
    assert "2 classes of the column label count as integers: the file writes all of them with .0" in graph.notes
    assert "1 of 3 vertices have no label" in graph.notes
    text(tmp_path / "nodes.csv", "id,label", "a,1.0", "2,", "3,0.0")
    with pytest.raises(DataError, match=r"column src='3\.0': is no vertex"):
        load(tmp_path, nodes="nodes.csv")


@pytest.mark.parametrize("late", [False, True])
def test_quotes_that_come_late_are_no_part_of_an_id(late: bool, tmp_path: Path) -> None:
    """In another shard, or far below the rows that the form of a text is found by."""
    rows = [f"{one},{one + 1}" for one in range(200_000 if late else 2)]
    (tmp_path / "e").mkdir()
    text(tmp_path / "e" / "a.csv", "src,dst", *rows, *(['"0","7"'] if late else []))
    if not late:
        text(tmp_path / "e" / "b.csv", "src,dst", '"0","7"')
    graph, folder = made(tmp_path, edges="e", symmetrize=False)
    assert (0, 7) in named_edges(graph, ids_of(folder)) and graph.num_edges == len(rows) + 1


def test_single_quotes_are_a_part_of_an_id(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "'a',b", "a,'c'", "c,b")
    graph, folder = made(tmp_path, symmetrize=False)
    assert named_edges(graph, ids_of(folder)) == {("'a'", "b"), ("a", "'c'"), ("c", "b")}


def test_numbers_of_json_have_a_type(tmp_path: Path) -> None:
    (tmp_path / "edges.jsonl").write_text('{"src": 1.10, "dst": 2}\n{"src": 1.1, "dst": 3}\n')
    with pytest.raises(DataError, match="real numbers must be whole"):
        load(tmp_path, edges="edges.jsonl")
    (tmp_path / "edges.jsonl").write_text('{"src": 1.0, "dst": 2}\n{"src": 1e5, "dst": 3}\n')
    graph, folder = made(tmp_path, edges="edges.jsonl", symmetrize=False)
    assert named_edges(graph, ids_of(folder)) == {(1, 2), (100_000, 3)}


def test_days_in_two_files_are_the_same_ids(tmp_path: Path) -> None:
    text(tmp_path / "nodes.csv", "id,label", "2024-01-02,a", "2024-01-03,b")
    text(tmp_path / "edges.csv", "src,dst", "2024-01-02,2024-01-03", "2024-01-03,2024-01-02")
    text(tmp_path / "more.csv", "src,dst", "2024-01-02,2024-1-3")
    assert load(tmp_path, nodes="nodes.csv").num_edges == 2
    with pytest.raises(DataError, match="'2024-1-3': is no vertex"):
        load(tmp_path, nodes="nodes.csv", edges="more.csv")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array([1.5, 2.0]), "real numbers must be whole"),
        (pa.array([2.0**54, 1.0]), "at most 9007199254740992"),
        (pa.array([True, False]), "ids are integers or texts"),
        (pa.array(np.array([1, 2], "M8[D]")), "integers or texts"),
    ],
)
def test_typed_files_keep_their_types(values: pa.Array, words: str, tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "1,2")
    parquet.write_table(pa.table({"id": values, "label": ["a", "b"]}), tmp_path / "nodes.parquet")
    with pytest.raises(DataError, match=words):
        load(tmp_path, nodes="nodes.parquet")


def test_relations_and_splits_are_as_written(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,relation,dst", "0,yes,1", "1,no,2", "2,true,0")
    graph, folder = made(tmp_path, symmetrize=False)
    assert json.loads((folder / "names.json").read_text("utf-8"))["relations"] == ["no", "true", "yes"]
    text(tmp_path / "edges.csv", "src,relation,dst", "0,10,1", "1,9,2", "2,10,0")
    graph, folder = made(tmp_path, symmetrize=False, name="numbers")
    assert json.loads((folder / "names.json").read_text("utf-8"))["relations"] == ["9", "10"]
    assert graph.edge_types is not None and sorted(graph.edge_types.tolist()) == [0, 1, 1]


@pytest.mark.parametrize(
    ("labels", "options", "expected"),
    [
        (["-1", "1", "1"], {}, [0, 1, 1]),
        (["-1", "0", "1"], {"no_label": -1}, [-1, 0, 1]),
        (["-1", "0", "1"], {"no_label": None}, [0, 1, 2]),
        (["?", "a", "b"], {"no_label": "?"}, [-1, 0, 1]),
        (["-9", "0.5", "1.5"], {"no_label": -9}, [np.nan, 0.5, 1.5]),
        (["+1", "-1", "+1"], {}, [0, 1, 0]),
        (["-1.0", "3.0", "7.0"], {"no_label": -1}, [-1, 0, 1]),
        (["a", "-1", "b"], {}, [1, 0, 2]),
        (["True", "x", "true"], {"no_label": True}, [-1, 0, -1]),
        (["10", "?", "9"], {"no_label": "?"}, [1, -1, 0]),
        (["1.0", "9" * 40 + ".0", "2.0"], {}, [0, 2, 1]),
    ],
)
def test_a_label_that_means_none_is_the_user_s(
    labels: list[str], options: dict[str, object], expected: list[float], tmp_path: Path
) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1", "1,2")
    text(tmp_path / "nodes.csv", "id,label", *(f"{row},{one}" for row, one in enumerate(labels)))
    graph = load(tmp_path, nodes="nodes.csv", **options)
    assert graph.labels is not None
    np.testing.assert_array_equal(graph.labels.numpy(), np.array(expected, graph.labels.numpy().dtype))


@pytest.mark.parametrize("labels", [["-1", "0", "1"], ["-1", "-1", ""], ["-1.0", "3.0", ""]])
def test_minus_one_beside_other_numbers_asks(labels: list[str], tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1", "1,2")
    text(tmp_path / "nodes.csv", "id,label", *(f"{row},{one}" for row, one in enumerate(labels)))
    with pytest.raises(DataError) as caught:
        load(tmp_path, nodes="nodes.csv")
    assert "dataset.no_label=-1" in str(caught.value) and "dataset.no_label=null" in str(caught.value)
