"""Each destination takes the k in-neighbours with the smallest random numbers, and all see the same numbers (LABOR)."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import draw
from gnnexp.kernels.rows.rowkernel import RANGES_PER_THREAD, RowKernel, boundaries
from gnnexp.kernels.threads import kernel_threads

# Fewest edges to look at in a range: for fewer, waking a second thread costs more than it saves.
MIN_EDGES = 1 << 13


@compiled(nogil=True)
def _sift(words: np.ndarray, positions: np.ndarray, place: int, count: int) -> None:
    """Move the entry at `place` down until no entry below it is larger: by number, then by position."""
    word, position = words[place], positions[place]
    while 2 * place + 1 < count:
        child, right = 2 * place + 1, 2 * place + 2
        if right < count and (
            words[right] > words[child] or (words[right] == words[child] and positions[right] > positions[child])
        ):
            child = right
        if words[child] < word or (words[child] == word and positions[child] < position):
            break
        words[place], positions[place] = words[child], positions[child]
        place = child
    words[place], positions[place] = word, position


@compiled(nogil=True)
def _take_range(
    first: int,
    last: int,
    indices: np.ndarray,
    names: np.ndarray,
    starts: np.ndarray,
    seen: np.ndarray,
    indptr: np.ndarray,
    most: int,
    key: np.uint64,
    positions: np.ndarray,
) -> None:
    """`take_smallest` for the destinations `first` to `last - 1`: a heap of k entries with the largest one on top."""
    words = np.empty(most, np.uint64)
    for i in range(first, last):
        begin, degree = starts[i], seen[i + 1] - seen[i]
        taken = positions[indptr[i] : indptr[i + 1]]
        for place in range(taken.size):
            taken[place] = begin + place
        if taken.size == degree:
            continue
        for place in range(taken.size):
            source = np.int64(indices[begin + place])
            words[place] = draw(key, np.uint64(names[source] if names.size else source))
        for place in range(taken.size // 2 - 1, -1, -1):
            _sift(words, taken, place, taken.size)
        for position in range(begin + taken.size, begin + degree):
            source = np.int64(indices[position])
            word = draw(key, np.uint64(names[source] if names.size else source))
            if word < words[0]:  # of parallel edges, which have the same number, the first ones stay
                words[0], taken[0] = word, position
                _sift(words, taken, 0, taken.size)
        taken.sort()


_take_ranges = RowKernel(_take_range)


def take_smallest(
    indices: np.ndarray,
    names: np.ndarray,
    starts: np.ndarray,
    degrees: np.ndarray,
    indptr: np.ndarray,
    key: np.uint64,
    threads: int,
) -> np.ndarray:
    """Positions `[E]` int64 of the edges that destinations take, in the graph's order; the same for any `threads`.

    Args:
        indices: `[E']` sources of the graph's edges.
        names: `[V]` original ids, which the numbers depend on; empty: the ids are the original ones.
        starts, degrees: `[D]` int64 first edge and number of edges of every destination.
        indptr: `[D + 1]` int64 where the edges of every destination go; it takes all if it has no more.
        key: key of the stream of numbers; vertex u has the u-th number.
        threads: number of threads.
    """
    count = starts.size
    seen, positions = np.zeros(count + 1, np.int64), np.empty(int(indptr[-1]), np.int64)
    np.cumsum(degrees, out=seen[1:])
    parts = max(1, min(threads * RANGES_PER_THREAD, int(seen[-1]) // MIN_EDGES)) if threads > 1 else 1
    bounds = boundaries(seen, parts) if parts > 1 else np.array([0, count])
    most = int(np.diff(indptr).max(initial=0))
    with kernel_threads(threads):
        _take_ranges(bounds, indices, names, starts, seen, indptr, most, key, positions)
    return positions
