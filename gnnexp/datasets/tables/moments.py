"""Columns of times: numbers, dates, and texts in the form of ISO 8601."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gnnexp.datasets.splits.times import Times
from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine
from gnnexp.datasets.tables.places import WrongRow, refuse_rows
from gnnexp.datasets.tables.scan import REAL, WHOLE, SqlTable, TextForm, quoted
from gnnexp.errors import DataError, Problem

_REAL = (*REAL, "DECIMAL")
_DATES = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE")
_DAYS = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
# Three numbers of which none has four digits at the beginning, so the form is not that of ISO 8601.
_THREE = r"^\s*(\d{1,2})\D(\d{1,2})\D(\d{4}|\d{2})(\D|$)"
_ISO = "2024-05-17, 2024-05-17T10:30:00, or with a time zone 2024-05-17T10:30:00+02:00"


@dataclass(frozen=True)
class TimeColumn:
    """A column of times.

    Attributes:
        column: the column.
        value: its value in SQL: the number, or microseconds since 1970 in UTC. NULL if it is missing or no time.
        dtype: data type of the value.
        dated: whether values are microseconds.
    """

    column: str
    value: str
    dtype: np.dtype
    dated: bool

    @property
    def wrong(self) -> str:
        """What is wrong with a value that is missing or not finite."""
        return f"is missing, or no date ({_ISO})" if self.dated else "is no finite number"


def with_fractions(engine: Engine, table: SqlTable, column: str | None) -> SqlTable:
    """The same table; a column of times is real if it has fractions anywhere. Integers may have 19 digits, and stay."""
    return table if column is None or not engine.has_fractions(table, column) else engine.as_numbers(table, [column])


def moment_of(table: SqlTable, column: str) -> TimeColumn:
    """How the times of a column are read. A date or a text without a time zone counts as UTC.

    Raises:
        DataError: the column has other values.
    """
    name, kind = quoted(column), table.kind(column)
    if kind in WHOLE:
        return TimeColumn(column, f"{name}::BIGINT", np.dtype(np.int64), dated=False)
    if kind in _REAL:
        return TimeColumn(column, f"{name}::DOUBLE", np.dtype(np.float64), dated=False)
    if kind == "VARCHAR":
        return TimeColumn(column, f"epoch_us(TRY_CAST({name} AS TIMESTAMP))", np.dtype(np.int64), dated=True)
    if kind in _DATES:
        plain = name if kind == "TIMESTAMP WITH TIME ZONE" else f"{name}::TIMESTAMP"
        return TimeColumn(
            column, f"(CASE WHEN isfinite({name}) THEN epoch_us({plain}) END)", np.dtype(np.int64), dated=True
        )
    raise DataError(
        Problem(
            f"{table.files.shown}, column {column}",
            table.types[column],
            "times must be numbers, dates, or texts in the form of ISO 8601",
            f"write them as {_ISO}",
        )
    )


def read_times(engine: Engine, table: SqlTable, moment: TimeColumn, among: np.ndarray) -> Times:
    """The times of the rows `among` `[n]` bool. Those of other rows may be missing.

    Raises:
        DataError: a time is missing, or is none. Names rows.
    """
    rows = engine.rows(
        f"SELECT row FROM (SELECT {moment.value} AS value, row_number() OVER () - 1 AS row FROM "
        f"{table.name}) WHERE value IS NULL OR NOT isfinite(value::DOUBLE)",
        table,
    )
    wrong = [row for (row,) in rows if among[row]]
    refuse_rows(
        engine,
        table,
        [WrongRow(row, moment.column, None, moment.wrong) for row in wrong[:MOST_SHOWN]],
        len(wrong),
        "give each vertex with a label a time, or set dataset.split=random",
    )
    values = engine.array(f"SELECT coalesce({moment.value}, 0) FROM {table.name}", table, moment.dtype)
    return Times(values[among], moment.column, moment.dated)


def check_days(engine: Engine, table: SqlTable, column: str, form: TextForm) -> None:
    """Refuse a column of days that can be read in more than one way. DuckDB would take one without a word.

    Args:
        engine: what reads the table.
        table: the table.
        column: the column of times.
        form: how text is read.

    Raises:
        DataError: the days have more than one meaning.
    """
    kind = table.kind(column)
    if table.files.format != "text" or kind not in _DAYS:
        return
    texts = engine.table(table.files, form, as_text=[column])
    first = engine.rows(f"SELECT {quoted(column)} FROM {texts.name} WHERE {quoted(column)} IS NOT NULL LIMIT 1", texts)
    if not first or re.match(_THREE, str(first[0][0])) is None:  # all days of a column have one form
        return
    parts = ", ".join(
        f"try_cast(regexp_extract({quoted(column)}, '{_THREE}', {number}) AS INTEGER) AS {name}"
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
                f"may be {' or '.join(possible)}: the values do not decide which",
                "write days as 2024-05-17",
            )
        )
