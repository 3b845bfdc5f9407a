"""Weighted sums over edges (SpMM) and inner products along edges (SDDMM), with a whole row in registers at a time.

All arrays are flat and C-contiguous. Rows lie `*_stride` floats apart, so a slice of columns needs no copy. The same
kernels run forward and backward. Forward, rows are destinations and `index` has sources. Backward, rows are sources of
the transposed block, `index` has destinations, and `edges` has the positions of the edges' weights. One thread sums
every row in edge order, so results do not depend on the number of threads.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from torch import Tensor

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.prefetch import prefetch as prefetch_line
from gnnexp.kernels.rows.layout import VECTOR_BYTES, Layout, layout, max_width
from gnnexp.kernels.rows.rowkernel import RowKernel, by_edges
from gnnexp.kernels.rows.vector import (
    accumulate,
    can_stream,
    dots,
    load_row,
    prefetch_row,
    prefetch_write,
    store_row,
    stream_row,
    zeros,
)

_U = np.uint64
_ONE = np.uint64(1)
_NONE = np.empty(0, np.int64)


class Edges(NamedTuple):
    """One direction of a block.

    Attributes:
        indptr: `[R + 1]` int64, bounds of the edges of each row.
        index: `[E]` int32 or int64, row number of the other end of each edge.
        edges: `[E]` position of each edge's weight, empty if weights are in the order of `index`. Positions in the
            block's edge order are int64; positions of weights that edges share, such as sources, are int32.
    """

    indptr: np.ndarray
    index: np.ndarray
    edges: np.ndarray = _NONE

    @property
    def is_permuted(self) -> bool:
        """Whether the order of the edges differs from the order of their weights."""
        return self.edges.size > 0


class Matrix(NamedTuple):
    """A matrix with unit column stride: element (row, column) is `values[first + row * stride + column]`."""

    values: np.ndarray
    stride: int
    first: int = 0

    def columns(self, start: int) -> Matrix:
        """The same matrix from column `start` on."""
        return self._replace(first=self.first + start)


def matrix(x: Tensor) -> Matrix:
    """`x` `[N, d]` for the kernels; a slice of columns is not copied."""
    num_rows, width = x.shape
    x = x.detach()
    if x.stride(1) != 1 or x.stride(0) < width or num_rows < 2:
        x = x.contiguous()
    stride = x.stride(0) if num_rows > 1 else width
    size = (num_rows - 1) * stride + width if x.numel() else 0  # rows without columns have a stride, too
    return Matrix(x.as_strided((size,), (1,)).numpy(), stride)


class Group(NamedTuple):
    """Columns `start:start + width`, which use the weights `slot:slot + heads`; the heads are equally wide."""

    start: int
    width: int
    slot: int
    heads: int


def chunks(width: int, widest: int) -> list[tuple[int, int]]:
    """Split `width` columns into the fewest, about equal pieces of at most `widest` columns: their `(start, width)`."""
    count = -(-width // widest)
    bounds = [width * i // count for i in range(count + 1)]
    return [(start, stop - start) for start, stop in pairwise(bounds)]


def groups(width: int, heads: int, itemsize: int) -> list[Group]:
    """Split `heads` equally wide heads, `width` columns in total, into passes whose rows fit in registers."""
    widest, head_width = max_width(itemsize), width // max(1, heads)
    if heads > 1 and head_width <= widest // 2:
        together = max(g for g in range(1, heads + 1) if heads % g == 0 and g * head_width <= widest)
        return [Group(h * head_width, together * head_width, h, together) for h in range(0, heads, together)]
    return [
        Group(head * head_width + start, piece, head, min(1, heads))
        for head in range(max(1, heads))
        for start, piece in chunks(head_width, widest)
    ]


def distance(form: Layout) -> int:
    """How many edges ahead rows are prefetched: more for short rows (16 columns: 32 is 12 % faster than 16)."""
    return 32 if form.count == 1 else 16


@RowKernel
@compiled(nogil=True)
def _sum_range(
    first: int,
    last: int,
    indptr: np.ndarray,
    index: np.ndarray,
    edges: np.ndarray,
    weight: np.ndarray,
    weight_stride: int,
    slot: int,
    x: np.ndarray,
    x_stride: int,
    x_first: int,
    out: np.ndarray,
    out_stride: int,
    out_first: int,
    width: int,
    ahead: int,
    past_cache: bool,
    shape: int,
) -> None:
    weight_stride, slot, width, ahead = _U(weight_stride), _U(slot), _U(width), _U(ahead)
    x_stride, x_first = _U(x_stride), _U(x_first)
    final, permuted = _U(index.size) - _ONE, edges.size > 0
    for row in range(first, last):
        total = zeros(x, shape)
        for e in range(_U(indptr[row]), _U(indptr[row + 1])):
            later = min(e + ahead, final)
            prefetch_row(x, _U(index[later]) * x_stride + x_first, shape)
            if permuted:
                prefetch_line(weight, _U(edges[later]) * weight_stride + slot)
            at = _U(edges[e]) if permuted else e
            term = load_row(x, _U(index[e]) * x_stride + x_first, width, shape)
            total = accumulate(total, term, weight, at * weight_stride + slot, shape)
        place = _U(row) * _U(out_stride) + _U(out_first)
        if past_cache:
            stream_row(out, place, width, total)
        else:
            store_row(out, place, width, total)


@RowKernel
@compiled(nogil=True)
def _dot_range(
    first: int,
    last: int,
    indptr: np.ndarray,
    index: np.ndarray,
    own: np.ndarray,
    own_stride: int,
    own_first: int,
    other: np.ndarray,
    other_stride: int,
    other_first: int,
    products: np.ndarray,
    num_slots: int,
    slot: int,
    width: int,
    ahead: int,
    add: bool,
    shape: int,
) -> None:
    num_slots, slot, width, ahead = _U(num_slots), _U(slot), _U(width), _U(ahead)
    other_stride, other_first, final = _U(other_stride), _U(other_first), _U(index.size) - _ONE
    for row in range(first, last):
        mine = load_row(own, _U(row) * _U(own_stride) + _U(own_first), width, shape)
        for e in range(_U(indptr[row]), _U(indptr[row + 1])):
            prefetch_row(other, _U(index[min(e + ahead, final)]) * other_stride + other_first, shape)
            theirs = load_row(other, _U(index[e]) * other_stride + other_first, width, shape)
            dots(products, e * num_slots + slot, mine, theirs, width, add, shape)


@RowKernel
@compiled(nogil=True)
def _both_range(
    first: int,
    last: int,
    indptr: np.ndarray,
    index: np.ndarray,
    edges: np.ndarray,
    weight: np.ndarray,
    num_slots: int,
    slot: int,
    own: np.ndarray,
    own_stride: int,
    own_first: int,
    x: np.ndarray,
    x_stride: int,
    x_first: int,
    out: np.ndarray,
    out_stride: int,
    out_first: int,
    products: np.ndarray,
    width: int,
    ahead: int,
    add: bool,
    shape: int,
) -> None:
    num_slots, slot, width, ahead = _U(num_slots), _U(slot), _U(width), _U(ahead)
    x_stride, x_first, final = _U(x_stride), _U(x_first), _U(index.size) - _ONE
    for row in range(first, last):
        total, mine = zeros(x, shape), _U(row) * _U(own_stride) + _U(own_first)
        for e in range(_U(indptr[row]), _U(indptr[row + 1])):
            later = min(e + ahead, final)
            prefetch_row(x, _U(index[later]) * x_stride + x_first, shape)
            prefetch_line(weight, _U(edges[later]) * num_slots + slot)
            prefetch_write(products, _U(edges[later]) * num_slots + slot)
            at = _U(edges[e]) * num_slots + slot
            term = load_row(x, _U(index[e]) * x_stride + x_first, width, shape)
            total = accumulate(total, term, weight, at, shape)
            # Read the row's own values from the first-level cache each time. If registers held them too, the sums would
            # be spilled to memory.
            dots(products, at, load_row(own, mine, width, shape), term, width, add, shape)
        store_row(out, _U(row) * _U(out_stride) + _U(out_first), width, total)


def sum_rows(edges: Edges, x: Matrix, out: Matrix, weight: np.ndarray, num_slots: int, parts: list[Group]) -> None:
    """`out[row] = sum of weight[e] * x[index[e]]` over the edges e of every row.

    Args:
        edges: E edges in R rows.
        x: rows of the other ends.
        out: `[R, d]`, written.
        weight: `[E * num_slots]` flat, in the block's edge order; empty for weights of 1.
        num_slots: weights per edge.
        parts: which columns use which weights (`groups`).
    """
    # Positions of edges are needed for weights only. Without weights, reading them would waste 8 bytes per edge.
    positions = edges.edges if weight.size else _NONE
    for start, width, slot, heads in parts:
        form = layout(width, x.values.itemsize, heads, width // max(1, heads))
        _sum_range(
            by_edges(edges.indptr, edges.index.size * width),
            edges.indptr,
            edges.index,
            positions,
            weight,
            num_slots,
            slot,
            x.values,
            x.stride,
            x.first + start,
            out.values,
            out.stride,
            out.first + start,
            width,
            distance(form),
            _is_streamed(out, start, width),
            form.code,
        )


def _is_streamed(out: Matrix, start: int, width: int) -> bool:
    """Whether the columns `start:start + width` of `out` are written with stores that bypass the caches."""
    whole_vectors = (out.first + start) * out.values.itemsize % VECTOR_BYTES == 0
    return whole_vectors and can_stream(out.values, out.stride, width)


def dot_rows(
    edges: Edges, own: Matrix, other: Matrix, products: np.ndarray, num_slots: int, parts: list[Group]
) -> None:
    """Write `products[e, slot] = <own[row], other[index[e]]>` over the columns of every slot, `[E * num_slots]`."""
    seen: set[int] = set()
    for start, width, slot, heads in parts:
        form = layout(width, own.values.itemsize, heads, width // max(1, heads))
        _dot_range(
            by_edges(edges.indptr, edges.index.size * width),
            edges.indptr,
            edges.index,
            own.values,
            own.stride,
            own.first + start,
            other.values,
            other.stride,
            other.first + start,
            products,
            num_slots,
            slot,
            width,
            distance(form),
            slot in seen,
            form.code,
        )
        seen.add(slot)


def sum_and_dot_rows(
    edges: Edges,
    own: Matrix,
    x: Matrix,
    out: Matrix,
    products: np.ndarray,
    weight: np.ndarray,
    num_slots: int,
    parts: list[Group],
) -> None:
    """`sum_rows` and `dot_rows` of a permuted direction, in one pass over the gathered rows; used in backward."""
    assert edges.is_permuted or edges.index.size == 0, "products are written at the edges' positions in the block"
    seen: set[int] = set()
    for start, width, slot, heads in parts:
        form = layout(width, x.values.itemsize, heads, width // max(1, heads))
        _both_range(
            by_edges(edges.indptr, edges.index.size * width),
            edges.indptr,
            edges.index,
            edges.edges,
            weight,
            num_slots,
            slot,
            own.values,
            own.stride,
            own.first + start,
            x.values,
            x.stride,
            x.first + start,
            out.values,
            out.stride,
            out.first + start,
            products,
            width,
            distance(form),
            slot in seen,
            form.code,
        )
        seen.add(slot)
