"""Days in texts whose order of day, month and year no value tells: 05/11/2024 is in May or in November."""

from __future__ import annotations

import re

from gnnexp.datasets.tables.engine import Engine, Table
from gnnexp.datasets.tables.scan import TextForm
from gnnexp.datasets.tables.sql import quoted
from gnnexp.errors import DataError, Problem

_DATED = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
# Three numbers of which none has four digits at the beginning, so the form is not that of ISO 8601.
_NUMBERS = r"^\s*(\d{1,2})\D(\d{1,2})\D(\d{4}|\d{2})(\D|$)"


def check_days(engine: Engine, table: Table, column: str, form: TextForm) -> None:
    """Refuse a column of days that can be read in more than one way. DuckDB would take one without a word.

    Args:
        engine: what reads the table.
        table: the table.
        column: the column of times.
        form: how text is read.

    Raises:
        DataError: the days have more than one meaning.
    """
    kind = re.sub(r"\(.*\)$", "", table.types[column])
    if table.files.format != "text" or kind not in _DATED:
        return
    texts = engine.table(table.files, form, as_text=[column])
    first = engine.rows(f"SELECT {quoted(column)} FROM {texts.name} WHERE {quoted(column)} IS NOT NULL LIMIT 1", texts)
    if not first or re.match(_NUMBERS, str(first[0][0])) is None:  # all days of a column have one form
        return
    parts = ", ".join(
        f"try_cast(regexp_extract({quoted(column)}, '{_NUMBERS}', {number}) AS INTEGER) AS {name}"
        for number, name in enumerate("abc", 1)
    )
    [(a, b, c, equal)] = engine.rows(
        f"SELECT max(a), max(b), max(c), bool_and(a = b AND (c > 99 OR a = c)) FROM (SELECT {parts} FROM {texts.name})",
        texts,
    )
    readings = {
        "day, month, year": a <= 31 and b <= 12,
        "month, day, year": a <= 12 and b <= 31,
        "year, month, day": c <= 31 and b <= 12,
    }
    possible = [name for name, fits in readings.items() if fits]
    if len(possible) > 1 and not equal:
        raise DataError(
            Problem(
                f"{table.files.shown}, column {column}",
                str(first[0][0]),
                f"may be {' or '.join(possible)}: no value tells which",
                "write days as 2024-05-17",
            )
        )
