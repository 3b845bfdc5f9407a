"""Online splitting of a sampled hop: one table look-up per edge (GSplit, sections 3 and 4), for one thread.

A vertex is either ours (its owner is this rank's part) or foreign. Ours have a place in the batch's local frontier,
which only grows from hop to hop; foreign ones have a place among the foreign sources of the hop at hand. One int32 map
serves both, as in `kernels.sample`: an entry is current if it is not below the base of the batch (ours) or of the hop
(foreign), so nothing is ever cleared. Its sign says whose the vertex is: foreign entries are kept as -1 - entry, which
makes the map the owner table too (one look-up per edge instead of two: 5 against 8 ns).
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.prefetch import prefetch

_U = np.uint64
_1, _AHEAD = _U(1), _U(64)


@compiled(nogil=True)
def split_table(owner: np.ndarray, part: int) -> np.ndarray:
    """`[V]` int32, the map of `split_hop` before the first batch: 0 for the vertices of `part`, -1 for all others."""
    table = np.empty(owner.size, np.int32)
    for vertex in range(owner.size):
        table[vertex] = 0 if owner[vertex] == part else -1
    return table


@compiled(nogil=True)
def split_hop(
    found: np.ndarray, table: np.ndarray, base: int, hop_base: int,
    room: np.ndarray, num_local: int, first_foreign: int, sources: np.ndarray,
) -> tuple[int, int]:
    """Tell local from foreign sources, and give each its place.

    Branch-free: whether a source is ours, and whether it is new, cannot be predicted.

    Args:
        found: `[E]` source vertex of each edge.
        table: `[V]` int32 map, of `split_table` at first.
        base: of the batch, at least 1.
        hop_base: of the hop, at least `base`.
        room: the local frontier, with room for those that join it and one more; the foreign sources, in order of first
            appearance, are written from `first_foreign` on, with room for E + 1.
        num_local: how many local vertices there are.
        first_foreign: see `room`.
        sources: `[E]` int32, filled with the place in the local frontier, or -1 - the place among the foreign sources.

    Returns:
        Numbers of local and of foreign vertices.
    """
    last = _U(found.size) - _1
    start, shift, behind = np.int64(base), np.int64(hop_base) - np.int64(base), np.int64(first_foreign)
    local, foreign = np.int64(num_local), np.int64(0)
    for edge in range(_U(found.size)):
        prefetch(table, found[min(edge + _AHEAD, last)])
        vertex = found[edge]
        entry = np.int64(table[_U(vertex)])
        away = entry >> 63  # -1 if foreign, else 0
        offset = start + (shift & away)
        known = local ^ ((local ^ foreign) & away)
        position = (entry ^ away) - offset
        new = position >> 63  # -1 if the entry is older than this batch (or hop), else 0
        position ^= (position ^ known) & new
        table[_U(vertex)] = (offset + position) ^ away
        room[_U(known + (behind & away))] = vertex
        local -= new & ~away
        foreign -= new & away
        sources[edge] = position ^ away
    return int(local), int(foreign)


@compiled(nogil=True)
def group_by_owner(
    foreign: np.ndarray, owner: np.ndarray, counts: np.ndarray, grouped: np.ndarray, places: np.ndarray
) -> None:
    """Sort foreign vertices by owner, keeping their order.

    Args:
        foreign: `[n]` vertices.
        owner: `[V]` part of each vertex.
        counts: `[P]` int64 zeros, filled with the number of vertices of each owner.
        grouped: `[n]` filled with the vertices, those of part 0 first.
        places: `[n]` int32, filled with where each went.
    """
    last = _U(foreign.size) - _1
    for i in range(_U(foreign.size)):
        prefetch(owner, foreign[min(i + _AHEAD, last)])
        places[i] = owner[_U(foreign[i])]  # for the second pass: looked up once
        counts[places[i]] += 1
    starts = np.cumsum(counts) - counts
    for i in range(_U(foreign.size)):
        part = places[i]
        places[i] = starts[part]
        grouped[_U(starts[part])] = foreign[i]
        starts[part] += 1


@compiled(nogil=True)
def join_frontier(
    wanted: np.ndarray, table: np.ndarray, base: int, local: np.ndarray, num_local: int, rows: np.ndarray
) -> int:
    """Vertices that others drew from us join the local frontier, those that are not there yet.

    Args:
        wanted: `[n]` our vertices, as received.
        table: `[V]` int32 map.
        base: of the batch.
        local: the local frontier, with room.
        num_local: how many there are.
        rows: `[n]` int64, filled with the place of each in `local`.

    Returns:
        The new number of local vertices.
    """
    last = _U(wanted.size) - _1
    for i in range(_U(wanted.size)):
        prefetch(table, wanted[min(i + _AHEAD, last)])
        vertex = _U(wanted[i])
        if table[vertex] < base:
            table[vertex] = base + num_local
            local[_U(num_local)] = wanted[i]
            num_local += 1
        rows[i] = table[vertex] - base
    return num_local


@compiled(nogil=True)
def place_foreign(sources: np.ndarray, places: np.ndarray, num_local: int) -> int:
    """Turn -1 - k into `num_local + places[k]`, the row of a foreign source behind the local ones.

    Returns:
        How many edges have a foreign source: the cross edges.
    """
    if places.size == 0:
        return 0
    crossing, behind = np.int64(0), np.int64(num_local)
    for edge in range(_U(sources.size)):
        source = np.int64(sources[edge])
        away = source >> 63  # -1 if foreign
        moved = behind + places[_U((-1 - source) & away)]
        sources[edge] = source ^ ((source ^ moved) & away)
        crossing -= away
    return int(crossing)


@compiled(nogil=True)
def spread_rows(
    order: np.ndarray, indptr: np.ndarray, values: np.ndarray, out_indptr: np.ndarray, out: np.ndarray
) -> None:
    """Rows of values put into another order: row i becomes row `order[i]`.

    Args:
        order: `[n]` a permutation.
        indptr: `[n + 1]` of the rows.
        values: `[m]`.
        out_indptr: `[n + 1]` of the permuted rows.
        out: `[m]` filled.
    """
    for i in range(order.size):
        start, target = indptr[i], out_indptr[order[i]]
        for j in range(indptr[i + 1] - start):
            out[target + j] = values[start + j]


def warm_up() -> None:
    """Compile all of it for common types."""
    ids, none, table = np.zeros(1, np.int32), np.empty(0, np.int32), np.zeros(2, np.int32)
    indptr = np.zeros(2, np.int64)
    for kind in (np.int16, np.int32):
        owner = np.zeros(2, kind)
        group_by_owner(none, owner, np.zeros(1, np.int64), none, none)
        split_table(owner, 0)
    split_hop(none, table, 1, 1, ids, 0, 0, none)
    join_frontier(none, table, 1, ids, 0, np.empty(0, np.int64))
    place_foreign(none, none, 0)
    for values in (none, np.empty(0, np.int64)):
        spread_rows(np.zeros(1, np.int64), indptr, values, indptr, values)
