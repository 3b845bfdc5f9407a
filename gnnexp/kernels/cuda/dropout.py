"""Dropout in Triton with the masks of `gnnexp.kernels.rows.dropout`, bit for bit.

Keys are int64 tensors with one element, because a captured CUDA graph would repeat a number. The factor of kept values
is a compile-time constant: Triton passes a number as float32, and float64 needs all of its bits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gnnexp.kernels.cuda.aggregate import Edges
from gnnexp.kernels.cuda.counter import absorb, draw
from gnnexp.kernels.cuda.launch import COUNTS, EXACT, KEYS, ONE_WARP, flat, power_of_2, rows_of, tiles
from gnnexp.kernels.rows import dropout as cpu

_STEP, _MUL1, _MUL2 = tl.constexpr(cpu.STEP), tl.constexpr(cpu.MUL1), tl.constexpr(cpu.MUL2)
_ADDED_LOOP = tl.constexpr(int(cpu.ADDED_LOOP))
# Floats of a tile of four warps: 8 for each lane.
_TILE = 1024


class EdgeIdentity(NamedTuple):
    """The identity of every edge of a block; None for what its edges do not have.

    Attributes:
        src_ids: `[S]` original ids of the sources.
        dst_ids: `[D]` original ids of the destinations.
        edge_types: `[E]`.
        occurrence: `[E]`, -1 for an added self loop.
        self_loops: whether the last edge of every destination is an added self loop.
    """

    src_ids: Tensor
    dst_ids: Tensor
    edge_types: Tensor | None
    occurrence: Tensor | None
    self_loops: bool


@triton.jit
def _column_bits(state: tl.tensor, column: tl.tensor, half: tl.tensor) -> tl.tensor:
    """16 random bits for each row key `state` (uint64) and column, as int32; shapes broadcast.

    One word of 32 bits serves the columns c and c + `half`, where `half` is half of the columns, rounded up.
    """
    upper = column >= half
    word = state.to(tl.uint32) + tl.where(upper, column - half, column).to(tl.uint32) * _STEP
    word = (word ^ (word >> 16)) * _MUL1
    word = (word ^ (word >> 15)) + (state >> 32).to(tl.uint32)
    word = word * _MUL2
    word = word ^ (word >> 16)
    return tl.where(upper, word >> 16, word & 0xFFFF).to(tl.int32)


@triton.jit
def _row_state(key: tl.tensor, ids: tl.tensor) -> tl.tensor:
    """The keys of rows with original ids `ids`."""
    return absorb(tl.load(key).to(tl.uint64), ids.to(tl.int64).to(tl.uint64))


@triton.jit
def _to_bfloat16(value: tl.tensor) -> tl.tensor:
    """float32 rounded to nearest, ties to even: a GPU's own conversion, which Triton's interpreter lacks."""
    bits = value.to(tl.uint32, bitcast=True)
    is_number = (bits & 0x7FFFFFFF) <= 0x7F800000
    bits = tl.where(is_number, bits + 0x7FFF + ((bits >> 16) & 1), 0x7FC00000)
    return (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit(do_not_specialize=COUNTS, do_not_specialize_on_alignment=KEYS)
def drop_rows_kernel(
    x: tl.tensor,
    places: tl.tensor,
    out: tl.tensor,
    ids: tl.tensor,
    key: tl.tensor,
    threshold: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    x_stride: tl.tensor,
    start: tl.tensor,
    half: tl.tensor,
    SCALE: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
) -> None:
    """Dropout of a tile of rows and columns, after ReLU if `RELU` is set. Values are scaled in the wider type."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLS + tl.arange(0, COLS)
    in_rows = row < num_rows
    inside = in_rows[:, None] & (column < width)[None, :]
    state = _row_state(key, tl.load(ids + row, mask=in_rows, other=0))
    bits = _column_bits(state[:, None], (start + column)[None, :], half)
    source = row
    if places is not None:
        source = tl.load(places + row, mask=in_rows, other=0).to(tl.int64)
    value = tl.load(x + source[:, None] * x_stride + column[None, :], mask=inside, other=0)
    if x.dtype.element_ty == tl.bfloat16:
        value = value.to(out.dtype.element_ty)
    scaled = value * SCALE
    if RELU:
        scaled = tl.where(value < 0, 0.0, scaled)
    kept = tl.where(bits >= threshold, scaled, 0.0)
    if out.dtype.element_ty == tl.bfloat16:
        kept = _to_bfloat16(kept)
    tl.store(out + row[:, None] * width + column[None, :], kept, mask=inside)


