"""Aggregation where every head sums the same rows: `out[v, k] = sum over edges of weight[e, k] * x[src(e)]`.

One gather of the row serves all K heads, and the sums of the heads share the registers. Layers use this if they
aggregate before they project, such as layer 1 of GAT with narrow features.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.rows.aggregate import Edges, Matrix, chunks, distance
from gnnexp.kernels.rows.layout import VECTOR_BYTES, layout
from gnnexp.kernels.rows.rowkernel import RowKernel, by_edges
from gnnexp.kernels.rows.vector import (
    accumulate,
    dots,
    load_row,
    outer_accumulate,
    outer_store,
    outer_zeros,
    prefetch_row,
    store_row,
    zeros,
)

_U = np.uint64
_ONE = np.uint64(1)
# Most vectors of all heads together: they stay in the 32 registers of AVX-512, with room for the gathered row.
_MAX_VECTORS = 24


@RowKernel
@compiled(nogil=True)
def _outer_range(
    first: int,
    last: int,
    indptr: np.ndarray,
    index: np.ndarray,
    weight: np.ndarray,
    num_slots: int,
    slot: int,
    x: np.ndarray,
    x_stride: int,
    x_first: int,
    out: np.ndarray,
    out_stride: int,
    head_stride: int,
    out_first: int,
    width: int,
    ahead: int,
    shape: int,
) -> None:
    num_slots, slot, width, ahead = _U(num_slots), _U(slot), _U(width), _U(ahead)
    x_stride, x_first, final = _U(x_stride), _U(x_first), _U(index.size) - _ONE
    for row in range(first, last):
        total = outer_zeros(x, shape)
        for e in range(_U(indptr[row]), _U(indptr[row + 1])):
            prefetch_row(x, _U(index[min(e + ahead, final)]) * x_stride + x_first, shape)
            term = load_row(x, _U(index[e]) * x_stride + x_first, width, shape)
            total = outer_accumulate(total, term, weight, e * num_slots + slot, shape)
        outer_store(out, _U(row) * _U(out_stride) + _U(out_first), _U(head_stride), width, total, shape)


@RowKernel
@compiled(nogil=True)
def _outer_dot_range(
    first: int,
    last: int,
    indptr: np.ndarray,
    index: np.ndarray,
    own: np.ndarray,
    own_stride: int,
    head_stride: int,
    x: np.ndarray,
    x_stride: int,
    column: int,
    products: np.ndarray,
    num_slots: int,
    width: int,
    ahead: int,
    shape: int,
) -> None:
    num_slots, width, ahead, column, add = _U(num_slots), _U(width), _U(ahead), _U(column), column > 0
    x_stride, final = _U(x_stride), _U(index.size) - _ONE
    for row in range(first, last):
        mine = _U(row) * _U(own_stride) + column
        for e in range(_U(indptr[row]), _U(indptr[row + 1])):
            prefetch_row(x, _U(index[min(e + ahead, final)]) * x_stride + column, shape)
            term = load_row(x, _U(index[e]) * x_stride + column, width, shape)
            for slot in range(num_slots):
                gradient = load_row(own, mine + slot * _U(head_stride), width, shape)
                dots(products, e * num_slots + slot, gradient, term, width, add, shape)


@RowKernel
@compiled(nogil=True)
def _inner_range(
    first: int,
    last: int,
    indptr: np.ndarray,
    index: np.ndarray,
    edges: np.ndarray,
    weight: np.ndarray,
    num_slots: int,
    x: np.ndarray,
    x_stride: int,
    head_stride: int,
    out: np.ndarray,
    out_stride: int,
    column: int,
    width: int,
    shape: int,
) -> None:
    num_slots, width, column, head_stride = _U(num_slots), _U(width), _U(column), _U(head_stride)
    for row in range(first, last):
        total = zeros(x, shape)
        for e in range(_U(indptr[row]), _U(indptr[row + 1])):
            at, start = _U(edges[e]) * num_slots, _U(index[e]) * _U(x_stride) + column
            for slot in range(num_slots):
                term = load_row(x, start + slot * head_stride, width, shape)
                total = accumulate(total, term, weight, at + slot, shape)
        store_row(out, _U(row) * _U(out_stride) + column, width, total)


def _together(num_slots: int) -> int:
    """Heads that are summed in one pass: the largest divisor of `num_slots` with at least 2 vectors for each head."""
    return max(g for g in range(1, num_slots + 1) if num_slots % g == 0 and g <= _MAX_VECTORS // 2)


def outer_rows(edges: Edges, x: Matrix, out: np.ndarray, weight: np.ndarray, num_slots: int, width: int) -> None:
    """Write `out[row, k] = sum of weight[e, k] * x[index[e]]`, `out` `[R * K * width]` flat."""
    heads = _together(num_slots)
    # With 100 float32 columns, 7 vectors x 4 heads fill the registers: measured faster than two passes of 4 vectors.
    vectors = 28 // heads if heads <= 4 else _MAX_VECTORS // heads
    for start, piece in chunks(width, vectors * VECTOR_BYTES // x.values.itemsize):
        form = layout(piece, x.values.itemsize, heads)
        for slot in range(0, num_slots, heads):
            _outer_range(
                by_edges(edges.indptr, edges.index.size * piece),
                edges.indptr,
                edges.index,
                weight,
                num_slots,
                slot,
                x.values,
                x.stride,
                x.first + start,
                out,
                num_slots * width,
                width,
                slot * width + start,
                piece,
                distance(form),
                form.code,
            )


def outer_dot_rows(
    edges: Edges, gradient: np.ndarray, x: Matrix, products: np.ndarray, num_slots: int, width: int
) -> None:
    """Write `products[e, k] = <gradient[row, k], x[index[e]]>`, `gradient` `[R * K * width]` flat."""
    assert x.first == 0
    for start, piece in chunks(width, VECTOR_BYTES * 16 // x.values.itemsize):
        form = layout(piece, x.values.itemsize)
        _outer_dot_range(
            by_edges(edges.indptr, edges.index.size * piece),
            edges.indptr,
            edges.index,
            gradient,
            num_slots * width,
            width,
            x.values,
            x.stride,
            start,
            products,
            num_slots,
            piece,
            distance(form),
            form.code,
        )


def inner_rows(
    edges: Edges, gradient: np.ndarray, out: np.ndarray, weight: np.ndarray, num_slots: int, width: int
) -> None:
    """Write `out[row] = sum over e and k of weight[e, k] * gradient[index[e], k]`: the transpose of `outer_rows`."""
    assert edges.is_permuted or edges.index.size == 0
    for start, piece in chunks(width, VECTOR_BYTES * 16 // gradient.itemsize):
        form = layout(piece, gradient.itemsize, 1)
        _inner_range(
            by_edges(edges.indptr, edges.index.size * piece),
            edges.indptr,
            edges.index,
            edges.edges,
            weight,
            num_slots,
            gradient,
            num_slots * width,
            width,
            out,
            width,
            start,
            piece,
            form.code,
        )
