"""Edges of one type: ends become numbers of vertices, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine, Table, quoted
from gnnexp.datasets.tables.ids import Ids, IntegerIds, TextIds, refuse_rows
from gnnexp.datasets.tables.spool import Spool
from gnnexp.errors import Findings
from gnnexp.kernels.tables.texts import Dictionary

if TYPE_CHECKING:
    import pyarrow as pa

_ENDS = ("source", "destination")
_NO_SPAN = ((0, -1), (0, -1))
_TWO_ENDS = "give each edge two ends"
_WEIGHTS = "give each edge a weight, or set dataset.weight=null"
_FIX = "correct the edges, add the vertex to its table, or set dataset.on_unknown=drop"


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
    """

    name: str
    table: Table
    source: str
    destination: str
    types: tuple[str, str]
    weight: str | None = None
    relation: str | None = None


@dataclass(frozen=True, eq=False)
class RawEdges:
    """Edges as the table has them, read once.

    Attributes:
        columns: the table.
        spool: columns `source` and `destination`, and `weight`: int64 ids, or places of ids in `texts`; or None.
        rows: name in SQL of the rows, if there is no spool.
        span: smallest and largest id of each end, if ids are integers.
        texts: the different texts of each end, if they fit in memory; or None.
    """

    columns: EdgeColumns
    spool: Spool | None
    rows: str
    span: tuple[tuple[int, int], tuple[int, int]]
    texts: tuple[pa.Array, pa.Array] | None = None


def read_integers(engine: Engine, columns: EdgeColumns, folder: Path) -> RawEdges:
    """Edges whose ids are integers, in one pass over the table.

    Raises:
        DataError: the table is damaged, or an id is missing. Names rows.
    """
    table = columns.table
    asked = ", ".join(f"{quoted(name)}::BIGINT" for name in (columns.source, columns.destination))
    asked += "" if columns.weight is None else f", {quoted(columns.weight)}::FLOAT"
    dtypes: dict[str, np.dtype] = {"source": np.dtype(np.int64), "destination": np.dtype(np.int64)}
    dtypes |= {} if columns.weight is None else {"weight": np.dtype(np.float32)}
    wrong, spans = _Wrong(columns), list[list[tuple[int, int]]]()
    with Spool(folder, columns.name, dtypes) as spool:
        for batch in engine.batches(f"SELECT {asked} FROM {table.name}", table):
            wrong.look(batch, spool.num_rows)
            arrays = [values.fill_null(0).to_numpy(zero_copy_only=False) for values in batch.columns]
            spool.append(*arrays)
            if batch.num_rows:
                spans.append([(int(ids.min()), int(ids.max())) for ids in arrays[:2]])
    wrong.refuse()
    lows, highs = (np.array(spans, np.int64).reshape(-1, 2, 2)[:, :, side] for side in (0, 1))
    span = tuple((int(lows[:, end].min()), int(highs[:, end].max())) if spans else (0, -1) for end in (0, 1))
    return RawEdges(columns, spool, "", (span[0], span[1]))


class _Wrong:
    """Collects rows without an id, or with a weight that is missing or not finite."""

    def __init__(self, columns: EdgeColumns) -> None:
        self._columns = columns
        self._counts = {_TWO_ENDS: 0, _WEIGHTS: 0}
        self._first: dict[str, list[tuple[int, str, object, str]]] = {_TWO_ENDS: [], _WEIGHTS: []}

    def look(self, batch: pa.RecordBatch, row: int) -> None:
        """Look at a batch whose first row is `row`."""
        for name, values in zip((self._columns.source, self._columns.destination), batch.columns, strict=False):
            rows = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)) if values.null_count else ()
            self._add(_TWO_ENDS, [(row + int(one), name, None, "is missing") for one in rows[:MOST_SHOWN]], len(rows))
        if self._columns.weight is not None:
            weights = batch.column(2).to_numpy(zero_copy_only=False)  # a missing number is NaN
            rows = np.flatnonzero(~np.isfinite(weights))
            self._add(_WEIGHTS, [(row + int(one), self._columns.weight, batch.column(2)[int(one)].as_py(),
                                  "is no finite number") for one in rows[:MOST_SHOWN]], len(rows))

    def _add(self, fix: str, first: list[tuple[int, str, object, str]], count: int) -> None:
        self._counts[fix] += count
        self._first[fix] += first

    def refuse(self) -> None:
        """Raise DataError if there are such rows."""
        findings = Findings()
        for fix, first in self._first.items():
            shown = sorted(first, key=itemgetter(0))[:MOST_SHOWN]
            findings.attempt(refuse_rows, self._columns.table, shown, self._counts[fix], fix)
        findings.raise_all()


