"""Scores of pairs as sums of products, and their gradients.

`score[p]` is the sum over c of `x[head, c] * weight[relation, c] * x[tail, c]`. No array has an entry per pair and
column. The forward pass divides the pairs among threads, the backward pass the columns. So no two threads add to the
same place, and every sum runs in the order of pairs with any number of threads.
"""

from __future__ import annotations

import numba
import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.prefetch import prefetch
from gnnexp.kernels.rows.rowkernel import SERIAL_FLOATS, RowKernel, evenly

_U = np.uint64
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_LINE_BYTES = 64
_AHEAD = 4  # pairs whose rows are asked for ahead
_REASSOCIATED = {"reassoc", "contract"}


@compiled(inline="always")
def _ask(x: np.ndarray, head: np.ndarray, tail: np.ndarray, pair: int, width: int, first: int, last: int) -> None:
    """Prefetch the columns `first` to `last - 1` of both rows of a pair."""
    for column in range(first, last, _U(_LINE_BYTES // x.itemsize)):
        prefetch(x, _U(head[pair]) * width + column)
        prefetch(x, _U(tail[pair]) * width + column)


@RowKernel
@compiled(nogil=True, fastmath=_REASSOCIATED)
def _score(
    first: int,
    last: int,
    x: np.ndarray,
    width: int,
    head: np.ndarray,
    tail: np.ndarray,
    relation: np.ndarray,
    weight: np.ndarray,
    out: np.ndarray,
) -> None:
    width, final = _U(width), _U(last - 1)
    for pair in range(_U(first), _U(last)):
        _ask(x, head, tail, min(pair + _U(_AHEAD), final), width, _ZERO, width)
        h, t = _U(head[pair]) * width, _U(tail[pair]) * width
        total = x.dtype.type(0)
        if weight.size == 0:
            for c in range(width):
                total += x[h + c] * x[t + c]
        else:
            w = _U(relation[pair]) * width if relation.size else _ZERO
            for c in range(width):
                total += x[h + c] * weight[w + c] * x[t + c]
        out[pair] = total


@compiled(inline="always")
def _add_product(
    out: np.ndarray, at: int, scale: float, a: np.ndarray, i: int, b: np.ndarray, j: int, width: int
) -> None:
    for c in range(width):
        out[at + c] += scale * (a[i + c] * b[j + c])


@RowKernel
@compiled(nogil=True, fastmath={"contract"})
def _gradients(
    first: int,
    last: int,
    x: np.ndarray,
    width: int,
    head: np.ndarray,
    tail: np.ndarray,
    relation: np.ndarray,
    weight: np.ndarray,
    gradient: np.ndarray,
    d_x: np.ndarray,
    d_weight: np.ndarray,
) -> None:
    width, start, stop = _U(width), _U(first), _U(last)
    columns, final = stop - start, _U(head.size) - _ONE
    for pair in range(_U(head.size)):
        _ask(x, head, tail, min(pair + _U(_AHEAD), final), width, start, stop)
        h, t, scale = _U(head[pair]) * width + start, _U(tail[pair]) * width + start, gradient[pair]
        if weight.size == 0:
            for c in range(columns):
                d_x[h + c] += scale * x[t + c]
            for c in range(columns):
                d_x[t + c] += scale * x[h + c]
        else:
            w = (_U(relation[pair]) * width if relation.size else _ZERO) + start
            _add_product(d_x, h, scale, weight, w, x, t, columns)
            _add_product(d_x, t, scale, weight, w, x, h, columns)
            _add_product(d_weight, w, scale, x, h, x, t, columns)


def score_pairs(
    x: np.ndarray, head: np.ndarray, tail: np.ndarray, relation: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Scores `[p]` of pairs.

    Args:
        x: `[m, C]` float32 or float64, contiguous.
        head: `[p]` int64, row of x for the head of each pair.
        tail: `[p]` int64, row of x for the tail of each pair.
        relation: `[p]` int64, row of weight for each pair; empty: all pairs use row 0.
        weight: `[R, C]`; empty: products of head and tail only.
    """
    out = np.empty(head.size, x.dtype)
    bounds = evenly(head.size, 2 * head.size * x.shape[1])
    _score(bounds, x.reshape(-1), x.shape[1], head, tail, relation, weight.reshape(-1), out)
    return out


def product_gradients(
    x: np.ndarray,
    head: np.ndarray,
    tail: np.ndarray,
    relation: np.ndarray,
    weight: np.ndarray,
    gradient: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of x and of weight, in their shapes, from the gradient `[p]` of the scores."""
    d_x, d_weight = np.zeros_like(x), np.zeros_like(weight)
    bounds = _columns(x.shape[1], 4 * head.size * x.shape[1], _LINE_BYTES // x.itemsize)
    _gradients(
        bounds,
        x.reshape(-1),
        x.shape[1],
        head,
        tail,
        relation,
        weight.reshape(-1),
        gradient,
        d_x.reshape(-1),
        d_weight.reshape(-1),
    )
    return d_x, d_weight


def _columns(width: int, num_floats: int, line: int) -> np.ndarray:
    """Bounds of the column range of every thread; ranges consist of whole cache lines, so threads share none."""
    lines = -(-width // line)
    parts = 1 if num_floats < SERIAL_FLOATS else max(1, min(lines, int(numba.get_num_threads())))
    return np.minimum(np.arange(parts + 1) * lines // parts * line, width)


def warm_up() -> None:
    """Compile the kernels of this module for common types, on one thread and in parallel."""
    x, ends, none = np.zeros((2, 32), np.float32), np.zeros(SERIAL_FLOATS // 32, np.int64), np.empty(0, np.int64)
    for relation, weight in ((none, x[:0]), (none, x), (ends, x)):
        for head in (ends[:1], ends):
            gradient = score_pairs(x, head, head, relation[: head.size], weight)
            product_gradients(x, head, head, relation[: head.size], weight, gradient)
