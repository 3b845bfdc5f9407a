"""Look integers up in an array over all numbers between the smallest and the largest."""

from __future__ import annotations

import numba
import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.prefetch import prefetch

_AHEAD = 32


def look_up(ids: np.ndarray, low: int, table: np.ndarray, out: np.ndarray) -> None:
    """`out[i] = table[ids[i] - low]`, and -1 where that is outside of the table; `ids` int32 or int64."""
    _look_up(numba.get_num_threads(), ids, low, table, out)


def mark(ids: np.ndarray, low: int, present: np.ndarray) -> None:
    """`present[ids[i] - low] = True`; all threads write the same value."""
    _mark(numba.get_num_threads(), ids, low, present)


@compiled(nogil=True, parallel=True)
def _look_up(parts: int, ids: np.ndarray, low: int, table: np.ndarray, out: np.ndarray) -> None:
    size, base, last = np.uint64(table.size), np.uint64(low), ids.size - 1
    for part in numba.prange(parts):
        for place in range(ids.size * part // parts, ids.size * (part + 1) // parts):
            prefetch(table, np.uint64(np.int64(ids[min(place + _AHEAD, last)])) - base)
            # The difference of two int64 may wrap around. As an unsigned number it is then too large, as it should be.
            offset = np.uint64(np.int64(ids[place])) - base
            out[place] = table[offset] if offset < size else -1


@compiled(nogil=True, parallel=True)
def _mark(parts: int, ids: np.ndarray, low: int, present: np.ndarray) -> None:
    last = ids.size - 1
    for part in numba.prange(parts):
        for place in range(ids.size * part // parts, ids.size * (part + 1) // parts):
            prefetch(present, np.int64(ids[min(place + _AHEAD, last)]) - low)
            present[np.int64(ids[place]) - low] = True


def warm_up() -> None:
    """Compile the kernels."""
    for dtype in (np.int32, np.int64):
        ids = np.zeros(1, dtype)
        for width in (np.int32, np.int64):
            look_up(ids, 0, np.zeros(1, width), np.zeros(1, width))
        mark(ids, 0, np.zeros(1, np.bool_))