def read_texts(engine: Engine, columns: EdgeColumns, folder: Path, most_bytes: int) -> RawEdges:
    """Edges of which an end has texts as ids: the different texts are in memory, or the engine keeps the columns.

    Args:
        engine: what reads the table.
        columns: the table.
        folder: folder of the spool.
        most_bytes: most bytes of different texts in memory.

    Raises:
        DataError: as `read_integers`.
    """
    return _in_memory(engine, columns, folder, most_bytes) or _kept(engine, columns)


def _in_memory(engine: Engine, columns: EdgeColumns, folder: Path, most_bytes: int) -> RawEdges | None:
    """The edges in one pass over the table; None if the different texts are too many."""
    first = Dictionary()
    ends = first, first if columns.types[0] == columns.types[1] else Dictionary()
    asked = ", ".join(f"{quoted(name)}::VARCHAR" for name in (columns.source, columns.destination))
    asked += "" if columns.weight is None else f", {quoted(columns.weight)}::FLOAT"
    dtypes: dict[str, np.dtype] = {"source": np.dtype(np.int32), "destination": np.dtype(np.int32)}
    dtypes |= {} if columns.weight is None else {"weight": np.dtype(np.float32)}
    wrong = _Wrong(columns)
    with Spool(folder, f"texts_{columns.name}", dtypes) as spool, \
            closing(engine.batches(f"SELECT {asked} FROM {columns.table.name}", columns.table)) as batches:
        for batch in filter(len, batches):
            wrong.look(batch, spool.num_rows)
            codes = [one.numbers(*_bytes_of(values)) for one, values in zip(ends, batch.columns, strict=False)]
            spool.append(*codes, *(values.fill_null(0).to_numpy(zero_copy_only=False) for values in batch.columns[2:]))
            if sum(one.num_bytes for one in {*ends}) > most_bytes:
                break
        else:
            wrong.refuse()
            texts = {one: _array_of(*one.texts()) for one in ends}
            return RawEdges(columns, spool, "", _NO_SPAN, (texts[ends[0]], texts[ends[1]]))
    spool.remove()
    return None


