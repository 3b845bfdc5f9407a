"""Vertices of a type without a table, and edges of one type: ids of ends become numbers of vertices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np

from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine
from gnnexp.datasets.tables.ids import MOST_GAPS, HeldTexts, Ids, IntegerIds, TextIds
from gnnexp.datasets.tables.places import WrongRow, refuse_rows
from gnnexp.datasets.tables.raw_edges import RawEdges
from gnnexp.datasets.tables.spool import Spool
from gnnexp.kernels.tables.numbers import mark

_ALWAYS = 1 << 20  # entries of an array over all ids that do not matter
_FIX = "correct the edges, add the vertex to its table, or set dataset.on_unknown=drop"


def number_edges(
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
    width = np.dtype(np.int32 if sum(end.count for end in ids.values()) < 2**31 else np.int64)
    shifts = [starts[kind] for kind in columns.types]
    if not any(shifts) and (spool := edges.numbered(ids, width)) is not None:
        return spool, 0
    dropped = 0
    with Spool(folder, f"numbered_{columns.name}", columns.dtypes(width), held_bytes) as spool:
        for chunk in edges.numbers(ids):
            known = (chunk[0] >= 0) & (chunk[1] >= 0)
            dropped += known.size - int(known.sum())
            rows = chunk if known.all() else [end[known] for end in chunk]
            ends = (np.add(end, shift, dtype=width) if shift else end for end, shift in zip(rows, shifts, strict=False))
            spool.append(*ends, *rows[2:])
    if dropped and not drop:
        refuse_rows(engine, columns.table, _unknown(edges, ids), dropped, _FIX)
    edges.remove()
    return spool, dropped


def _unknown(edges: RawEdges, ids: Mapping[str, Ids]) -> list[WrongRow]:
    """The first ends that are no vertex."""
    columns = edges.columns
    return [
        WrongRow(row, columns.ends[end][0], value, f"is no vertex of type {columns.types[end]}")
        for row, end, value in sorted(edges.unknown(ids), key=itemgetter(0, 1))[:MOST_SHOWN]
    ]


def named_by_edges(engine: Engine, kind: str, raw: Sequence[RawEdges], most_bytes: int, *, text: bool) -> Ids:
    """The ids of a type of vertices.

    Args:
        engine: what reads the tables.
        kind: the type.
        raw: edges of all tables.
        most_bytes: most bytes of different texts in memory; if there are more, they are in the engine.
        text: whether ids are texts.
    """
    raw = [edges for edges in raw if kind in edges.columns.types]
    if not text:
        return _integers(kind, raw)
    held = [edges.dictionaries[kind] for edges in raw if kind in edges.dictionaries]
    if len(held) == len(raw) and sum(edges.num_bytes for edges in held) <= most_bytes:
        return HeldTexts.of(held)
    return _texts(engine, kind, raw)


def _integers(kind: str, raw: Sequence[RawEdges]) -> IntegerIds:
    ends = [(one, end) for one in raw for end in (0, 1) if one.columns.types[end] == kind]
    spans = [one.span[end] for one, end in ends if one.span[end][0] <= one.span[end][1]]
    low, high = (min(span[0] for span in spans), max(span[1] for span in spans)) if spans else (0, -1)
    chunks = (ids for one, end in ends for ids in one.integers(end))
    return IntegerIds(_different(chunks, low, high, sum(one.num_rows for one, _ in ends)))


def _different(chunks: Iterable[np.ndarray], low: int, high: int, most: int) -> np.ndarray:
    """The different ids, ascending: from `low` to `high`, at most `most`."""
    if high - low + 1 <= MOST_GAPS * most + _ALWAYS:
        present = np.zeros(high - low + 1, np.bool_)
        for ids in chunks:
            mark(ids, low, present)
        return np.flatnonzero(present) + low
    different = np.empty(0, np.int64)
    for ids in chunks:
        different = np.union1d(different, ids)
    return different


def _texts(engine: Engine, kind: str, raw: Sequence[RawEdges]) -> TextIds:
    asked = " UNION ALL ".join(one.texts(engine, kind) for one in raw)
    # A window in the order of ids would have to be in memory; a sort may use the disk.
    kept = engine.keep(
        f"SELECT id, row_number() OVER () - 1 AS number FROM (SELECT id FROM ({asked}) GROUP BY id ORDER BY id)",
        raw[0].columns.table,
    )
    return TextIds(engine, kept, engine.count(kept))
