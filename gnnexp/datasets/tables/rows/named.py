"""Vertices of a type without a table: those that edges name, in ascending order of their ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gnnexp.datasets.tables.edges import ENDS
from gnnexp.datasets.tables.engine import Engine
from gnnexp.datasets.tables.ids import MOST_GAPS, HeldTexts, Ids, IntegerIds, TextIds, array_of
from gnnexp.datasets.tables.rows.raw_edges import RawEdges
from gnnexp.kernels.tables.numbers import mark

_ALWAYS = 1 << 20  # entries of an array over all ids that do not matter


def named_by_edges(engine: Engine, kind: str, raw: Sequence[RawEdges], most_bytes: int, *, text: bool) -> Ids:
    """The ids of a type of vertices.

    Args:
        engine: what reads the tables.
        kind: the type.
        raw: edges of all tables.
        most_bytes: most bytes of different texts in memory; if there are more, they are in the engine.
        text: whether ids are texts.
    """
    ends = [(one, end) for one in raw for end in (0, 1) if one.columns.types[end] == kind]
    if not text:
        return _integers(engine, ends)
    held = [*dict.fromkeys(one.texts[end] for one, end in ends)]
    known = [one for one in held if one is not None]
    if len(known) == len(held) and sum(one.num_bytes for one in known) <= most_bytes:
        return HeldTexts.of(known)
    return _texts(engine, ends)


def _integers(engine: Engine, ends: Sequence[tuple[RawEdges, int]]) -> IntegerIds:
    spans = [one.span[end] for one, end in ends if one.span[end][0] <= one.span[end][1]]
    low, high = (min(span[0] for span in spans), max(span[1] for span in spans)) if spans else (0, -1)
    most = sum(engine.count(one.rows) if one.spool is None else one.spool.num_rows for one, _ in ends)
    chunks = (ids for one, end in ends for ids in one.integers(engine, end))
    return IntegerIds(_different(chunks, low, high, most))


def _different(chunks: Iterable[np.ndarray], low: int, high: int, most: int) -> np.ndarray:
    """The different ids, ascending: from `low` to `high`, at most `most`."""
    if high - low + 1 <= MOST_GAPS * most + _ALWAYS:
        present = np.zeros(high - low + 1, np.bool_)
        for ids in chunks:
            mark(ids, low, present)
        return np.flatnonzero(present) + low
    found = np.empty(0, np.int64)
    for ids in chunks:
        found = np.union1d(found, ids)
    return found


def _texts(engine: Engine, ends: Sequence[tuple[RawEdges, int]]) -> TextIds:
    asked = []
    for one, end in ends:
        texts = one.texts[end]
        rows = f"{ENDS[end]} AS id FROM {one.rows}" if texts is None else f"id FROM {engine.texts(array_of(texts))}"
        asked.append(f"SELECT {rows}")
    # A window in the order of ids would have to be in memory; a sort may use the disk.
    kept = engine.keep(
        "SELECT id, row_number() OVER () - 1 AS number FROM (SELECT id FROM "
        f"({' UNION ALL '.join(asked)}) GROUP BY id ORDER BY id)",
        ends[0][0].columns.table,
    )
    return TextIds(engine, kept, engine.count(kept))
