"""Tables for programs: CSV, JSON and Parquet have the same numbers, all of them, in full precision."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from gnnexp.reports.tables.cells import CountCell, NumberCell, StatisticsCell
from gnnexp.reports.tables.data import arrow_of, csv_of, document_of
from gnnexp.reports.tables.markdown import markdown_of
from gnnexp.reports.tables.save import FORMATS, save_table
from gnnexp.reports.tables.table import ReportTable

# Squares of smaller and larger numbers are 0 or infinite in numpy.
MAGNITUDES = st.floats(1e-100, 1e100)
VALUES = st.lists(MAGNITUDES | MAGNITUDES.map(lambda value: -value) | st.just(0.0), max_size=12)
FIELDS = ("mean", "half_width", "min", "max", "n")
TABLE = ReportTable(
    ("system", "epoch s", "sent MB", "paper", "runs"),
    (
        ("dgl", StatisticsCell((0.1, 0.2, 1 / 3), ".4f"), NumberCell(1 / 7), "1,024", CountCell(3)),
        ("a, b", StatisticsCell((1e-300,)), NumberCell(0.0), "–", CountCell(1, 2, "failed")),
        ("–", StatisticsCell((), absent="OOM"), NumberCell(math.nan), "2.5", CountCell(0, 3, "OOM")),
    ),
    "what it means",
    "a sentence",
)
# Of 0.1, 0.2 and 1/3: their sum is 19/30 and that of their squares 29/180. The quantile is that of Student's t with two
# degrees of freedom, which has a closed form.
MEAN, HALF = 19 / 90, 0.95 / math.sqrt(2 * 0.975 * 0.025) * math.sqrt((29 / 180 - (19 / 30) ** 2 / 3) / 2 / 3)


def test_csv_has_a_column_for_each_number() -> None:
    header, *rows = csv.reader(io.StringIO(csv_of(TABLE)))
    assert header == [
        "system",
        *(f"epoch s {field}" for field in FIELDS),
        "sent MB",
        "paper",
        "runs finished",
        "runs failed",
        "runs verdict",
    ]
    (_, mean, half, *first), *others = rows
    assert [float(mean), float(half)] == pytest.approx([MEAN, HALF], rel=1e-13)
    assert first == ["0.1", repr(1 / 3), "3", repr(1 / 7), "1,024", "3", "0", ""]
    assert others == [
        ["a, b", "1e-300", "", "1e-300", "1e-300", "1", "0.0", "–", "1", "2", "failed"],
        ["–", "", "", "", "", "0", "", "2.5", "0", "3", "OOM"],
    ]


def test_csv_and_parquet_have_equal_numbers(tmp_path: Path) -> None:
    from_csv, from_parquet = save_table(TABLE, tmp_path, "table", ("csv", "parquet"))
    text = pd.read_csv(from_csv, float_precision="round_trip", keep_default_na=False, na_values=[""])
    typed = pd.read_parquet(from_parquet)
    pd.testing.assert_frame_equal(text, typed, check_dtype=False, check_exact=True)
    assert typed["epoch s n"].tolist() == [3, 1, 0] and typed["epoch s max"][0] == 1 / 3
    assert typed["epoch s half_width"].isna().tolist() == [False, True, True]


def test_parquet_has_types_and_the_caption() -> None:
    table = arrow_of(TABLE)
    numbers, counts, texts = pa.float64(), pa.int64(), pa.string()
    assert table.schema.types == [texts, *[numbers] * 4, counts, numbers, texts, counts, counts, texts]
    assert table.schema.metadata == {b"heading": b"a sentence", b"caption": b"what it means"}
    assert table.column_names == csv_of(TABLE).splitlines()[0].split(",")


def test_json_has_a_mapping_for_several_runs_one_and_none() -> None:
    document = document_of(TABLE)
    assert json.loads(json.dumps(document, allow_nan=False)) == document, "JSON has no NaN"
    assert (document["heading"], document["caption"]) == ("a sentence", "what it means")
    assert document["columns"] == [*TABLE.header]
    rows = document["rows"]
    assert [row["epoch s"] for row in rows] == [
        {
            "mean": pytest.approx(MEAN, rel=1e-13),
            "half_width": pytest.approx(HALF, rel=1e-13),
            "min": 0.1,
            "max": 1 / 3,
            "n": 3,
        },
        {"mean": 1e-300, "half_width": None, "min": 1e-300, "max": 1e-300, "n": 1},
        {"mean": None, "half_width": None, "min": None, "max": None, "n": 0},
    ]
    assert [row["system"] for row in rows] == ["dgl", "a, b", "–"]
    assert [row["sent MB"] for row in rows] == [1 / 7, 0.0, None]
    assert [row["paper"] for row in rows] == [1024, None, 2.5], "texts that are all numbers are numbers"
    assert [row["runs"] for row in rows] == [
        {"finished": 3, "failed": 0, "verdict": None},
        {"finished": 1, "failed": 2, "verdict": "failed"},
        {"finished": 0, "failed": 3, "verdict": "OOM"},
    ]


def test_the_form_does_not_depend_on_how_many_runs_there_are() -> None:
    def forms(*values: float) -> tuple[str, object, pa.Schema]:
        table = ReportTable(("epoch s",), ((StatisticsCell(values),),), "")
        (row,) = document_of(table)["rows"]
        return csv_of(table).splitlines()[0], [*row["epoch s"]], arrow_of(table).schema

    assert forms() == forms(1.0) == forms(1.0, 2.0) == forms(*map(float, range(9)))


def test_every_format_is_saved_in_a_file_of_its_own(tmp_path: Path) -> None:
    suffixes = ("md", "csv", "tex", "parquet")
    files = save_table(TABLE, tmp_path / "new", "mine", suffixes)
    assert files == [tmp_path / "new" / f"mine.{suffix}" for suffix in suffixes] and set(suffixes) == set(FORMATS)
    assert sorted(files) == sorted((tmp_path / "new").iterdir()), "nothing next to them"
    assert files[0].read_text() == markdown_of(TABLE) and files[1].read_text() == csv_of(TABLE)
    assert "\\newcommand{\\newMineDglEpochS}{0.2111}" in files[2].read_text()
    before = [file.read_bytes() for file in files]
    save_table(TABLE, tmp_path / "new", "mine", suffixes)
    assert [file.read_bytes() for file in files] == before, "the same table is the same file"


@given(VALUES)
@example([0.1] * 3)
@example([1e100, -1e100])
def test_the_numbers_are_those_of_numpy_and_scipy(values: list[float]) -> None:
    table = ReportTable(("x",), ((StatisticsCell(tuple(values)),),), "")
    (row,) = document_of(table)["rows"]
    found = row["x"]
    assert [*found] == [*FIELDS] and found["n"] == len(values)
    nearly = 1e-13 * max(map(abs, values), default=0.0)
    if values:
        expected = (np.mean(values), np.min(values), np.max(values))
        assert (found["mean"], found["min"], found["max"]) == pytest.approx(expected, rel=1e-12, abs=nearly)
    else:
        assert found["mean"] is found["min"] is found["max"] is None
    if len(values) > 1:
        half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
        assert found["half_width"] == pytest.approx(half, rel=1e-9, abs=100 * nearly)
    else:
        assert found["half_width"] is None
    read = next(csv.DictReader(io.StringIO(csv_of(table))))
    arrow = arrow_of(table).to_pylist()[0]
    for field in FIELDS:
        assert arrow[f"x {field}"] == found[field]
        assert read[f"x {field}"] == ("" if found[field] is None else repr(found[field]))


@given(st.lists(VALUES, min_size=1, max_size=6))
def test_what_is_read_back_is_exact(rows: list[list[float]]) -> None:
    table = ReportTable(("x",), tuple((StatisticsCell(tuple(values)),) for values in rows), "")
    read = pd.read_csv(io.StringIO(csv_of(table)), float_precision="round_trip", dtype={"x n": "int64"})
    pd.testing.assert_frame_equal(read, arrow_of(table).to_pandas(), check_dtype=False, check_exact=True)


def test_a_name_of_digits_stays_a_name() -> None:
    table = ReportTable(("system", "workers"), (("007", "1"), ("8", "10")), "")
    rows = document_of(table)["rows"]
    assert rows == [{"system": "007", "workers": 1}, {"system": "8", "workers": 10}]