@triton.jit(do_not_specialize=COUNTS)
def keep_positive_kernel(
    output: tl.tensor, gradient: tl.tensor, out: tl.tensor, size: tl.tensor, SCALE: tl.constexpr, TILE: tl.constexpr
) -> None:
    """The scaled gradient where the output is positive, else 0. Output and gradient may be in bfloat16."""
    i = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = i < size
    scaled = tl.load(gradient + i, mask=inside, other=0).to(out.dtype.element_ty) * SCALE
    kept = tl.load(output + i, mask=inside, other=0).to(out.dtype.element_ty) > 0
    tl.store(out + i, tl.where(kept, scaled, 0.0), mask=inside)


@triton.jit(do_not_specialize_on_alignment=KEYS)
def drop_sparse_kernel(
    indptr: tl.tensor,
    columns: tl.tensor,
    values: tl.tensor,
    out: tl.tensor,
    ids: tl.tensor,
    key: tl.tensor,
    threshold: tl.tensor,
    half: tl.tensor,
    SCALE: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Dropout of the nonzeros of one row."""
    row = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    state = _row_state(key, tl.load(ids + row))
    for first in range(begin, end, TILE):
        i = first + tl.arange(0, TILE)
        inside = i < end
        bits = _column_bits(state, tl.load(columns + i, mask=inside, other=0), half)
        scaled = tl.load(values + i, mask=inside, other=0) * SCALE
        tl.store(out + i, tl.where(bits >= threshold, scaled, 0.0), mask=inside)


@triton.jit
def edge_bits(
    dst_state: tl.tensor,
    src_ids: tl.tensor,
    edge_types: tl.tensor,
    occurrence: tl.tensor,
    source: tl.tensor,
    e: tl.tensor,
    end: tl.tensor,
    head: tl.tensor,
    LOOPS: tl.constexpr,
) -> tl.tensor:
    """`[edges, heads]` int32: 16 random bits for the edges `e` before `end` of a destination whose id was absorbed."""
    inside = e < end
    src = tl.load(src_ids + source, mask=inside, other=0).to(tl.int64).to(tl.uint64)
    kind = src * 0  # type of the edge in the upper 32 bits, occurrence in the lower
    if edge_types is not None:
        kind = tl.load(edge_types + e, mask=inside, other=0).to(tl.int64).to(tl.uint64) << 32
    if occurrence is not None:
        kind |= tl.load(occurrence + e, mask=inside, other=0).to(tl.int64).to(tl.uint64) & 0xFFFFFFFF
    elif LOOPS:
        kind |= (e + 1 == end).to(tl.uint64) * _ADDED_LOOP
    state = draw(dst_state, src)
    state = tl.where(kind != 0, absorb(state, kind), state)[:, None]
    # A word of 64 bits serves four heads.
    group = (head >> 2).to(tl.uint64)[None, :]
    word = tl.where(group == 0, state, draw(state, group))
    return ((word >> ((head & 3) * 16).to(tl.uint64)[None, :]) & 0xFFFF).to(tl.int32)


@triton.jit(do_not_specialize_on_alignment=KEYS)
def drop_edges_kernel(
    indptr: tl.tensor,
    index: tl.tensor,
    src_ids: tl.tensor,
    dst_ids: tl.tensor,
    edge_types: tl.tensor,
    occurrence: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    key: tl.tensor,
    threshold: tl.tensor,
    num_heads: tl.tensor,
    SCALE: tl.constexpr,
    LOOPS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
) -> None:
    """Dropout of the weights of one destination's edges."""
    row, head = tl.program_id(0).to(tl.int64), tl.arange(0, HEADS)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    dst_state = _row_state(key, tl.load(dst_ids + row))
    for first in range(begin, end, EDGES):
        e = first + tl.arange(0, EDGES)
        inside = (e < end)[:, None] & (head < num_heads)[None, :]
        source = tl.load(index + e, mask=e < end, other=0).to(tl.int64)
        bits = edge_bits(dst_state, src_ids, edge_types, occurrence, source, e, end, head, LOOPS)
        place = e[:, None] * num_heads + head[None, :]
        scaled = tl.load(weight + place, mask=inside, other=0) * SCALE
        tl.store(out + place, tl.where(bits >= threshold, scaled, 0.0), mask=inside)


def drop_rows(
    x: Tensor,
    ids: Tensor,
    key: Tensor,
    threshold: int,
    num_columns: int,
    start: int,
    *,
    relu: bool = False,
    places: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Dropout of N rows of `x` `[.., d]`, the columns from `start` on of a matrix with `num_columns` columns.

    Args:
        x: rows; if `relu` is set, negative values become 0 first.
        ids: `[N]` original vertex ids.
        key: key of the mask, one element.
        threshold: a value is dropped if its 16 random bits are below this; 0 keeps all values, 65536 drops all.
        num_columns: columns of the whole matrix.
        start: first column of the whole matrix that is in `x`.
        relu: whether to take max(x, 0) first.
        places: `[N]` numbers of the rows in `x`; None: all rows in order.
        dtype: of the result: another float type for rows in bfloat16, or bfloat16 for float32; None: that of the rows.
    """
    x, width, num_rows = rows_of(x), x.shape[1], x.shape[0] if places is None else places.numel()
    out = x.new_empty(num_rows, width, dtype=dtype)
    cols = min(128, power_of_2(width))
    if out.numel():
        drop_rows_kernel[tiles(num_rows, _TILE // cols), tiles(width, cols)](
            x,
            places,
            out,
            ids,
            key,
            threshold,
            num_rows,
            width,
            x.stride(0),
            start,
            (num_columns + 1) // 2,
            SCALE=cpu.survivor_scale(threshold),
            RELU=relu,
            ROWS=_TILE // cols,
            COLS=cols,
            **EXACT,
        )
    return out


def keep_positive(output: Tensor, gradient: Tensor, threshold: int, dtype: torch.dtype | None = None) -> Tensor:
    """Backward of ReLU and dropout without a hash: the kept values are those with positive `output`.

    Args:
        output: result of `drop_rows` with `relu`. Positive values below 5e-41 are 0 in bfloat16, so they are not kept.
        gradient: of the output.
        threshold: as in `drop_rows`.
        dtype: of the result; None: that of the gradient.
    """
    gradient = gradient.contiguous()
    out = torch.empty_like(gradient, dtype=dtype)
    if out.numel():
        keep_positive_kernel[tiles(out.numel(), _TILE),](
            output.contiguous(), gradient, out, out.numel(), SCALE=cpu.survivor_scale(threshold), TILE=_TILE, **EXACT
        )
    return out


def drop_sparse(
    indptr: Tensor, columns: Tensor, values: Tensor, ids: Tensor, key: Tensor, threshold: int, num_columns: int
) -> Tensor:
    """Dropout of the nonzeros of CSR rows by the mask of the dense matrix: new values `[nnz]`."""
    values, num_rows = flat(values), indptr.numel() - 1
    out = torch.empty_like(values)
    if num_rows and out.numel():
        drop_sparse_kernel[num_rows,](
            indptr,
            columns,
            values,
            out,
            ids,
            key,
            threshold,
            (num_columns + 1) // 2,
            SCALE=cpu.survivor_scale(threshold),
            TILE=64,
            **ONE_WARP,
        )
    return out


def drop_edges(edges: Edges, identity: EdgeIdentity, weight: Tensor, key: Tensor, threshold: int) -> Tensor:
    """Dropout of `weight` `[E, K]`, keyed by edge identity."""
    weight = weight.detach().contiguous()
    out, heads = torch.empty_like(weight), weight.shape[1]
    if edges.num_rows and out.numel():
        drop_edges_kernel[edges.num_rows,](
            edges.indptr,
            edges.index,
            identity.src_ids,
            identity.dst_ids,
            identity.edge_types,
            identity.occurrence,
            weight,
            out,
            key,
            threshold,
            heads,
            SCALE=cpu.survivor_scale(threshold),
            LOOPS=identity.self_loops,
            EDGES=edges_of_tile(heads),
            HEADS=power_of_2(heads),
            **ONE_WARP,
        )
    return out


def edges_of_tile(heads: int) -> int:
    """How many edges of a destination one warp takes at once: about 128 values of all heads, at most 32 edges."""
    return max(1, min(32, 128 // power_of_2(heads)))
