"""Words of SQL, as DuckDB reads it."""

from __future__ import annotations

from collections.abc import Mapping


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def struct(types: Mapping[str, str]) -> str:
    """Names of columns with their types, in SQL."""
    return "{" + ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in types.items()) + "}"
