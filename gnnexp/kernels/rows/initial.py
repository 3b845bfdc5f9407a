"""Initial values of trained rows: a pure function of (key, vertex, column), so every rank draws the same values."""

from __future__ import annotations

import numpy as np
from numba import prange

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import absorb, draw

_U = np.uint64
_UNIT = 2.0**-53  # of 53-bit draws


@compiled(parallel=True)
def uniform_rows(key: np.uint64, ids: np.ndarray, first: int, num_columns: int, bound: float) -> np.ndarray:
    """Rows `[n, num_columns]` float64 in [-bound, bound) for the vertices `ids` `[n]` int64, from column `first` on."""
    rows = np.empty((ids.size, num_columns), np.float64)
    for row in prange(ids.size):
        state = absorb(key, _U(ids[row]))
        for column in range(num_columns):
            fraction = np.float64(draw(state, _U(first + column)) >> _U(11)) * _UNIT
            rows[row, column] = (2.0 * fraction - 1.0) * bound
    return rows


def warm_up() -> None:
    """Compile the kernel of this module."""
    uniform_rows(_U(0), np.zeros(1, np.int64), 0, 1, 1.0)
