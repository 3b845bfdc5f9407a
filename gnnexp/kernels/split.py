"""Online splitting of a sampled hop: one table look-up per edge (GSplit, sections 3 and 4), for one thread.

A vertex is either ours (its owner is this rank's part) or foreign. Ours have a place in the batch's local frontier,
which only grows from hop to hop; foreign ones have a place among the foreign sources of the hop at hand. One int32 map
serves both, as in `kernels.sample`: an entry is current if it is not below the base of the batch (ours) or of the hop
(foreign), so nothing is ever cleared.
"""

from __future__ import annotations

import numba
import numpy as np

from gnnexp.kernels.prefetch import prefetch

_U = np.uint64
_1, _AHEAD = _U(1), _U(64)


@numba.njit(nogil=True, cache=True)
def split_hop(
    found: np.ndarray, owner: np.ndarray, part: int, table: np.ndarray, base: int, hop_base: int,
    local: np.ndarray, num_local: int, foreign: np.ndarray, sources: np.ndarray,
) -> tuple[int, int]:
    """Tell local from foreign sources, and give each its place.

    Args:
        found: `[E]` source vertex of each edge.
        owner: `[V]` part of each vertex.
        part: ours.
        table: `[V]` int32 map.
        base: of the batch.
        hop_base: of the hop, at least `base`.
        local: the local frontier, with room for those that join it.
        num_local: how many there are.
        foreign: filled with the foreign sources, in order of first appearance.
        sources: `[E]` int32, filled with the place in `local`, or -1 - the place in `foreign`.

    Returns:
        Numbers of local and of foreign vertices.
    """
    num_foreign, last = np.int64(0), _U(found.size) - _1
    for edge in range(_U(found.size)):
        ahead = found[min(edge + _AHEAD, last)]
        prefetch(table, ahead)
        prefetch(owner, ahead)
        vertex = found[edge]
        entry = np.int64(table[_U(vertex)])
        if owner[_U(vertex)] == part:
            if entry < base:
                entry = base + num_local
                table[_U(vertex)] = entry
                local[_U(num_local)] = vertex
                num_local += 1
            sources[edge] = entry - base
        else:
            if entry < hop_base:
                entry = hop_base + num_foreign
                table[_U(vertex)] = entry
                foreign[_U(num_foreign)] = vertex
                num_foreign += 1
            sources[edge] = hop_base - entry - 1
    return int(num_local), int(num_foreign)


@numba.njit(nogil=True, cache=True)
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
    for i in range(foreign.size):
        counts[owner[_U(foreign[i])]] += 1
    starts = np.cumsum(counts) - counts
    for i in range(foreign.size):
        part = owner[_U(foreign[i])]
        places[i] = starts[part]
        grouped[_U(starts[part])] = foreign[i]
        starts[part] += 1


@numba.njit(nogil=True, cache=True)
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
    for i in range(wanted.size):
        vertex = _U(wanted[i])
        if table[vertex] < base:
            table[vertex] = base + num_local
            local[_U(num_local)] = wanted[i]
            num_local += 1
        rows[i] = table[vertex] - base
    return num_local


@numba.njit(nogil=True, cache=True)
def place_foreign(sources: np.ndarray, places: np.ndarray, num_local: int) -> int:
    """Turn -1 - k into `num_local + places[k]`, the row of a foreign source behind the local ones.

    Returns:
        How many edges have a foreign source: the cross edges.
    """
    crossing = np.int64(0)
    for edge in range(_U(sources.size)):
        if sources[edge] < 0:
            sources[edge] = num_local + places[_U(-1 - sources[edge])]
            crossing += 1
    return int(crossing)


@numba.njit(nogil=True, cache=True)
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
        split_hop(none, owner, 0, table, 1, 1, ids, 0, none, none)
        group_by_owner(none, owner, np.zeros(1, np.int64), none, none)
    join_frontier(none, table, 1, ids, 0, np.empty(0, np.int64))
    place_foreign(none, none, 0)
    for values in (none, np.empty(0, np.int64)):
        spread_rows(np.zeros(1, np.int64), indptr, values, indptr, values)
