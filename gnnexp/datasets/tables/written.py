"""What the texts of a column stand for: integers, if each text is as its integer is printed; else texts, or numbers.

One exception: pandas writes integers as `1.0` if a cell of their column is empty. A column is written file by file.
So all of its values still count as integers if each file writes all of its own with `.0`, or none. This is said with a
count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gnnexp.datasets.tables.engine import Engine
from gnnexp.datasets.tables.scan import REAL, WHOLE, Points, SqlTable, literal, quoted
from gnnexp.errors import DataError, Problem
from gnnexp.kernels.tables.integers import integers_of

if TYPE_CHECKING:
    import pyarrow as pa

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_WIDE = ("HUGEINT", "UHUGEINT", "UBIGINT")
_NUMERIC = (*WHOLE, *REAL, "BOOLEAN", "DECIMAL")
_THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?|[-+]?[0-9]{1,3}(\.[0-9]{3})+(,[0-9]*)?")
_EXACT = 2**53  # larger whole numbers may be inexact as real numbers.
_INTEGER = "(0|-?[1-9][0-9]*)"


class NoIntegersError(Exception):
    """Ids look like integers in a sample of rows, and one is none.

    Args:
        kind: the type of vertices.
        text: the first such id.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind, self.text = kind, text


def with_points(engine: Engine, table: SqlTable, columns: Iterable[str], *, late: bool = False) -> SqlTable:
    """The same table, which knows of which columns the integers are written as `1.0` (`SqlTable.points`).

    Args:
        engine: what reads the table.
        table: the table.
        columns: columns that may have integers.
        late: also look at columns of which the sample has integers without `.0`: other rows may be written with it.
    """
    asked = [
        name
        for name in dict.fromkeys(columns)
        if name in table.looks and name not in table.points and (late or table.looks[name] in REAL)
    ]
    points_of_column = {name: points_of(engine, table, quoted(name)) for name in asked}
    points = {
        name: points_here
        for name, points_here in points_of_column.items()
        if points_here is not None and points_here.values
    }
    return replace(table, points={**table.points, **points}) if points else table


def points_of(engine: Engine, table: SqlTable, value: str) -> Points | None:
    """How many values end with `.0`, if all are integers of which each file writes all or none so; else None.

    Args:
        engine: what reads the table.
        table: a table of text or JSON.
        value: the texts, in SQL.
    """
    shapes = (_INTEGER, _INTEGER + fraction(table))
    counted = ", ".join(f"count(*) FILTER (regexp_full_match({value}, {literal(shape)}))" for shape in shapes)
    asked = f"count({value}), {counted}"
    if len(table.files.paths) > 1:
        files = [row[1:] for row in engine.by_file(table, asked)]
    else:
        files = engine.rows(f"SELECT {asked} FROM {table.name}", table)
    if any(every not in (plain, pointed) for every, plain, pointed in files):
        return None
    return Points(sum(row[2] for row in files), sum(row[2] > 0 for row in files))


def fraction(table: SqlTable) -> str:
    """The fraction of zero, as a pattern."""
    return f"[{table.decimal}]0"


def note_of(table: SqlTable, column: str, points: Points, what: str) -> str:
    """The note of integers that files write with a fraction of zero; `what` they are: ids, classes, …"""
    files = len(table.files.paths)
    said = "the file writes all of them" if files == 1 else f"{points.files} of {files} files write all of theirs"
    return f"{points.values:,} {what} of the column {column} count as integers: {said} with {table.decimal}0"


def text_sql(table: SqlTable, column: str) -> str:
    """The value of a column in SQL; an integer that is written with `.0` is without it."""
    return cut_sql(table, quoted(column)) if column in table.points else quoted(column)


def cut_sql(table: SqlTable, value: str) -> str:
    """A text without a fraction of zero, in SQL."""
    return f"(CASE WHEN ends_with({value}, {literal(f'{table.decimal}0')}) THEN left({value}, -2) ELSE {value} END)"


def integer_sql(value: str) -> str:
    """The integer that a text is, in SQL; NULL if the integer is printed in another way."""
    return f"(CASE WHEN TRY_CAST({value} AS BIGINT)::VARCHAR = {value} THEN TRY_CAST({value} AS BIGINT) END)"


def are_integers(engine: Engine, table: SqlTable, column: str) -> bool:
    """Whether the ids of a column are integers that fit in int64, as far as this is known without reading all rows.

    Real numbers are integers if they have no fractions. Whether a column of a text that looks like integers has some is
    only known when it is read.

    Raises:
        DataError: the column has values that are no ids.
    """
    if column in table.looks:
        return table.looks[column] in (*_INTEGERS, *_WIDE) or column in table.points
    kind, name = table.types[column], quoted(column)
    if kind in _WIDE:
        # JSON's integers are read so if some are negative
        least, most = engine.rows(f"SELECT min({name}), max({name}) FROM {table.name}", table)[0]
        return least is None or -(2**63) <= least <= most < 2**63
    if kind in _INTEGERS or kind == "VARCHAR" or kind.startswith("ENUM"):
        return kind in _INTEGERS
    fix = "write the ids as integers or texts"
    if kind not in REAL:
        raise DataError(Problem(f"{table.files.shown}, column {column}", kind, "ids are integers or texts", fix))
    real = f"real numbers must be whole, and at most {_EXACT} (2^53)"
    broken = engine.rows(
        f"SELECT {name} FROM {table.name} WHERE NOT isnan({name}) AND "
        f"({name} <> floor({name}) OR abs({name}) > {_EXACT}) LIMIT 1",
        table,
    )
    if broken:
        raise DataError(
            Problem(f"{table.files.shown}, column {column}", broken[0][0], f"ids are integers or texts: {real}", fix)
        )
    return True


