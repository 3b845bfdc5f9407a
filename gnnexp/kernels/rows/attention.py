"""Attention weights of GAT, and the per-edge operations of which they consist, for all heads of an edge at once.

One pass over a destination's edges computes its attention weights: scores, maximum, exponential, sum, division. Then
`aggregate.sum_rows` gathers the feature rows. The sign bit of a weight records whether the score was positive. So the
backward pass needs neither scores nor keys: d score = a (da - sum a da) times the slope of the LeakyReLU.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.rows.aggregate import Edges
from gnnexp.kernels.rows.layout import layout
from gnnexp.kernels.rows.rowkernel import RowKernel, by_edges
from gnnexp.kernels.rows.rowmath import (
    add,
    divide,
    exponential,
    fill,
    magnitude,
    maximum,
    multiply,
    ramp,
    subtract,
    where_positive,
)
from gnnexp.kernels.rows.vector import load_row, store_row, zeros

_U = np.uint64


@RowKernel
@compiled(nogil=True)
def _weigh_range(
    first: int,
    last: int,
    indptr: np.ndarray,
    index: np.ndarray,
    src_key: np.ndarray,
    dst_key: np.ndarray,
    heads: int,
    slope: float,
    signed: np.ndarray,
    weight: np.ndarray,
    shape: int,
) -> None:
    heads, unit = _U(heads), src_key.dtype.type(1)
    lowest = src_key.dtype.type(-np.inf)
    for row in range(first, last):
        begin, end = _U(indptr[row]), _U(indptr[row + 1])
        own, peak = load_row(dst_key, _U(row) * heads, heads, shape), fill(src_key, lowest, shape)
        for e in range(begin, end):
            score = add(load_row(src_key, _U(index[e]) * heads, heads, shape), own)
            peak = maximum(peak, ramp(score, score, slope))
            store_row(signed, e * heads, heads, score)
        mass = zeros(src_key, shape)
        for e in range(begin, end):
            score = load_row(signed, e * heads, heads, shape)
            value = exponential(subtract(ramp(score, score, slope), peak))
            mass = add(mass, value)
            store_row(weight, e * heads, heads, value)
        share = divide(fill(src_key, unit, shape), mass)
        for e in range(begin, end):
            value = multiply(load_row(weight, e * heads, heads, shape), share)
            store_row(weight, e * heads, heads, value)
            store_row(signed, e * heads, heads, ramp(value, load_row(signed, e * heads, heads, shape), -unit))


@RowKernel
@compiled(nogil=True)
def _unweigh_range(
    first: int,
    last: int,
    indptr: np.ndarray,
    signed: np.ndarray,
    weight: np.ndarray,
    gradient: np.ndarray,
    scale: float,
    slope: float,
    heads: int,
    score_gradient: np.ndarray,
    key_gradient: np.ndarray,
    shape: int,
) -> None:
    heads, scaled = _U(heads), fill(signed, scale, shape)
    for row in range(first, last):
        begin, end = _U(indptr[row]), _U(indptr[row + 1])
        mean = zeros(signed, shape)
        for e in range(begin, end):
            kept = where_positive(
                load_row(weight, e * heads, heads, shape), load_row(gradient, e * heads, heads, shape)
            )
            mean = add(mean, multiply(magnitude(load_row(signed, e * heads, heads, shape)), multiply(kept, scaled)))
        total = zeros(signed, shape)
        for e in range(begin, end):
            share = load_row(signed, e * heads, heads, shape)
            kept = where_positive(
                load_row(weight, e * heads, heads, shape), load_row(gradient, e * heads, heads, shape)
            )
            change = multiply(magnitude(share), subtract(multiply(kept, scaled), mean))
            change = ramp(change, share, slope)
            total = add(total, change)
            store_row(score_gradient, e * heads, heads, change)
        store_row(key_gradient, _U(row) * heads, heads, total)


def weigh(
    edges: Edges,
    src_key: np.ndarray,
    dst_key: np.ndarray,
    heads: int,
    slope: float,
    signed: np.ndarray,
    weight: np.ndarray,
) -> None:
    """Attention weights softmax(LeakyReLU(src_key + dst_key)) over the in-edges of each destination.

    Args:
        edges: edges of the block.
        src_key: `[S * heads]` flat, one key per source and head.
        dst_key: `[D * heads]` flat, one key per destination and head.
        heads: K.
        slope: slope of the LeakyReLU below 0.
        signed: `[E * heads]`, written: the weights, negative where the score was not positive.
        weight: `[E * heads]`, written: the weights.
    """
    form = layout(heads, src_key.itemsize)
    _weigh_range(
        by_edges(edges.indptr, 8 * edges.index.size * heads),
        edges.indptr,
        edges.index,
        src_key,
        dst_key,
        heads,
        src_key.dtype.type(slope),
        signed,
        weight,
        form.code,
    )


def unweigh(
    edges: Edges,
    signed: np.ndarray,
    weight: np.ndarray,
    gradient: np.ndarray,
    scale: float,
    slope: float,
    heads: int,
    score_gradient: np.ndarray,
    dst_key_gradient: np.ndarray,
) -> None:
    """Backward of `weigh` and of the dropout after it.

    Args:
        edges: edges of the block.
        signed: `[E * heads]` from `weigh`.
        weight: `[E * heads]` weights after dropout; a weight that is not positive was dropped.
        gradient: `[E * heads]` gradient of the weights after dropout.
        scale: factor by which dropout multiplied the remaining weights, 1 without dropout.
        slope: slope of the LeakyReLU below 0.
        heads: K.
        score_gradient: `[E * heads]`, written: gradient of `src_key[src] + dst_key[dst]`.
        dst_key_gradient: `[D * heads]`, written: sum of `score_gradient` per destination.
    """
    kind, form = signed.dtype.type, layout(heads, signed.itemsize)
    _unweigh_range(
        by_edges(edges.indptr, 8 * edges.index.size * heads),
        edges.indptr,
        signed,
        weight,
        gradient,
        kind(scale),
        kind(slope),
        heads,
        score_gradient,
        dst_key_gradient,
        form.code,
    )


class EdgeOperation(IntEnum):
    """The result of `edge_operation`, from `a` (`[S * K]` or `[E * K]`) and `b` (`[D * K]`)."""

    SCORE = 0  # `out[e] = a[src] + b[dst]`
    SUM = 1  # `out[dst]` = sum of `a[e]`
    MAX = 2  # `out[dst]` = largest `a[e]`, -inf without edges
    EXP = 3  # `out[e] = exp(a[e] - b[dst])`
    SPREAD = 4  # `out[e] = b[dst]`


@RowKernel
@compiled(nogil=True)
def _operation_range(
    first: int,
    last: int,
    phase: int,
    indptr: np.ndarray,
    index: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    heads: int,
    out: np.ndarray,
    shape: int,
) -> None:
    heads, lowest = _U(heads), out.dtype.type(-np.inf)
    for row in range(first, last):
        begin, end, here = _U(indptr[row]), _U(indptr[row + 1]), _U(row) * heads
        if phase == 1:
            total = zeros(out, shape)
            for e in range(begin, end):
                total = add(total, load_row(a, e * heads, heads, shape))
            store_row(out, here, heads, total)
        elif phase == 2:
            peak = fill(out, lowest, shape)
            for e in range(begin, end):
                peak = maximum(peak, load_row(a, e * heads, heads, shape))
            store_row(out, here, heads, peak)
        else:
            own = load_row(b, here, heads, shape)
            for e in range(begin, end):
                if phase == 0:
                    store_row(out, e * heads, heads, add(load_row(a, _U(index[e]) * heads, heads, shape), own))
                elif phase == 3:
                    store_row(out, e * heads, heads, exponential(subtract(load_row(a, e * heads, heads, shape), own)))
                else:
                    store_row(out, e * heads, heads, own)


def edge_operation(
    operation: EdgeOperation, edges: Edges, a: np.ndarray, b: np.ndarray, heads: int, out: np.ndarray
) -> None:
    """Write the result of one operation to `out`, for paradigms that exchange data between operations of attention."""
    form = layout(heads, out.itemsize)
    bounds = by_edges(edges.indptr, 4 * edges.index.size * heads)
    _operation_range(bounds, int(operation), edges.indptr, edges.index, a, b, heads, out, form.code)
