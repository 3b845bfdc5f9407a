"""Where a row of a table is: its file, and its line in a text, or its row in a file of another format."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine
from gnnexp.datasets.tables.scan import Dialect, SqlTable
from gnnexp.errors import DataError, Problem

_LINES = (".jsonl", ".ndjson")
_CODECS = {"utf-8": "utf-8-sig", "utf-16": "utf-16", "latin-1": "latin-1"}
# To find a line takes a microsecond for each row before it. Beyond this row, only the row is named.
_MOST_ROWS = 1 << 25


class WrongRow(NamedTuple):
    """A row that is wrong.

    Attributes:
        row: number of the row in the table, from 0 on, over all files.
        column: the column.
        value: the wrong value.
        said: what is wrong.
    """

    row: int
    column: str
    value: object
    said: str


def refuse_rows(engine: Engine, table: SqlTable, first: Sequence[WrongRow], count: int, fix: str) -> None:
    """Refuse a table with wrong rows.

    Args:
        engine: what reads the table.
        table: the table.
        first: the first wrong rows, at most `MOST_SHOWN`.
        count: number of wrong rows.
        fix: the fix of all of them.

    Raises:
        DataError: there are some.
    """
    if not first:
        return
    place_of = places_of(engine, table, sorted({wrong_row.row for wrong_row in first}))
    problems = [
        Problem(f"{place_of[wrong_row.row]}, column {wrong_row.column}", wrong_row.value, wrong_row.said, fix)
        for wrong_row in first
    ]
    if count > len(first):
        problems.append(Problem(table.files.shown, f"{count} wrong rows", f"{len(first)} of them are shown", fix))
    raise DataError(problems)


def refuse_where(
    engine: Engine, table: SqlTable, column: str, rows: str, where: str, said: str, fix: str, value: str = "value"
) -> None:
    """Refuse a table if a condition holds for a row.

    Args:
        engine: what reads the table.
        table: the table.
        column: the column with the wrong value.
        rows: a table with the `number` of each row, or a query in brackets, in SQL.
        where: the condition in SQL.
        said: what is wrong.
        fix: the fix.
        value: the wrong value in SQL.

    Raises:
        DataError: the condition holds.
    """
    wrong = engine.rows(f"SELECT number, {value} FROM {rows} WHERE {where} ORDER BY number LIMIT {MOST_SHOWN}", table)
    if wrong:
        count = engine.rows(f"SELECT count(*) FROM {rows} WHERE {where}", table)[0][0]
        refuse_rows(engine, table, [WrongRow(row, column, shown, said) for row, shown in wrong], count, fix)


def places_of(engine: Engine, table: SqlTable, rows: Sequence[int]) -> dict[int, str]:
    """The place of each row: `FILE, line 17` in a text and in JSON lines, `FILE, row 16` in all other files.

    Lines and rows begin with 1. A row of a text that takes several lines has the number of its first line.

    Args:
        engine: what reads the table.
        table: the table.
        rows: numbers of rows in the table, from 0 on, ascending.
    """
    places: dict[int, str] = {}
    start = 0
    for path, count in engine.rows_by_file(table):
        inside = [row for row in rows if start <= row < start + count]
        lines = _lines(engine, table, path, [row - start for row in inside])
        for row, line in zip(inside, lines, strict=True):
            places[row] = f"{path}, row {row - start + 1}" if line is None else f"{path}, line {line}"
        start += count
    return places | {row: f"{table.files.shown}, row {row + 1}" for row in rows if row not in places}


def _lines(engine: Engine, table: SqlTable, path: Path, rows: list[int]) -> Iterable[int | None]:
    """The line of each row of a file, None where only the row is known. `rows` begin with 0 and ascend."""
    nothing = [None] * len(rows)
    if not rows or rows[-1] >= _MOST_ROWS:
        return nothing
    starts: Iterator[int]
    if table.files.format == "json" and any(ending in path.suffixes for ending in _LINES):
        starts = (number for number, line in enumerate(_open(path, "utf-8"), 1) if line.strip())
    elif table.files.format == "text":
        dialect = engine.dialect(table)
        starts = record_lines(_open(path, dialect.encoding), dialect)
    else:
        return nothing
    try:
        lines = dict(zip(rows, _picked(starts, rows), strict=False))
    except (csv.Error, UnicodeError):  # DuckDB accepts some texts that this reader does not
        return nothing
    return [lines.get(row) for row in rows]


def _picked(values: Iterator[int], places: Sequence[int]) -> Iterator[int]:
    """The values at ascending places."""
    before = -1
    for place in places:
        yield from islice(values, place - before - 1, place - before)
        before = place


def _open(path: Path, encoding: str) -> Iterator[str]:
    """The lines of a text, with their ends."""
    import pyarrow as pa

    stream = pa.input_stream(str(path), compression="detect", buffer_size=1 << 20)
    return io.TextIOWrapper(stream, encoding=_CODECS.get(encoding, encoding), newline="")


def record_lines(lines: Iterator[str], dialect: Dialect) -> Iterator[int]:
    """The number of the first line of each row, as DuckDB reads a text: without comments, empty lines and the header.

    Args:
        lines: lines with their ends.
        dialect: how DuckDB reads the text.
    """
    number, first, at_start = 0, 0, True

    def feed() -> Iterator[str]:
        nonlocal number, first, at_start
        for line in lines:
            number += 1
            if at_start:
                if (
                    number <= dialect.skipped
                    or not line.strip("\r\n")
                    or (dialect.comment and line.startswith(dialect.comment))
                ):
                    continue
                first, at_start = number, False
            yield line

    records = csv.reader(
        feed(),
        delimiter=dialect.delimiter,
        quotechar=dialect.quote or None,
        quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
    )
    for index, _ in enumerate(records):
        at_start = True
        if index or not dialect.header:
            yield first
