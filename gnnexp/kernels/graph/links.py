"""Look up links in rows that hold the other end of each link, ascending by (end, type)."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import U_GOLDEN, mix64

_U = np.uint64
_1, _6, _32, _63 = _U(1), _U(6), _U(32), _U(63)


@compiled(nogil=True)
def holds(ends: np.ndarray, types: np.ndarray, start: int, stop: int, end: int, kind: int) -> bool:
    """Whether `ends[start:stop]` contains `end` with type `kind`; if `types` is empty, with any type.

    A binary search without branches: a branch predictor cannot predict which half is dropped.
    """
    low, length = np.int64(start), np.int64(stop - start)
    while length > 1:
        half = length >> 1
        below = ends[low + half - 1] < end
        if types.size > 0:
            below |= (ends[low + half - 1] == end) & (types[low + half - 1] < kind)
        low += half * below
        length -= half
    if length == 1 and (ends[low] < end or (types.size > 0 and ends[low] == end and types[low] < kind)):
        low += 1
    return bool(low < stop and ends[low] == end and (types.size == 0 or types[low] == kind))


@compiled(inline="always")
def _spot(owner: int, kind: int, end: int, sieve: np.ndarray) -> np.uint64:
    """The bit of `sieve` that a link sets; vertex ids are below 2^32."""
    return mix64((_U(owner) << _32 | _U(end)) + _U(kind) * U_GOLDEN) & _U(64 * sieve.size - 1)


@compiled(inline="always")
def may_hold(sieve: np.ndarray, owner: int, kind: int, end: int) -> bool:
    """False if the link does not exist, True if it may exist. One read, so most pairs need no search."""
    spot = _spot(owner, kind, end, sieve)
    return bool((sieve[spot >> _6] >> (spot & _63)) & _1)


@compiled(nogil=True)
def make_sieve(indptr: np.ndarray, ends: np.ndarray, types: np.ndarray) -> np.ndarray:
    """The sieve for `may_hold`: uint64 words, their number a power of two.

    It has 8 to 16 bits per link, so few pairs that are no links pass.
    """
    size = 1
    while 64 * size < 8 * ends.size:
        size *= 2
    sieve = np.zeros(size, np.uint64)
    for owner in range(indptr.size - 1):
        for place in range(indptr[owner], indptr[owner + 1]):
            spot = _spot(owner, types[place] if types.size else 0, ends[place], sieve)
            sieve[spot >> _6] |= _1 << (spot & _63)
    return sieve


@compiled(nogil=True)
def mark_kept_edges(
    indptr: np.ndarray,
    sources: np.ndarray,
    types: np.ndarray,
    src_ids: np.ndarray,
    dst_ids: np.ndarray,
    loops: bool,
    gone_dst: np.ndarray,
    gone_src: np.ndarray,
    gone_types: np.ndarray,
    kept: np.ndarray,
    kept_indptr: np.ndarray,
) -> int:
    """Mark the edges of a block that stay after some edges are removed; types count if both sides have them.

    Args:
        indptr: `[D + 1]` bounds of each destination's edges in the block.
        sources: `[E]` positions in `src_ids`.
        types: `[E]` types of the block's edges, or empty.
        src_ids: `[S]` original ids of the sources.
        dst_ids: `[D]` original ids of the destinations.
        loops: whether the last edge of every destination is an added self loop, which stays.
        gone_dst: `[m]` destinations of the edges to remove, ascending.
        gone_src: `[m]` sources of the edges to remove, ascending within a destination.
        gone_types: `[m]` types of the edges to remove, ascending within a source, or empty.
        kept: `[E]` bool, filled: whether the edge stays.
        kept_indptr: `[D + 1]` int64, filled: bounds of each destination's remaining edges.

    Returns:
        Number of edges that stay.
    """
    compared = gone_types if types.size else gone_types[:0]
    count = 0
    kept_indptr[0] = 0
    for dst in range(dst_ids.size):
        low = np.searchsorted(gone_dst, dst_ids[dst], side="left")
        high = np.searchsorted(gone_dst, dst_ids[dst], side="right")
        last = indptr[dst + 1] - 1 if loops else -1
        for edge in range(indptr[dst], indptr[dst + 1]):
            kind = types[edge] if types.size else 0
            gone = low < high and edge != last and holds(gone_src, compared, low, high, src_ids[sources[edge]], kind)
            kept[edge] = not gone
            count += not gone
        kept_indptr[dst + 1] = count
    return int(count)


@compiled(nogil=True)
def count_above(
    scores: np.ndarray,
    own: np.ndarray,
    first: int,
    indptr: np.ndarray,
    ends: np.ndarray,
    types: np.ndarray,
    fixed: np.ndarray,
    relation: np.ndarray,
    above: np.ndarray,
    ties: np.ndarray,
) -> None:
    """For each link, count the candidates with a higher score and those with the same score, without known links.

    A candidate replaces one end of the link. NaN ties with every score, so a diverged model does not rank as perfect.

    Args:
        scores: `[b, n]` scores of the candidates `first` to `first + n - 1`.
        own: `[b]` score of each link.
        first: vertex id of the first candidate.
        indptr: `[V + 1]` bounds of the known links of each vertex, by the end that is not replaced.
        ends: `[m]` other ends of the known links.
        types: `[m]` relations of the known links, or empty.
        fixed: `[b]` the end of each link that is not replaced.
        relation: `[b]` relation of each link, or empty.
        above: `[b]` int64, increased by the number of candidates with a higher score.
        ties: `[b]` int64, increased by the number of candidates with the same score.
    """
    for i in range(own.size):
        mine, row = own[i], scores[i]
        higher, lower = np.int64(0), np.int64(0)
        for j in range(row.size):
            higher += row[j] > mine
            lower += row[j] < mine
        same = row.size - higher - lower
        for edge in range(indptr[fixed[i]], indptr[fixed[i] + 1]):
            place = np.int64(ends[edge]) - first
            if 0 <= place < row.size and (types.size == 0 or types[edge] == relation[i]):
                higher -= row[place] > mine
                same -= not (row[place] > mine or row[place] < mine)
        above[i] += higher
        ties[i] += same


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    ids, wide, row, none = np.zeros(1, np.int32), np.zeros(1, np.int64), np.array([0, 1]), np.empty(0, np.int32)
    make_sieve(row, ids, none)
    for kinds in (ids, none):
        mark_kept_edges(row, ids, kinds, ids, ids, False, wide, wide, kinds, np.zeros(1, np.bool_), row.copy())
    count_above(np.zeros((1, 1), np.float32), np.zeros(1, np.float32), 0, row, ids, none, wide, wide, wide, wide)