def _bytes_of(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of texts, and their bounds `[n + 1]`; a missing text counts as an empty one."""
    import pyarrow as pa

    texts = column.cast(pa.large_string())
    _, bounds, content = texts.buffers()
    offsets = np.frombuffer(bounds, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(content if content is not None and content.size else b"\0", np.uint8), offsets


def _array_of(data: np.ndarray, offsets: np.ndarray) -> pa.Array:
    import pyarrow as pa

    return pa.LargeStringArray.from_buffers(offsets.size - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def _kept(engine: Engine, columns: EdgeColumns) -> RawEdges:
    """The edges in a table of the engine, which may use the disk."""
    table = columns.table
    _refuse_weights(engine, columns)
    asked = [f"{quoted(columns.source)}::VARCHAR AS source", f"{quoted(columns.destination)}::VARCHAR AS destination"]
    asked += [] if columns.weight is None else [f"{quoted(columns.weight)}::FLOAT AS weight"]
    rows = engine.keep(f"SELECT {', '.join(asked)}, row_number() OVER () - 1 AS number FROM {table.name}", table)
    missing = "source IS NULL OR destination IS NULL"
    wrong = engine.rows(f"SELECT number, source IS NULL FROM {rows} WHERE {missing} ORDER BY number LIMIT {MOST_SHOWN}",
                        table)
    refuse_rows(table, [(row, columns.source if first else columns.destination, None, "is missing")
                        for row, first in wrong], engine.count(rows, missing), _TWO_ENDS)
    return RawEdges(columns, None, rows, _NO_SPAN)


def _refuse_weights(engine: Engine, columns: EdgeColumns) -> None:
    """Refuse weights that are missing or not finite.

    Raises:
        DataError: there are some. Names rows.
    """
    if columns.weight is None:
        return
    weights = (f"(SELECT {quoted(columns.weight)}::FLOAT AS weight, row_number() OVER () - 1 AS number "
               f"FROM {columns.table.name}) WHERE weight IS NULL OR NOT isfinite(weight)")
    count = engine.rows(f"SELECT count(*) FROM {weights}", columns.table)[0][0]
    found = engine.rows(f"SELECT number, weight FROM {weights} ORDER BY number LIMIT {MOST_SHOWN}", columns.table)
    refuse_rows(columns.table, [(row, str(columns.weight), weight, "is no finite number") for row, weight in found],
                count, _WEIGHTS)


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
    dtypes: dict[str, np.dtype] = {"source": width, "destination": width}
    dtypes |= {} if columns.weight is None else {"weight": np.dtype(np.float32)}
    dropped = 0
    with Spool(folder, f"numbered_{columns.name}", dtypes) as spool:
        for chunk in _numbers(engine, edges, [ids[kind] for kind in columns.types]):
            known = (chunk[0] >= 0) & (chunk[1] >= 0)
            dropped += known.size - int(known.sum())
            rows = chunk if known.all() else [one[known] for one in chunk]
            spool.append(*(one + shift for one, shift in zip(rows, shifts, strict=False)), *rows[2:])
    if dropped and not drop:
        refuse_rows(columns.table, _unknown(engine, edges, [ids[kind] for kind in columns.types]), dropped, _FIX)
    return spool, dropped


def _numbers(engine: Engine, edges: RawEdges, ids: Sequence[Ids]) -> Iterator[list[np.ndarray]]:
    """Chunks: numbers of both ends (-1 for unknown ids), and weights if there are any."""
    if edges.spool is not None:
        finders = _finders(engine, edges, ids)
        for chunk in edges.spool.chunks():
            yield [*(find(one) for find, one in zip(finders, chunk, strict=False)), *chunk[2:]]
        return
    # Without weights, the order of edges does not matter, and is not kept: a sort would take most of the time.
    weight, order = ("", "") if edges.columns.weight is None else (", e.weight", " ORDER BY e.number")
    joined = f"SELECT coalesce(a.number, -1), coalesce(b.number, -1){weight} FROM {_joined(edges, ids)}{order}"
    for batch in engine.batches(joined, edges.columns.table):
        yield [values.to_numpy(zero_copy_only=False) for values in batch.columns]


def _unknown(engine: Engine, edges: RawEdges, ids: Sequence[Ids]) -> list[tuple[int, str, object, str]]:
    """The first ends that are no vertex: row, column, id, and what is wrong."""
    columns, found = edges.columns, list[tuple[int, int, object]]()
    if edges.spool is None:
        rows = engine.rows("SELECT e.number, a.number IS NULL, e.source, b.number IS NULL, e.destination FROM "
                           f"{_joined(edges, ids)} WHERE a.number IS NULL OR b.number IS NULL "
                           f"ORDER BY e.number LIMIT {MOST_SHOWN}", columns.table)
        found = [(row[0], end, row[2 + 2 * end]) for row in rows for end in (0, 1) if row[1 + 2 * end]]
    else:
        finders, row = _finders(engine, edges, ids), 0
        for chunk in edges.spool.chunks(_ENDS):
            for end, (find, values) in enumerate(zip(finders, chunk, strict=True)):
                places = np.flatnonzero(find(values) < 0)[:MOST_SHOWN]
                found += [(row + int(place), end, _value(edges, end, int(values[place]))) for place in places]
            row += chunk[0].size
            if len(found) >= MOST_SHOWN:
                break
    names = columns.source, columns.destination
    return [(row, names[end], value, f"is no vertex of type {columns.types[end]}")
            for row, end, value in sorted(found, key=itemgetter(0, 1))[:MOST_SHOWN]]


def _finders(engine: Engine, edges: RawEdges, ids: Sequence[Ids]) -> list[Callable[[np.ndarray], np.ndarray]]:
    """For each end, what turns values of the spool into numbers of vertices, -1 for unknown ids."""
    source, destination = ids
    if edges.texts is None:
        assert isinstance(source, IntegerIds) and isinstance(destination, IntegerIds)
        first = source.lookup()
        return [first.numbers, first.numbers if destination is source else destination.lookup().numbers]
    found: list[np.ndarray] = []
    for one, texts in zip((source, destination), edges.texts, strict=True):
        assert isinstance(one, TextIds)
        same = bool(found) and texts is edges.texts[0] and one is source
        found.append(found[0] if same else engine.positions(texts, one.table))
    return [values.astype(np.int32 if one.count < 2**31 else np.int64).__getitem__
            for values, one in zip(found, ids, strict=True)]


def _value(edges: RawEdges, end: int, value: int) -> object:
    """The id that a value of the spool stands for."""
    return value if edges.texts is None else edges.texts[end][value].as_py()


def _joined(edges: RawEdges, ids: Sequence[Ids]) -> str:
    """The rows `e` with the numbers `a` of their sources and `b` of their destinations, in SQL."""
    source, destination = ids
    assert isinstance(source, TextIds) and isinstance(destination, TextIds)
    return (f"{edges.rows} e LEFT JOIN {source.table} a ON e.source = a.id "
            f"LEFT JOIN {destination.table} b ON e.destination = b.id")
