"""Columns of a table of edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gnnexp.datasets.tables.engine import Engine
from gnnexp.datasets.tables.moments import TimeColumn
from gnnexp.datasets.tables.scan import SqlTable, quoted, single
from gnnexp.datasets.tables.written import has_point, integers_in, text_sql, with_points
from gnnexp.errors import DataError, Problem

ENDS = ("source", "destination")
RELATIONS = (
    "VARCHAR",
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
)
_MOST_RELATIONS = 1 << 16


@dataclass(frozen=True)
class Relation:
    """A column of which each value is a type of edges.

    Attributes:
        column: the column.
        text: its value as a text, in SQL.
        kind: name in SQL of a type that numbers its values.
        names: the values as texts, in the order of their numbers.
    """

    column: str
    text: str
    kind: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class EdgeColumns:
    """A table of edges and the meaning of its columns.

    Attributes:
        name: name of the edge type.
        table: the table, with ends and relations as a text's file writes them.
        source: column of the sources' ids.
        destination: column of the destinations' ids.
        types: types of the vertices at both ends.
        weight: column of weights, or None.
        relation: column of relations, or None.
        time: column of times, or None.
    """

    name: str
    table: SqlTable
    source: str
    destination: str
    types: tuple[str, str]
    weight: str | None = None
    relation: Relation | None = None
    time: TimeColumn | None = None

    @property
    def ends(self) -> list[tuple[str, str]]:
        """The columns of both ends, with the types of their vertices."""
        return list(zip((self.source, self.destination), self.types, strict=True))

    def with_points(self, reader: Engine, kind: str) -> EdgeColumns:
        """The same columns, which know of integers that files write as `1.0` where ends are of a type of vertices."""
        names = [name for name, one in self.ends if one == kind]
        return replace(self, table=with_points(reader, self.table, names, late=True))

    @property
    def data(self) -> dict[str, EdgeData]:
        """What edges have besides their ends, by name."""
        columns = {}
        if self.weight is not None:
            columns["weight"] = EdgeData(
                self.weight,
                single(quoted(self.weight)),
                np.dtype(np.float32),
                "is no finite number",
                "give each edge a weight, or set dataset.weight=null",
            )
        if self.relation is not None:
            code = f"enum_code({self.relation.text}::{self.relation.kind})::INTEGER"
            columns["relation"] = EdgeData(
                self.relation.column,
                code,
                np.dtype(np.int32),
                "is missing",
                "give each edge a relation, or set dataset.relation=null",
            )
        if self.time is not None:
            columns["time"] = EdgeData(
                self.time.column,
                self.time.value,
                self.time.dtype,
                self.time.wrong,
                "give each edge a time, or set dataset.split=random",
            )
        return columns

    @property
    def used(self) -> set[str]:
        """Columns that have a meaning."""
        return {self.source, self.destination, *(one.column for one in self.data.values())}

    def dtypes(self, ids: np.dtype) -> dict[str, np.dtype]:
        """Data types of a spool: of both ends, and of what edges have besides."""
        return dict.fromkeys(ENDS, ids) | {name: one.dtype for name, one in self.data.items()}

    @property
    def relations(self) -> list[str]:
        """The types of its edges."""
        return [self.name] if self.relation is None else list(self.relation.names)


class EdgeData(NamedTuple):
    """What edges have besides their ends.

    Attributes:
        column: the column.
        value: its value in SQL, a number.
        dtype: data type of the value.
        wrong: what is wrong with a value that is missing or not finite.
        fix: the fix.
    """

    column: str
    value: str
    dtype: np.dtype
    wrong: str
    fix: str


def relation_of(reader: Engine, table: SqlTable, name: str) -> tuple[SqlTable, Relation]:
    """The relations of a column, in the order of integers if all of them are some; and the table (`with_points`).

    Raises:
        DataError: there are too many.
    """
    value = text_sql(table, name)
    rows = reader.rows(
        f"SELECT DISTINCT {value} AS value, {value}::VARCHAR FROM {table.name} WHERE {value} IS NOT "
        f"NULL ORDER BY value LIMIT {_MOST_RELATIONS + 1}",
        table,
    )
    if len(rows) > _MOST_RELATIONS:
        raise DataError(
            Problem(
                f"{table.files.shown}, column {name}",
                f"more than {_MOST_RELATIONS:,} values",
                "each value would be a type of edges",
                "set dataset.relation=null",
            )
        )
    texts = [row[1] for row in rows]
    if name not in table.points and any(has_point(table, label) for label in texts):
        late = with_points(reader, table, [name], late=True)
        if name in late.points:
            return relation_of(reader, late, name)
    integers = integers_in(texts) if name in table.looks else None
    if integers is not None:
        texts = [text for _, text in sorted(zip(integers, texts, strict=True))]
    names = texts if integers is None else map(str, sorted(integers))
    return table, Relation(name, f"{value}::VARCHAR", reader.enum(texts or ("",)), tuple(names))
