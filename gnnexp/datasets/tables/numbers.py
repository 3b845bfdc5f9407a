"""Columns of numbers in tables."""

from __future__ import annotations

import re

from gnnexp.datasets.tables.engine import WHOLE, Engine, Table
from gnnexp.datasets.tables.sql import quoted
from gnnexp.errors import DataError, Problem

REAL = ("FLOAT", "DOUBLE")
_NUMBERS = (*WHOLE, *REAL, "BOOLEAN", "DECIMAL")
_THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?|[-+]?[0-9]{1,3}(\.[0-9]{3})+(,[0-9]*)?")


def numeric(table: Table, names: list[str]) -> list[str]:
    """The columns that have numbers, or lists of numbers."""
    kinds = {name: re.sub(r"\[\d*\]$|\(.*\)$", "", table.look(name)) for name in names}
    return [name for name, kind in kinds.items() if kind in _NUMBERS]


def as_weights(reader: Engine, table: Table, name: str) -> Table:
    """The same table, with a column of weights as real numbers.

    Raises:
        DataError: the column has no numbers. Shows the first other value.
    """
    if name not in numeric(table, [name]) or table.types[name].endswith("]"):
        raise DataError(no_numbers(reader, table, name, "set dataset.weight=null, or give numbers"))
    return reader.as_numbers(table, [name])


def no_numbers(reader: Engine, table: Table, name: str, fix: str) -> Problem:
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
