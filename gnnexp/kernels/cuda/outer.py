"""Aggregation in Triton where every head sums the same rows, as in `gnnexp.kernels.rows.outer`.

Sums run in edge order by fused multiply-add, and have the bits of the CPU. Long rows are not split.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from gnnexp.kernels.cuda.aggregate import WIDEST_BYTES, Edges
from gnnexp.kernels.cuda.launch import ONE_WARP, power_of_2, rows_of, tiles

# Bytes of a tile of all heads: 32 registers for each lane.
_TILE_BYTES = 4096


@triton.jit
def outer_kernel(
    indptr: tl.tensor,
    index: tl.tensor,
    weight: tl.tensor,
    x: tl.tensor,
    out: tl.tensor,
    num_heads: tl.tensor,
    width: tl.tensor,
    x_stride: tl.tensor,
    HEADS: tl.constexpr,
    COLS: tl.constexpr,
) -> None:
    """`out[row, k] = sum of weight[e, k] * x[index[e]]` for one row and all heads."""
    row, head = tl.program_id(0).to(tl.int64), tl.arange(0, HEADS)
    column = tl.program_id(1) * COLS + tl.arange(0, COLS)
    in_heads, in_columns = head < num_heads, column < width
    total = tl.zeros((HEADS, COLS), x.dtype.element_ty)
    for e in tl.range(tl.load(indptr + row), tl.load(indptr + row + 1), loop_unroll_factor=4):
        source = tl.load(index + e).to(tl.int64)
        term = tl.load(x + source * x_stride + column, mask=in_columns, other=0)
        factor = tl.load(weight + e * num_heads + head, mask=in_heads, other=0)
        total = tl.fma(
            tl.broadcast_to(factor[:, None], (HEADS, COLS)), tl.broadcast_to(term[None, :], (HEADS, COLS)), total
        )
    place = (row * num_heads + head)[:, None] * width + column[None, :]
    tl.store(out + place, total, mask=in_heads[:, None] & in_columns[None, :])


@triton.jit
def outer_dot_kernel(
    indptr: tl.tensor,
    index: tl.tensor,
    gradient: tl.tensor,
    x: tl.tensor,
    products: tl.tensor,
    num_heads: tl.tensor,
    width: tl.tensor,
    x_stride: tl.tensor,
    start: tl.tensor,
    ADD: tl.constexpr,
    HEADS: tl.constexpr,
    COLS: tl.constexpr,
) -> None:
    """`products[e, k] = <gradient[row, k], x[index[e]]>` over the columns from `start` on, for one row."""
    row, head = tl.program_id(0).to(tl.int64), tl.arange(0, HEADS)
    column = start + tl.arange(0, COLS)
    in_heads, in_columns = head < num_heads, column < width
    mine = tl.load(
        gradient + (row * num_heads + head)[:, None] * width + column[None, :],
        mask=in_heads[:, None] & in_columns[None, :],
        other=0,
    )
    for e in range(tl.load(indptr + row), tl.load(indptr + row + 1)):
        source = tl.load(index + e).to(tl.int64)
        term = tl.load(x + source * x_stride + column, mask=in_columns, other=0)
        product = tl.sum(mine * term[None, :], 1)
        place = products + e * num_heads + head
        if ADD:
            product += tl.load(place, mask=in_heads, other=0)
        tl.store(place, product, mask=in_heads)


@triton.jit
def inner_kernel(
    indptr: tl.tensor,
    index: tl.tensor,
    edges: tl.tensor,
    weight: tl.tensor,
    gradient: tl.tensor,
    out: tl.tensor,
    width: tl.tensor,
    HEADS: tl.constexpr,
    COLS: tl.constexpr,
) -> None:
    """`out[row] = sum over edges and heads of weight[e, k] * gradient[index[e], k]` for one row."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = column < width
    total = tl.zeros((COLS,), gradient.dtype.element_ty)
    for e in range(tl.load(indptr + row), tl.load(indptr + row + 1)):
        destination, at = tl.load(index + e).to(tl.int64), tl.load(edges + e).to(tl.int64)
        for head in range(HEADS):
            factor = tl.load(weight + at * HEADS + head)
            term = tl.load(gradient + (destination * HEADS + head) * width + column, mask=inside, other=0)
            total = tl.fma(tl.broadcast_to(factor, (COLS,)), term, total)
    tl.store(out + row * width + column, total, mask=inside)


def columns_of_tile(heads: int, width: int, itemsize: int) -> int:
    """Columns of a tile of all heads, of values of `itemsize` bytes."""
    return max(1, min(WIDEST_BYTES // itemsize, _TILE_BYTES // itemsize // power_of_2(heads), power_of_2(width)))


def outer_rows(edges: Edges, x: Tensor, weight: Tensor) -> Tensor:
    """`[R, K, d]`: for each k the sum of `weight[e, k] * x[index[e]]`, from `[E, K]` and `[N, d]`."""
    x, heads, width = rows_of(x), weight.shape[1], x.shape[1]
    out, cols = x.new_empty(edges.num_rows, heads, width), columns_of_tile(heads, width, x.element_size())
    if out.numel():
        outer_kernel[edges.num_rows, tiles(width, cols)](
            edges.indptr,
            edges.index,
            weight.detach().contiguous(),
            x,
            out,
            heads,
            width,
            x.stride(0),
            HEADS=power_of_2(heads),
            COLS=cols,
            **ONE_WARP,
        )
    return out


def outer_dot_rows(edges: Edges, gradient: Tensor, x: Tensor) -> Tensor:
    """`[E, K]`: `<gradient[row, k], x[index[e]]>`, from `gradient` `[R, K, d]` and `x` `[N, d]`."""
    assert edges.index is not None
    x, gradient = rows_of(x), gradient.contiguous()
    _, heads, width = gradient.shape
    products, cols = x.new_zeros(edges.index.numel(), heads), columns_of_tile(heads, width, x.element_size())
    if products.numel():
        for start in range(0, width, cols):
            outer_dot_kernel[edges.num_rows,](
                edges.indptr,
                edges.index,
                gradient,
                x,
                products,
                heads,
                width,
                x.stride(0),
                start,
                ADD=start > 0,
                HEADS=power_of_2(heads),
                COLS=cols,
                **ONE_WARP,
            )
    return products


def inner_rows(edges: Edges, gradient: Tensor, weight: Tensor) -> Tensor:
    """`[R, d]`: sums over e and k of `weight[e, k] * gradient[index[e], k]`: the transpose of `outer_rows`."""
    gradient = gradient.contiguous()
    _, heads, width = gradient.shape
    out, cols = gradient.new_empty(edges.num_rows, width), columns_of_tile(1, width, gradient.element_size())
    if out.numel():
        inner_kernel[edges.num_rows, tiles(width, cols)](
            edges.indptr,
            edges.index,
            edges.edges,
            weight.detach().contiguous(),
            gradient,
            out,
            width,
            HEADS=heads,
            COLS=cols,
            **ONE_WARP,
        )
    return out