def id_of(table: SqlTable, column: str, *, text: bool) -> str:
    """The id in a column, in SQL: a text, or BIGINT if the column has a type. What a file has as a text stays one."""
    name = quoted(column)
    if table.types[column] not in REAL:
        return name if column in table.looks else f"{name}::{'VARCHAR' if text else 'BIGINT'}"
    whole = f"TRY_CAST({name} AS BIGINT)"  # NULL for NaN
    return f"{whole}::VARCHAR" if text else whole


def integer_of(engine: Engine, table: SqlTable, column: str, kind: str) -> str:
    """The id of a type of vertices in SQL, as BIGINT; NULL if it is missing.

    Raises:
        NoIntegersError: an id is none.
    """
    if column not in table.looks:
        return id_of(table, column, text=False)
    wrong = first_other(engine, table, column)
    if wrong is not None:
        raise NoIntegersError(kind, wrong)
    return integer_sql(text_sql(table, column))


def first_other(engine: Engine, table: SqlTable, column: str) -> str | None:
    """The first text of a column that is no integer; None if all are some."""
    name = quoted(column)
    rows = engine.rows(
        f"SELECT {name} FROM {table.name} WHERE {name} IS NOT NULL AND "
        f"{integer_sql(text_sql(table, column))} IS NULL LIMIT 1",
        table,
    )
    return str(rows[0][0]) if rows else None


def integer_or_text(engine: Engine, table: SqlTable, column: str, *, points: bool) -> str:
    """An id or a class in SQL, which `as_written` made a text: an integer if all values of the column are some.

    A typed column stays as it is, but for whole real numbers. With `points`, integers may end with `.0`.
    """
    name = quoted(column)
    if table.types[column] in REAL:
        return f"(CASE WHEN {name} = floor({name}) THEN TRY_CAST({name} AS BIGINT) END)"
    if column not in table.looks or (not points and table.looks[column] in REAL):
        return name
    if first_other(engine, table, column) is None:
        return integer_sql(text_sql(table, column))
    known = with_points(engine, table, [column], late=True) if points else table
    return name if known is table else integer_or_text(engine, known, column, points=True)


def parsed(table: SqlTable, column: str, kind: str, values: pa.Array) -> np.ndarray:
    """`[n]` int64 integers of a batch of a column's texts, 0 for a missing one; ids of a type of vertices.

    Raises:
        NoIntegersError: a text is none.
    """
    texts = values.fill_null("0") if values.null_count else values
    integers, wrong = integers_of(*bytes_of(texts), ord(table.decimal) if column in table.points else 0)
    if wrong >= 0:
        raise NoIntegersError(kind, texts[wrong].as_py())
    return integers


def bytes_of(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of texts, and their bounds `[n + 1]` int64; a missing text counts as an empty one."""
    import pyarrow as pa

    texts = column.cast(pa.large_string())
    _, bounds, content = texts.buffers()
    offsets = np.frombuffer(bounds, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(content if content is not None and content.size else b"\0", np.uint8), offsets


def integers_in(texts: Sequence[str]) -> list[int] | None:
    """The integers that texts are, as they are printed; None if one is none."""
    found = [int(one) if re.fullmatch(r"0|-?[1-9][0-9]{0,999}", one) else None for one in texts]
    return [one for one in found if one is not None] if None not in found else None


def has_point(table: SqlTable, text: str) -> bool:
    """Whether a text is an integer with a fraction of zero."""
    return re.fullmatch(_INTEGER + fraction(table), text) is not None


def numeric(table: SqlTable, names: Sequence[str]) -> list[str]:
    """The columns that have numbers, or lists of numbers."""
    kinds = {name: re.sub(r"\[\d*\]$|\(.*\)$", "", table.look(name)) for name in names}
    return [name for name, kind in kinds.items() if kind in _NUMERIC]


def as_weights(reader: Engine, table: SqlTable, name: str) -> SqlTable:
    """The same table, with a column of weights as real numbers.

    Raises:
        DataError: the column has no numbers. Shows the first other value.
    """
    if name not in numeric(table, [name]) or table.is_list(name):
        raise DataError(no_numbers(reader, table, name, "set dataset.weight=null, or give numbers"))
    return reader.as_numbers(table, [name])


def no_numbers(reader: Engine, table: SqlTable, name: str, fix: str) -> Problem:
    """The problem of a column that should have numbers."""
    shown = table.types[name]
    if shown == "VARCHAR":
        column = quoted(name)
        first = reader.rows(
            f"SELECT {column} FROM {table.name} WHERE {column} IS NOT NULL AND "
            f"TRY_CAST({column} AS DOUBLE) IS NULL LIMIT 1",
            table,
        )
        shown = first[0][0][:60] if first else shown
        if first and _THOUSANDS.fullmatch(first[0][0]):
            fix = f"write numbers without signs between thousands, or {fix}"
    return Problem(f"{table.files.shown}, column {name}", shown, "is no column of numbers", fix)
