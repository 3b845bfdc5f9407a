"""Edges of one type: ends become numbers of vertices, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np

from gnnexp.datasets.tables.edges import ENDS
from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine
from gnnexp.datasets.tables.ids import HeldTexts, Ids, IntegerIds, Lookup, TextIds, array_of
from gnnexp.datasets.tables.rows.places import WrongRow, refuse_rows
from gnnexp.datasets.tables.rows.raw_edges import RawEdges
from gnnexp.datasets.tables.spool import Spool
from gnnexp.kernels.tables.texts import Dictionary

_FIX = "correct the edges, add the vertex to its table, or set dataset.on_unknown=drop"


def numbered(
    engine: Engine,
    edges: RawEdges,
    ids: Mapping[str, Ids],
    starts: Mapping[str, int],
    folder: Path,
    held_bytes: int,
    *,
    drop: bool,
) -> tuple[Spool, int]:
    """Edges between numbers of vertices, and how many edges were dropped.

    The spool is that of `edges` if all ids are the numbers of their vertices.

    Args:
        engine: what reads the tables.
        edges: the edges.
        ids: ids of the vertices by type.
        starts: number of the first vertex of each type.
        folder: folder of the spool.
        held_bytes: most bytes of edges in memory.
        drop: whether edges to unknown vertices are left out.

    Raises:
        DataError: an edge leads to an unknown vertex. Names rows.
    """
    columns = edges.columns
    width = np.dtype(np.int32 if sum(one.count for one in ids.values()) < 2**31 else np.int64)
    shifts = [starts[kind] for kind in columns.types]
    if (
        edges.spool is not None
        and edges.spool.dtypes["source"] == width
        and not any(shifts)
        and all(_are_numbers(ids[kind], span) for kind, span in zip(columns.types, edges.span, strict=True))
    ):
        return edges.spool, 0
    dropped = 0
    with Spool(folder, f"numbered_{columns.name}", columns.dtypes(width), held_bytes) as spool:
        for chunk in _numbers(engine, edges, [ids[kind] for kind in columns.types]):
            known = (chunk[0] >= 0) & (chunk[1] >= 0)
            dropped += known.size - int(known.sum())
            rows = chunk if known.all() else [one[known] for one in chunk]
            ends = (np.add(one, shift, dtype=width) if shift else one for one, shift in zip(rows, shifts, strict=False))
            spool.append(*ends, *rows[2:])
    if dropped and not drop:
        first = _unknown(engine, edges, [ids[kind] for kind in columns.types])
        refuse_rows(engine, columns.table, first, dropped, _FIX)
    return spool, dropped


def _are_numbers(ids: Ids, span: tuple[int, int]) -> bool:
    """Whether all ids from `span[0]` to `span[1]` are the numbers of their vertices."""
    return isinstance(ids, IntegerIds) and span[0] >= 0 and span[1] < ids.count and ids.are_numbers


def _numbers(engine: Engine, edges: RawEdges, ids: Sequence[Ids]) -> Iterator[list[np.ndarray]]:
    """Chunks: numbers of both ends (-1 for unknown ids), and what edges have besides."""
    if edges.spool is not None:
        finders = _finders(edges, ids)
        for chunk in edges.spool.chunks():
            yield [*(find(one) for find, one in zip(finders, chunk, strict=False)), *chunk[2:]]
        return
    # Without weights, the order of edges does not matter, and is not kept: a sort would take most of the time.
    data = "".join(f", e.{name}" for name in edges.columns.data)
    order = "" if edges.columns.weight is None else " ORDER BY e.number"
    joined = f"SELECT coalesce(a.number, -1), coalesce(b.number, -1){data} FROM {_joined(engine, edges, ids)}{order}"
    for batch in engine.batches(joined, edges.columns.table):
        yield [values.to_numpy(zero_copy_only=False) for values in batch.columns]


def _unknown(engine: Engine, edges: RawEdges, ids: Sequence[Ids]) -> list[WrongRow]:
    """The first ends that are no vertex."""
    columns, found = edges.columns, list[tuple[int, int, object]]()
    if edges.spool is None:
        rows = engine.rows(
            "SELECT e.number, a.number IS NULL, e.source, b.number IS NULL, e.destination FROM "
            f"{_joined(engine, edges, ids)} WHERE a.number IS NULL OR b.number IS NULL "
            f"ORDER BY e.number LIMIT {MOST_SHOWN}",
            columns.table,
        )
        found = [(row[0], end, row[2 + 2 * end]) for row in rows for end in (0, 1) if row[1 + 2 * end]]
    else:
        finders, row = _finders(edges, ids), 0
        for chunk in edges.spool.chunks(ENDS):
            for end, (find, values) in enumerate(zip(finders, chunk, strict=True)):
                places = np.flatnonzero(find(values) < 0)[:MOST_SHOWN]
                found += [(row + int(place), end, _value(edges, end, int(values[place]))) for place in places]
            row += chunk[0].size
            if len(found) >= MOST_SHOWN:
                break
    names = columns.source, columns.destination
    return [
        WrongRow(row, names[end], value, f"is no vertex of type {columns.types[end]}")
        for row, end, value in sorted(found, key=itemgetter(0, 1))[:MOST_SHOWN]
    ]


def _finders(edges: RawEdges, ids: Sequence[Ids]) -> list[Callable[[np.ndarray], np.ndarray]]:
    """For each end, what turns values of the spool into numbers of vertices, -1 for unknown ids."""
    source, destination = ids
    first = _lookup(source, edges.texts[0]).numbers
    same = destination is source and edges.texts[0] is edges.texts[1]
    return [first, first if same else _lookup(destination, edges.texts[1]).numbers]


def _lookup(ids: Ids, texts: Dictionary | None) -> Lookup:
    """What finds the number of each integer, or of each place in `texts`."""
    if texts is None:
        assert isinstance(ids, IntegerIds)
        return ids.lookup()
    found = ids.numbers if isinstance(ids, HeldTexts) and ids.known is texts else ids.named(array_of(texts))
    return Lookup(0, found.astype(np.int32 if ids.count < 2**31 else np.int64, copy=False), None, None)


def _value(edges: RawEdges, end: int, value: int) -> object:
    """The id that a value of the spool stands for."""
    texts = edges.texts[end]
    return value if texts is None else array_of(texts)[value].as_py()


def _joined(engine: Engine, edges: RawEdges, ids: Sequence[Ids]) -> str:
    """The rows `e` with the numbers `a` of their sources and `b` of their destinations, in SQL."""
    source, destination = (_table(engine, one) for one in ids)
    return f"{edges.rows} e LEFT JOIN {source} a ON e.source = a.id LEFT JOIN {destination} b ON e.destination = b.id"


def _table(engine: Engine, ids: Ids) -> str:
    """A table of the engine with each id and its number."""
    if isinstance(ids, TextIds):
        return ids.table
    assert isinstance(ids, IntegerIds)
    return engine.texts(ids.values)
