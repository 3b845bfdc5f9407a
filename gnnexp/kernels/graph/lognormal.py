"""Draws of log-normal degrees and weights from tables of the normal distribution, equal on every machine.

A random word chooses a cell of a table by shifts alone. A cell is finer where the distribution is thinner: the tails
above and below the median are halved `EXPONENTS` times, and each half has `CELLS` cells. Values of cells are rounded to
16 bits by who makes a table, so the last bits of a machine's `exp` decide nothing.
"""

from __future__ import annotations

import numba
import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import absorb, draw
from gnnexp.kernels.graph.generate import unit

EXPONENTS, CELLS = 32, 1024
_0, _1, _63 = np.uint64(0), np.uint64(1), np.uint64(63)
_CELL_SHIFT = np.uint64(54)
# Draws of a vertex: cell of the degree, zero or not, rounding, levels, cell of the weight.
_CELL, _ZERO, _ROUND, _LEVEL, _WEIGHT = (np.uint64(number) for number in range(5))


@compiled(inline="always")
def _cell(word: np.uint64) -> np.int64:
    """The number of the cell of a word: its first bit is the side, then leading zeros are halvings of the tail."""
    side, rest, halvings = np.int64(word >> _63), word << _1, 0
    while halvings < EXPONENTS - 1 and (rest >> _63) == _0:
        rest <<= _1
        halvings += 1
    return np.int64((side * EXPONENTS + halvings) * CELLS + np.int64((rest << _1) >> _CELL_SHIFT))


@compiled(nogil=True, parallel=True)
def draw_degrees(key: np.uint64, first: int, table: np.ndarray, zeros: float, degrees: np.ndarray) -> None:
    """Write the degrees `[n]` int32 of the vertices `first, first + 1, …`.

    Args:
        key: key of the random stream of vertices.
        first: number of the first vertex.
        table: `[2 * EXPONENTS * CELLS]` float64 expected degree in each cell.
        zeros: share of vertices of degree 0.
        degrees: filled with the expected degree, rounded up or down at random so that its mean is exact.
    """
    for i in numba.prange(degrees.size):
        state = absorb(key, np.uint64(first + i))
        degree = np.int64(table[_cell(draw(state, _CELL))] + unit(draw(state, _ROUND)))
        degrees[i] = 0 if unit(draw(state, _ZERO)) < zeros else degree


@compiled(nogil=True, parallel=True)
def draw_weights(key: np.uint64, first: int, tables: np.ndarray, weights: np.ndarray) -> None:
    """Write the weights `[n]` int64, at least 1, of the vertices `first, first + 1, …`.

    `tables` `[2, 2 * EXPONENTS * CELLS]` float64 has the factors of the cell of the degree, and of a cell of its own.
    """
    for i in numba.prange(weights.size):
        state = absorb(key, np.uint64(first + i))
        weight = tables[0, _cell(draw(state, _CELL))] * tables[1, _cell(draw(state, _WEIGHT))]
        weights[i] = max(1, np.int64(weight))


@compiled(nogil=True, parallel=True)
def split_degrees(key: np.uint64, first: int, degrees: np.ndarray, shares: np.ndarray, counts: np.ndarray) -> None:
    """Divide degrees `[n]` among levels, to `counts` `[L, n]` int64; expected counts are the shares of each degree.

    `shares` `[L]` are cumulated. One draw of a vertex rounds all its levels, so their sum is its degree.
    """
    for i in numba.prange(degrees.size):
        offset = unit(draw(absorb(key, np.uint64(first + i)), _LEVEL))
        before = np.int64(0)
        for level in range(shares.size):
            degree = np.int64(degrees[i])
            until = degree if level == shares.size - 1 else min(degree, np.int64(degree * shares[level] + offset))
            counts[level, i] = until - before
            before = until
