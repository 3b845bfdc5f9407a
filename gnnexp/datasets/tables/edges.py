"""Edges of one type: ends become numbers of vertices, in the order of the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine, Table, quoted, single
from gnnexp.datasets.tables.ids import Ids, IntegerIds, Lookup, TextIds, id_of
from gnnexp.datasets.tables.rows.moments import Moment
from gnnexp.datasets.tables.rows.places import WrongRow, refuse_rows
from gnnexp.datasets.tables.spool import Spool
from gnnexp.errors import Findings

ENDS = ("source", "destination")
RELATIONS = ("VARCHAR", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
             "UBIGINT")
_TWOENDS = "give each edge two ends"
_FIX = "correct the edges, add the vertex to its table, or set dataset.on_unknown=drop"


@dataclass(frozen=True)
class Relation:
    """A column of which each value is a type of edges.

    Attributes:
        column: the column.
        kind: name in SQL of a type that numbers its values.
        names: the values as texts, in the order of their numbers.
    """

    column: str
    kind: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class EdgeColumns:
    """A table of edges and the meaning of its columns.

    Attributes:
        name: name of the edge type.
        table: the table.
        source: column of the sources' ids.
        destination: column of the destinations' ids.
        types: types of the vertices at both ends.
        weight: column of weights, or None.
        relation: column of relations, or None.
        time: column of times, or None.
    """

    name: str
    table: Table
    source: str
    destination: str
    types: tuple[str, str]
    weight: str | None = None
    relation: Relation | None = None
    time: Moment | None = None

    @property
    def data(self) -> dict[str, EdgeData]:
        """What edges have besides their ends, by name."""
        found = {}
        if self.weight is not None:
            found["weight"] = EdgeData(self.weight, single(quoted(self.weight)), np.dtype(np.float32),
                                       "is no finite number", "give each edge a weight, or set dataset.weight=null")
        if self.relation is not None:
            code = f"enum_code({quoted(self.relation.column)}::VARCHAR::{self.relation.kind})::INTEGER"
            found["relation"] = EdgeData(self.relation.column, code, np.dtype(np.int32), "is missing",
                                         "give each edge a relation, or set dataset.relation=null")
        if self.time is not None:
            found["time"] = EdgeData(self.time.column, self.time.value, self.time.dtype, self.time.wrong,
                                     "give each edge a time, or set dataset.split=random")
        return found

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


@dataclass(frozen=True, eq=False)
class RawEdges:
    """Edges as the table has them, read once.

    Attributes:
        columns: the table.
        spool: columns `source` and `destination` as int64, if ids are integers, and what edges have besides; or None.
        rows: name in SQL of the rows, if ids are texts.
        span: smallest and largest id of each end, if ids are integers.
    """

    columns: EdgeColumns
    spool: Spool | None
    rows: str
    span: tuple[tuple[int, int], tuple[int, int]]


def read_integers(engine: Engine, columns: EdgeColumns, folder: Path) -> RawEdges:
    """Edges whose ids are integers, in one pass over the table.

    Raises:
        DataError: the table is damaged, or an id is missing. Names rows.
    """
    table = columns.table
    _refuse_data(engine, columns)
    asked = [id_of(table, name, text=False) for name in (columns.source, columns.destination)]
    asked += [one.value for one in columns.data.values()]
    wrong: list[WrongRow] = []
    spans, count = [], 0
    with Spool(folder, columns.name, _dtypes(columns, np.dtype(np.int64))) as spool:
        for batch in engine.batches(f"SELECT {', '.join(asked)} FROM {table.name}", table):
            for name, values in zip((columns.source, columns.destination), batch.columns, strict=False):
                rows = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)) if values.null_count else ()
                count += len(rows)
                wrong += [WrongRow(spool.num_rows + int(row), name, None, "is missing") for row in rows[:MOST_SHOWN]]
            arrays = [values.fill_null(0).to_numpy(zero_copy_only=False) for values in batch.columns]
            spool.append(*arrays)
            if batch.num_rows:
                spans.append([(int(ids.min()), int(ids.max())) for ids in arrays[:2]])
    refuse_rows(engine, table, sorted(wrong, key=itemgetter(0))[:MOST_SHOWN], count, _TWOENDS)
    lows, highs = (np.array(spans, np.int64).reshape(-1, 2, 2)[:, :, side] for side in (0, 1))
    span = tuple((int(lows[:, end].min()), int(highs[:, end].max())) if spans else (0, -1) for end in (0, 1))
    return RawEdges(columns, spool, "", (span[0], span[1]))


def _dtypes(columns: EdgeColumns, ids: np.dtype) -> dict[str, np.dtype]:
    """Data types of a spool: both ends, and what edges have besides."""
    return dict.fromkeys(ENDS, ids) | {name: one.dtype for name, one in columns.data.items()}


def read_texts(engine: Engine, columns: EdgeColumns) -> RawEdges:
    """Edges of which an end has texts as ids: the table's columns are kept by the engine.

    Raises:
        DataError: as `read_integers`.
    """
    table = columns.table
    _refuse_data(engine, columns)
    asked = [f"{id_of(table, name, text=True)} AS {end}"
             for end, name in zip(ENDS, (columns.source, columns.destination), strict=True)]
    asked += [f"{one.value} AS {name}" for name, one in columns.data.items()]
    rows = engine.keep(f"SELECT {', '.join(asked)}, row_number() OVER () - 1 AS number FROM {table.name}", table)
    missing = "source IS NULL OR destination IS NULL"
    wrong = engine.rows(f"SELECT number, source IS NULL FROM {rows} WHERE {missing} ORDER BY number LIMIT {MOST_SHOWN}",
                        table)
    refuse_rows(engine, table, [WrongRow(row, columns.source if first else columns.destination, None, "is missing")
                                for row, first in wrong], engine.count(rows, missing), _TWOENDS)
    return RawEdges(columns, None, rows, ((0, -1), (0, -1)))


def _refuse_data(engine: Engine, columns: EdgeColumns) -> None:
    """Refuse values that are missing or not finite.

    Raises:
        DataError: there are some. Names rows.
    """
    findings = Findings()
    for one in columns.data.values():
        finite = "" if one.dtype.kind == "i" else " OR NOT isfinite(value)"
        values = (f"(SELECT {one.value} AS value, row_number() OVER () - 1 AS number FROM {columns.table.name}) "
                  f"WHERE value IS NULL{finite}")
        count = engine.rows(f"SELECT count(*) FROM {values}", columns.table)[0][0]
        found = engine.rows(f"SELECT number, value FROM {values} ORDER BY number LIMIT {MOST_SHOWN}", columns.table)
        findings.attempt(refuse_rows, engine, columns.table,
                         [WrongRow(row, one.column, value, one.wrong) for row, value in found], count, one.fix)
    findings.raise_all()


def numbered(
    engine: Engine, edges: RawEdges, ids: Mapping[str, Ids], starts: Mapping[str, int], folder: Path, *, drop: bool,
) -> tuple[Spool, int]:
    """Edges between numbers of vertices, and how many edges were dropped.

    Args:
        engine: what reads the tables.
        edges: the edges.
        ids: ids of the vertices by type.
        starts: number of the first vertex of each type.
        folder: folder of the spool.
        drop: whether edges to unknown vertices are left out.

    Raises:
        DataError: an edge leads to an unknown vertex. Names rows.
    """
    columns = edges.columns
    width = np.dtype(np.int32 if sum(one.count for one in ids.values()) < 2**31 else np.int64)
    shifts = [starts[kind] for kind in columns.types]
    dropped = 0
    with Spool(folder, f"numbered_{columns.name}", _dtypes(columns, width)) as spool:
        for chunk in _numbers(engine, edges, [ids[kind] for kind in columns.types]):
            known = (chunk[0] >= 0) & (chunk[1] >= 0)
            dropped += known.size - int(known.sum())
            rows = chunk if known.all() else [one[known] for one in chunk]
            spool.append(*(one + shift for one, shift in zip(rows, shifts, strict=False)), *rows[2:])
    if dropped and not drop:
        first = _unknown(engine, edges, [ids[kind] for kind in columns.types])
        refuse_rows(engine, columns.table, first, dropped, _FIX)
    return spool, dropped


def _numbers(engine: Engine, edges: RawEdges, ids: Sequence[Ids]) -> Iterator[list[np.ndarray]]:
    """Chunks: numbers of both ends (-1 for unknown ids), and what edges have besides."""
    if edges.spool is not None:
        lookups = _lookups(ids)
        for chunk in edges.spool.chunks():
            yield [*(lookup.numbers(one) for lookup, one in zip(lookups, chunk, strict=False)), *chunk[2:]]
        return
    # Without weights, the order of edges does not matter, and is not kept: a sort would take most of the time.
    data = "".join(f", e.{name}" for name in edges.columns.data)
    order = "" if edges.columns.weight is None else " ORDER BY e.number"
    joined = f"SELECT coalesce(a.number, -1), coalesce(b.number, -1){data} FROM {_joined(edges, ids)}{order}"
    for batch in engine.batches(joined, edges.columns.table):
        yield [values.to_numpy(zero_copy_only=False) for values in batch.columns]


def _unknown(engine: Engine, edges: RawEdges, ids: Sequence[Ids]) -> list[WrongRow]:
    """The first ends that are no vertex."""
    columns, found = edges.columns, list[tuple[int, int, object]]()
    if edges.spool is None:
        rows = engine.rows("SELECT e.number, a.number IS NULL, e.source, b.number IS NULL, e.destination FROM "
                           f"{_joined(edges, ids)} WHERE a.number IS NULL OR b.number IS NULL "
                           f"ORDER BY e.number LIMIT {MOST_SHOWN}", columns.table)
        found = [(row[0], end, row[2 + 2 * end]) for row in rows for end in (0, 1) if row[1 + 2 * end]]
    else:
        lookups, row = _lookups(ids), 0
        for chunk in edges.spool.chunks(ENDS):
            for end, (lookup, values) in enumerate(zip(lookups, chunk, strict=True)):
                places = np.flatnonzero(lookup.numbers(values) < 0)[:MOST_SHOWN]
                found += [(row + int(place), end, int(values[place])) for place in places]
            row += chunk[0].size
            if len(found) >= MOST_SHOWN:
                break
    names = columns.source, columns.destination
    return [WrongRow(row, names[end], value, f"is no vertex of type {columns.types[end]}")
            for row, end, value in sorted(found, key=itemgetter(0, 1))[:MOST_SHOWN]]


def _lookups(ids: Sequence[Ids]) -> list[Lookup]:
    source, destination = ids
    assert isinstance(source, IntegerIds) and isinstance(destination, IntegerIds)
    first = source.lookup()
    return [first, first if destination is source else destination.lookup()]


def _joined(edges: RawEdges, ids: Sequence[Ids]) -> str:
    """The rows `e` with the numbers `a` of their sources and `b` of their destinations, in SQL."""
    source, destination = ids
    assert isinstance(source, TextIds) and isinstance(destination, TextIds)
    return (f"{edges.rows} e LEFT JOIN {source.table} a ON e.source = a.id "
            f"LEFT JOIN {destination.table} b ON e.destination = b.id")
