"""Weighted sums over edges (SpMM) and inner products along edges (SDDMM) in Triton.

A row of at most `LONG` edges is summed in edge order by fused multiply-add, so the result has the bits of
`gnnexp.kernels.rows.aggregate`. A longer row is cut where the number of an edge is a multiple of `LONG`. Each segment
is summed in edge order, then the sums of the segments are added in order. No sum needs atomic operations, so results
are the same in every run. As in numba's kernels, the transposed direction has positions of the edges' weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gnnexp.kernels.cuda.launch import COUNTS, ONE_WARP, power_of_2, rows_of, tiles

# Longest row that one warp sums alone. The longest chain of dependent additions has this many edges.
LONG = 1024
# Floats of a warp's tile: 4 for each lane. Bytes of the widest tile of one row: 8 registers for each lane and operand.
TILE, WIDEST_BYTES = 128, 1024
# Edges whose rows a warp loads at once. With inner products, 4 edges need more than the 128 registers of a lane. If
# bfloat16 becomes float64, they need a stack.
UNROLL, UNROLL_DOTS, UNROLL_TO_FLOAT64 = 4, 1, 2


class Heads(NamedTuple):
    """Columns `start:start + count * width`: `count` equally wide heads with the weights `slot:slot + count`."""

    start: int
    width: int
    count: int = 1
    slot: int = 0


class Edges(NamedTuple):
    """One direction of a block.

    Attributes:
        indptr: `[R + 1]` int64, bounds of the edges of each row.
        index: `[E]` row number of the other end of each edge; None: the number of the edge itself.
        edges: `[E]` position of each edge's weight; None: the number of the edge.
        ids: row of `x` that each number in `index` stands for; None: the number itself.
    """

    indptr: Tensor
    index: Tensor | None
    edges: Tensor | None = None
    ids: Tensor | None = None

    @property
    def num_rows(self) -> int:
        """R."""
        return self.indptr.numel() - 1


class _Launch(NamedTuple):
    """`count` programs for a row: program i has columns from `start + i * step` on, and slot `slot + i * slot_step`."""

    start: int
    step: int
    stop: int
    count: int
    slot: int
    slot_step: int
    add: bool = False


@triton.jit
def row_of_edge(
    indptr: tl.tensor, num_rows: tl.tensor, steps: tl.tensor, edge: tl.tensor, inside: tl.tensor
) -> tl.tensor:
    """The row that has each edge, by bisection in `steps` >= log2(num_rows) steps."""
    low = edge * 0
    high = low + num_rows
    for _ in range(0, steps):
        middle = (low + high) // 2
        before = tl.load(indptr + middle, mask=inside, other=0) > edge
        low, high = tl.where(before, low, middle), tl.where(before, middle, high)
    return low


@triton.jit
def edges_of_program(
    indptr: tl.tensor,
    num_rows: tl.tensor,
    num_segments: tl.tensor,
    steps: tl.tensor,
    OF_SEGMENTS: tl.constexpr,
    SPLIT: tl.constexpr,
    LONG: tl.constexpr,
    ROWS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The rows or segments of a program: number, row, whether it exists, bounds of its edges, segments to add last.

    Segment i has the edges from `i * LONG` on of a long row that began before. Segment 0 does not exist.
    """
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    if OF_SEGMENTS:
        number += 1
        exists = number < num_segments
        row = row_of_edge(indptr, num_rows, steps, tl.where(exists, number * LONG, 0), exists)
    else:
        exists = number < num_rows
        row = number
    first = tl.load(indptr + row, mask=exists, other=0)
    last = tl.load(indptr + row + 1, mask=exists, other=0)
    is_long = last - first > LONG
    following = first // LONG + 1
    count = following * 0
    if OF_SEGMENTS:
        is_long = is_long & (first < number * LONG)
        first = number * LONG
        last = tl.where(is_long, tl.minimum(last, first + LONG), first)
    elif SPLIT:
        count = tl.where(is_long, (last + LONG - 1) // LONG - following, 0)
        last = tl.where(is_long, following * LONG, last)
    return number, row, exists, first, last, following, count


@triton.jit
def _added(total: tl.tensor, term: tl.tensor, weight: tl.tensor, place: tl.tensor, active: tl.tensor) -> tl.tensor:
    """`total + weight[place] * term` in one rounding; `total + term` without weights."""
    if weight is None:
        total += term
    else:
        factor = tl.load(weight + place, mask=active, other=0)
        total = tl.fma(tl.broadcast_to(factor[:, None], term.shape), term, total)
    return total


@triton.jit(do_not_specialize=COUNTS)
def edge_pass_kernel(
    indptr: tl.tensor,
    index: tl.tensor,
    edges: tl.tensor,
    ids: tl.tensor,
    weight: tl.tensor,
    own: tl.tensor,
    x: tl.tensor,
    partial: tl.tensor,
    out: tl.tensor,
    products: tl.tensor,
    num_rows: tl.tensor,
    num_segments: tl.tensor,
    steps: tl.tensor,
    own_stride: tl.tensor,
    x_stride: tl.tensor,
    out_stride: tl.tensor,
    num_slots: tl.tensor,
    slot: tl.tensor,
    start: tl.tensor,
    step: tl.tensor,
    stop: tl.tensor,
    SLOT_STEP: tl.constexpr,
    OF_SEGMENTS: tl.constexpr,
    SPLIT: tl.constexpr,
    ADD: tl.constexpr,
    LONG: tl.constexpr,
    UNROLL: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
) -> None:
    """Sums to `out`, inner products with `own` to `products`, or both; for rows, or for segments of long rows.

    Rows of `x` may be in bfloat16: they are widened in registers, to the type of the results.
    """
    number, row, exists, first, last, following, count = edges_of_program(
        indptr, num_rows, num_segments, steps, OF_SEGMENTS, SPLIT, LONG, ROWS
    )
    piece = tl.program_id(1)
    begin = start + piece * step
    column = begin + tl.arange(0, COLS)
    in_columns = (column < tl.minimum(begin + step, stop))[None, :]
    if out is not None:
        total = tl.zeros((ROWS, COLS), out.dtype.element_ty)
    if products is not None:
        mine = tl.load(own + row[:, None] * own_stride + column[None, :], mask=exists[:, None] & in_columns, other=0)
    for i in tl.range(0, tl.max(tl.where(exists, last - first, 0), 0), loop_unroll_factor=UNROLL):
        other = first + i
        active = exists & (other < last)
        place = other
        if edges is not None:
            place = tl.load(edges + place, mask=active, other=0).to(tl.int64)
        place = place * num_slots + slot + piece * SLOT_STEP
        if index is not None:
            other = tl.load(index + other, mask=active, other=0).to(tl.int64)
        if ids is not None:
            other = tl.load(ids + other, mask=active, other=0).to(tl.int64)
        term = tl.load(x + other[:, None] * x_stride + column[None, :], mask=active[:, None] & in_columns, other=0)
        if out is not None:
            total = _added(total, term.to(out.dtype.element_ty), weight, place, active)
        if products is not None:
            product = tl.sum(mine * term.to(products.dtype.element_ty), 1)
            if ADD:
                product += tl.load(products + place, mask=active, other=0)
            tl.store(products + place, product, mask=active)
    if out is not None:
        if SPLIT:
            for i in range(0, tl.max(count, 0)):
                total += tl.load(
                    partial + (following + i)[:, None] * out_stride + column[None, :],
                    mask=(i < count)[:, None] & in_columns,
                    other=0,
                )
        tl.store(out + number[:, None] * out_stride + column[None, :], total, mask=exists[:, None] & in_columns)


def sum_rows(
    edges: Edges, x: Tensor, heads: Sequence[Heads], weight: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """`[R, d]`: `out[row] = sum of weight[e] * x[index[e]]` over the edges of every row.

    Args:
        edges: E edges in R rows.
        x: `[N, d]`.
        heads: which columns use which weights; together they cover all columns.
        weight: `[E, K]` in the block's edge order; None for ones.
        dtype: of the sums: float32 or float64 for rows in bfloat16; None: that of the rows.
    """
    x = rows_of(x)
    out = x.new_empty(edges.num_rows, x.shape[1], dtype=dtype)
    _run(edges, x, heads, weight, out, None, None)
    return out


def dot_rows(edges: Edges, own: Tensor, x: Tensor, heads: Sequence[Heads], num_slots: int) -> Tensor:
    """`[E, num_slots]`: `<own[row], x[index[e]]>` over the columns of every slot, 0 for slots without columns."""
    x = rows_of(x)
    products = _products(x, edges, heads, num_slots)
    _run(edges, x, heads, None, None, rows_of(own), products)
    return products


def sum_and_dot_rows(
    edges: Edges, own: Tensor, x: Tensor, heads: Sequence[Heads], weight: Tensor
) -> tuple[Tensor, Tensor]:
    """`sum_rows` and `dot_rows` in one pass over the rows of the other ends."""
    x = rows_of(x)
    out, products = x.new_empty(edges.num_rows, x.shape[1]), _products(x, edges, heads, weight.shape[1])
    _run(edges, x, heads, weight, out, rows_of(own), products)
    return out, products


def _products(x: Tensor, edges: Edges, heads: Sequence[Heads], num_slots: int) -> Tensor:
    assert edges.index is not None
    used = {head.slot + i for head in heads for i in range(head.count)}
    make = x.new_empty if used == set(range(num_slots)) else x.new_zeros
    return make(edges.index.numel(), num_slots)


def _run(
    edges: Edges,
    x: Tensor,
    heads: Sequence[Heads],
    weight: Tensor | None,
    out: Tensor | None,
    own: Tensor | None,
    products: Tensor | None,
) -> None:
    """Both passes of every launch: first the segments of long rows, then all rows."""
    num_edges = x.shape[0] if edges.index is None else edges.index.numel()
    num_segments = tiles(num_edges, LONG)
    split = num_segments > 1
    partial = out.new_empty(num_segments, x.shape[1]) if split and out is not None else None
    values = None if weight is None else weight.detach().contiguous()
    num_slots = products.shape[1] if products is not None else 1 if values is None else values.shape[1]
    result = out if products is None else products
    assert result is not None
    unroll = UNROLL_TO_FLOAT64 if result.element_size() == 4 * x.element_size() else UNROLL
    for launch in _launches(heads, WIDEST_BYTES // result.element_size(), products is not None):
        cols = power_of_2(min(launch.step, launch.stop - launch.start))
        rows = max(1, TILE // cols)
        for of_segments in (True, False) if split else (False,):
            number = num_segments - 1 if of_segments else edges.num_rows
            if number == 0 or launch.count == 0:
                continue
            edge_pass_kernel[tiles(number, rows), launch.count](
                edges.indptr,
                edges.index,
                edges.edges if values is not None or products is not None else None,
                edges.ids,
                values if out is not None else None,
                own,
                x,
                partial,
                partial if of_segments else out,
                products,
                edges.num_rows,
                num_segments,
                edges.num_rows.bit_length(),
                0 if own is None else own.stride(0),
                x.stride(0),
                x.shape[1],
                num_slots,
                launch.slot,
                launch.start,
                launch.step,
                launch.stop,
                SLOT_STEP=launch.slot_step,
                OF_SEGMENTS=of_segments,
                SPLIT=split and not of_segments,
                ADD=launch.add,
                LONG=LONG,
                UNROLL=unroll if products is None else UNROLL_DOTS,
                ROWS=rows,
                COLS=cols,
                **ONE_WARP,
            )


def _launches(heads: Sequence[Heads], widest: int, dots: bool) -> Iterator[_Launch]:
    """Launches over all columns. If several have columns of a slot, later ones add to its inner products (`dots`)."""
    seen: set[int] = set()
    for start, width, count, slot in heads:
        if width <= widest:
            yield _Launch(start, width, start + count * width, count if width else 0, slot, 1, slot in seen)
        for head in range(count if width > widest else 0):
            first = start + head * width
            if not dots:
                yield _Launch(first, widest, first + width, tiles(width, widest), slot + head, 0)
                continue
            for column in range(first, first + width, widest):
                stop, add = min(column + widest, first + width), column > first or slot + head in seen
                yield _Launch(column, stop - column, stop, 1, slot + head, 0, add)
        seen.update(range(slot, slot + count))
