"""Looking up links: rows of ends, ascending by (end, type)."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import U_GOLDEN, mix64

_U = np.uint64
_1, _6, _32, _63 = _U(1), _U(6), _U(32), _U(63)


@compiled(nogil=True)
def holds(ends: np.ndarray, types: np.ndarray, start: int, stop: int, end: int, kind: int) -> bool:
    """Whether `start:stop` has `end` with type `kind`, or with any where `types` is empty.

    Branch-free halving: which half goes cannot be predicted.
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
    """The bit of `sieve` that a link of vertices below 2^32 sets."""
    return mix64((_U(owner) << _32 | _U(end)) + _U(kind) * U_GOLDEN) & _U(64 * sieve.size - 1)


@compiled(inline="always")
def may_hold(sieve: np.ndarray, owner: int, kind: int, end: int) -> bool:
    """False if the link is not there, in one read; true if it may be: most pairs need no search."""
    spot = _spot(owner, kind, end, sieve)
    return bool((sieve[spot >> _6] >> (spot & _63)) & _1)


@compiled(nogil=True)
def make_sieve(indptr: np.ndarray, ends: np.ndarray, types: np.ndarray) -> np.ndarray:
    """For `may_hold`: uint64, a power of two of them, with 8 to 16 bits per link, so that few others pass."""
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
def kept_edges(
    indptr: np.ndarray, sources: np.ndarray, types: np.ndarray, src_ids: np.ndarray, dst_ids: np.ndarray, loops: bool,
    gone_dst: np.ndarray, gone_src: np.ndarray, gone_types: np.ndarray, kept: np.ndarray, kept_indptr: np.ndarray,
) -> int:
    """Which edges of a block are not among those that shall go; types are compared where both sides have them.

    Args:
        indptr: `[D + 1]` of the block.
        sources: `[E]` positions in `src_ids`.
        types: `[E]`, or empty.
        src_ids: `[S]` original ids.
        dst_ids: `[D]` original ids.
        loops: whether the last edge of every destination is an added self loop, which stays.
        gone_dst: `[m]` ascending destinations of the edges that shall go.
        gone_src: `[m]` their sources, ascending within a destination.
        gone_types: `[m]` their types, ascending within a source, or empty.
        kept: `[E]` bool, filled.
        kept_indptr: `[D + 1]` int64, filled.

    Returns:
        How many stay.
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
            gone = low < high and edge != last and holds(
                gone_src, compared, low, high, src_ids[sources[edge]], kind
            )
            kept[edge] = not gone
            count += not gone
        kept_indptr[dst + 1] = count
    return int(count)


@compiled(nogil=True)
def count_above(
    scores: np.ndarray, own: np.ndarray, first: int, indptr: np.ndarray, ends: np.ndarray, types: np.ndarray,
    fixed: np.ndarray, relation: np.ndarray, above: np.ndarray, ties: np.ndarray,
) -> None:
    """Add how many candidates score above a link's own score, and how many the same, known links left out.

    What is not a number ties with everything: a model that has diverged is not taken for a perfect one.

    Args:
        scores: `[b, n]` of the vertices from `first` on.
        own: `[b]` score of each link.
        first: number of the first candidate.
        indptr: `[V + 1]` of the known links by the end that is kept.
        ends: `[m]` their other ends.
        types: `[m]` their relations, or empty.
        fixed: `[b]` the end that is kept.
        relation: `[b]`, or empty.
        above: `[b]` int64, added to.
        ties: `[b]` int64, added to.
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
    """Compile them for common types."""
    ids, wide, row, none = np.zeros(1, np.int32), np.zeros(1, np.int64), np.array([0, 1]), np.empty(0, np.int32)
    make_sieve(row, ids, none)
    for kinds in (ids, none):
        kept_edges(row, ids, kinds, ids, ids, False, wide, wide, kinds, np.zeros(1, np.bool_), row.copy())
    count_above(np.zeros((1, 1), np.float32), np.zeros(1, np.float32), 0, row, ids, none, wide, wide, wide, wide)
