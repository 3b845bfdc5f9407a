"""Numbers of tables are those of the file, also below the rows of which a sample finds the types of columns.

Reports of users of other libraries: docs/field_reports.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from own_tables import ids_of, load, made, text
from pyarrow import feather, parquet

from gnnexp.datasets.tables import scan
from gnnexp.datasets.tables.engine import engine
from gnnexp.datasets.tables.files import TableFiles
from gnnexp.datasets.tables.scan import TextForm
from gnnexp.datasets.tables.written import NoIntegersError, first_other, integer_of
from gnnexp.errors import DataError

ROWS = 6000  # more than DuckDB reads of a file for a sample of one row


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_SAMPLE_ROWS", 1)


def put(folder: Path, column: str, last: str, others: str = "3") -> Path:
    """Vertices with a column of numbers, and the edges of a ring with weights: only the last row has other values."""
    rows = [f"{number},{others}" for number in range(ROWS)]
    text(folder / "nodes.csv", f"id,{column}", *rows, f"{ROWS},{last}")
    ring = [f"{number},{number + 1},{others}" for number in range(ROWS)]
    text(folder / "edges.csv", "src,dst,weight", *ring, f"{ROWS},0,{last}")
    return folder


@pytest.mark.usefixtures("small_sample")
def test_fractions_below_the_sample_stay_in_texts(tmp_path: Path) -> None:
    graph = load(put(tmp_path, "f", "2.75"), nodes="nodes.csv", symmetrize=False)
    assert graph.edge_weights is not None
    assert graph.edge_weights.sum().item() == 3 * ROWS + 2.75, "DuckDB rounds 2.75 to the integer 3"
    assert graph.features is not None and graph.features[-1].tolist() == [2.75]


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize(
    ("kind", "last", "labels"),
    [
        ("auto", "2.75", [3.0, 2.75]),
        ("real", "2.75", [3.0, 2.75]),
        ("real", "2", [3.0, 2.0]),
        ("auto", "x", [0, 1]),
        ("auto", "2", [1, 0]),
        ("class", "2.75", [1, 0]),
    ],
)
def test_labels_below_the_sample_decide_what_labels_are(
    kind: str, last: str, labels: list[float], tmp_path: Path
) -> None:
    graph = load(put(tmp_path, "label", last, "3"), nodes="nodes.csv", label_kind=kind, weight=None)
    assert graph.labels is not None
    assert graph.labels[[0, -1]].tolist() == labels


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize(("others", "last"), [("3", "3.25"), ("1700000000000000001", "1700000000000000002")])
def test_times_keep_fractions_and_all_digits(others: str, last: str, tmp_path: Path) -> None:
    put(tmp_path, "time", last, others)
    rows = (tmp_path / "nodes.csv").read_text("utf-8").splitlines()
    text(tmp_path / "nodes.csv", rows[0] + ",label", *(f"{row},{number % 2}" for number, row in enumerate(rows[1:])))
    graph = load(tmp_path, nodes="nodes.csv", weight=None, split="time", train=0.5, val=0.0)
    assert graph.splits.test.tolist() == [ROWS], "only the last vertex is newer"


def test_json_is_typed_by_all_rows_of_all_files(tmp_path: Path) -> None:
    count = 1 << 17  # rows of a sample, and one
    plain = "".join(f'{{"id":{number},"y":3}}\n' for number in range(count))
    (tmp_path / "nodes.jsonl").write_text(plain + f'{{"id":{count},"y":2.75,"late":1.5}}\n', "utf-8")
    (tmp_path / "edges").mkdir()
    for number in range(40):  # DuckDB looks at 32 files
        weight = {"weight": 2.5} if number == 39 else {}
        text(tmp_path / "edges" / f"{number}.jsonl", json.dumps({"src": number, "dst": number + 1, **weight}))
    options = {"edges": "edges", "nodes": "nodes.jsonl", "label": "y", "label_kind": "real", "empty": "zero"}
    with pytest.raises(DataError, match=r"column weight=None"):
        load(tmp_path, **options)
    graph = load(tmp_path, **options, weight=None)
    assert graph.labels is not None and graph.labels[-1].item() == 2.75
    assert graph.features is not None and graph.features.sum().item() == 1.5, "a key of the last row only"


@pytest.mark.parametrize("column", ["id", "label", "split", "town"])
def test_texts_next_to_numbers_in_json_are_asked_about(column: str, tmp_path: Path) -> None:
    first = {"id": "a", "label": "u", "split": "train", "town": "x"}
    second = {"id": "7", "label": "7", "split": "val", "town": "7", column: 7}
    text(tmp_path / "nodes.jsonl", json.dumps(first), json.dumps(second))
    text(tmp_path / "edges.jsonl", json.dumps({"src": "a", "dst": "7"}))
    options = {"edges": "edges.jsonl", "nodes": "nodes.jsonl", "categories": ["town"], "split": "column"}
    with pytest.raises(DataError, match=rf"column {column}='JSON'.*\n.*dataset.as_text=\[{column}\]"):
        load(tmp_path, **options)
    if column != "split":  # 7 is no word of a split
        graph, folder = made(tmp_path, **options, as_text=[column])
        assert ids_of(folder) == ["a", "7"]
        assert json.loads((folder / "names.json").read_text("utf-8"))["classes"] == ["7", "u"]
        assert graph.labels is not None and graph.labels.tolist() == [1, 0]


@pytest.mark.parametrize("form", ["csv", "tab", "parquet", "arrow"])
def test_two_columns_of_one_name_are_refused(form: str, tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "1,2")
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array([0, 1]), pa.array([0, 1])], ["id", "label", "label"])
    file = tmp_path / f"nodes.{form}"
    if form == "parquet":
        parquet.write_table(table, file)
    elif form == "arrow":
        feather.write_feather(table, file)
    else:
        sign = "," if form == "csv" else "\t"
        text(file, *(row.replace(",", sign) for row in ("id,label,label", "1,0,0", "2,1,1")))
    said = "duplicate field names" if form == "arrow" else "column label='2 columns'"
    with pytest.raises(DataError, match=said):
        load(tmp_path, nodes=file.name)


def test_names_that_only_look_renamed_stay(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "1,2")
    text(tmp_path / "nodes.csv", "id,f,f_1,F", "1,2,3,4", "2,5,6,7")
    graph = load(tmp_path, nodes="nodes.csv")
    assert graph.features is not None and graph.features.tolist() == [[2, 3, 4], [5, 6, 7]]


@pytest.mark.parametrize(
    ("value", "fix"),
    [("1,000.5", "signs between thousands"), ("1.000,5", "signs between thousands"), ("much", "dataset.weight=null")],
)
def test_weights_that_are_no_numbers_are_shown(value: str, fix: str, tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst,weight", "1,2,3.5", f'2,3,"{value}"')
    with pytest.raises(DataError, match=rf"column weight='{value}': is no column of numbers\n.*{fix}"):
        load(tmp_path)


def test_numbers_with_signs_between_thousands_are_named(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "1,2")
    text(tmp_path / "nodes.csv", "id,f,y", '1,"1,000.5","2,000"', "2,5,6")
    for options in ({"features": ["f"]}, {"label": "y", "label_kind": "real"}):
        with pytest.raises(DataError, match=r"is no column of numbers\n.*signs between thousands"):
            load(tmp_path, nodes="nodes.csv", **options)


def test_an_integer_of_a_sample_is_exact_in_the_engine(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst,weight", "1,2,16777217", "2,3,4")
    graph = load(tmp_path, symmetrize=False)
    assert graph.edge_weights is not None
    assert graph.edge_weights.tolist() == [np.float32(16777217), 4]


@pytest.mark.usefixtures("small_sample")
def test_an_empty_text_below_the_sample_is_no_integer(tmp_path: Path) -> None:
    put(tmp_path, "f", "")
    files, form = TableFiles("nodes", (tmp_path / "nodes.csv",), "text"), TextForm(header=True, nulls=("NA",))
    with engine(tmp_path, 1 << 27, 1) as reader:
        table = reader.as_written(reader.table(files, form), ["id", "f"])
        assert first_other(reader, table, "id") is None and first_other(reader, table, "f") == ""
        with pytest.raises(NoIntegersError):
            integer_of(reader, table, "f", "kind")
