"""A table for programs: CSV, JSON and Parquet have every field of every cell, in full precision.

A column of statistics over runs becomes five: `epoch s mean`, `epoch s half_width`, `epoch s min`, `epoch s max` and
`epoch s n`. In JSON it is a mapping of these. Its form does not depend on how many runs there are.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnexp.reports.tables.cells import ABSENT, TableCell, Value, fields_of, values_in
from gnnexp.reports.tables.table import ReportTable

if TYPE_CHECKING:
    import pyarrow as pa

# No number begins so: `007` is a name.
_NAME = re.compile(r"-?0\d")
_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?(e[+-]?\d+)?")


def csv_of(table: ReportTable) -> str:
    """The table as comma-separated values, the header first; an empty field where there is no value."""
    text = io.StringIO()
    names = [name for name, _, _ in _data_columns(table)]
    rows = zip(*(values for _, _, values in _data_columns(table)), strict=True)
    csv.writer(text, lineterminator="\n").writerows([names, *rows])
    return text.getvalue()


def document_of(table: ReportTable) -> dict[str, object]:
    """The table as values for JSON: a mapping per row. A column of texts that are all numbers has numbers."""
    columns = {name: _documents(column) for name, column in zip(table.header, table.columns, strict=True)}
    rows = [{name: values[place] for name, values in columns.items()} for place in range(len(table.rows))]
    return {"heading": table.heading, "columns": list(table.header), "rows": rows, "caption": table.caption}


def arrow_of(table: ReportTable) -> pa.Table:
    """The table as an Arrow table, with the columns of `csv_of`, typed, and the caption in its metadata."""
    import pyarrow as pa

    types = {str: pa.string(), float: pa.float64(), int: pa.int64()}
    columns = _data_columns(table)
    return pa.table(
        [pa.array(values, types[kind]) for _, kind, values in columns],
        schema=pa.schema(
            [(name, types[kind]) for name, kind, _ in columns],
            {"heading": table.heading, "caption": table.caption},
        ),
    )


def _data_columns(table: ReportTable) -> list[tuple[str, type, list[Value]]]:
    """Name, type and values of each column of data."""
    columns = []
    for header, column in zip(table.header, table.columns, strict=True):
        cells = values_in(column)
        columns += [
            (f"{header} {name}".strip(), kind, [cell[name] for cell in cells])
            for name, kind in fields_of(column).items()
        ]
    return columns


def _documents(column: Sequence[TableCell]) -> list[object]:
    texts = [cell for cell in column if isinstance(cell, str)]
    if len(texts) == len(column):
        return _json_cells(texts)
    return [cell[""] if list(cell) == [""] else cell for cell in values_in(column)]


def _json_cells(cells: Sequence[str]) -> list[object]:
    """The cells of a column; as numbers, with None for "–", if all of them are numbers."""
    if not all(cell == ABSENT or (_NUMBER.fullmatch(cell) and not _NAME.match(cell)) for cell in cells):
        return list(cells)
    return [None if cell == ABSENT else _number(cell.replace(",", "")) for cell in cells]


def _number(text: str) -> float | int:
    """A count stays whole: `2` workers are not 2.0."""
    return int(text) if text.lstrip("-").isdecimal() else float(text)
