"""Attention weights of GAT in Triton: scores, softmax over a destination's edges and dropout in one kernel.

As in `gnnexp.kernels.rows.attention`, the sign of a weight records whether the score was positive, so the backward pass
needs neither scores nor keys. One warp has one destination, and takes several edges and all heads at once. The sums
over edges are therefore sums of trees, and differ from the CPU's in rounding.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gnnexp.kernels.cuda.aggregate import Edges
from gnnexp.kernels.cuda.counter import absorb
from gnnexp.kernels.cuda.dropout import EdgeIdentity, edge_bits, edges_of_tile
from gnnexp.kernels.cuda.launch import KEYS, ONE_WARP, power_of_2
from gnnexp.kernels.rows.dropout import survivor_scale


@triton.jit
def _score(
    src_key: tl.tensor, own: tl.tensor, source: tl.tensor, head: tl.tensor, inside: tl.tensor, num_heads: tl.tensor
) -> tl.tensor:
    """`[edges, heads]` sums of both keys."""
    return tl.load(src_key + source[:, None] * num_heads + head[None, :], mask=inside, other=0) + own[None, :]


@triton.jit
def _inverse(x: tl.tensor) -> tl.tensor:
    """1 / x with correct rounding; in float32 the operator `/` is only approximate."""
    one = x * 0 + 1
    return tl.div_rn(one, x) if x.dtype == tl.float32 else one / x


@triton.jit(do_not_specialize_on_alignment=KEYS)
def weigh_kernel(
    indptr: tl.tensor,
    index: tl.tensor,
    src_key: tl.tensor,
    dst_key: tl.tensor,
    signed: tl.tensor,
    weight: tl.tensor,
    src_ids: tl.tensor,
    dst_ids: tl.tensor,
    edge_types: tl.tensor,
    occurrence: tl.tensor,
    key: tl.tensor,
    threshold: tl.tensor,
    num_heads: tl.tensor,
    SLOPE: tl.constexpr,
    SCALE: tl.constexpr,
    LOOPS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
) -> None:
    """The weights of one destination's edges, before (`signed`) and after dropout (`weight`), which has a `key`."""
    row, head = tl.program_id(0).to(tl.int64), tl.arange(0, HEADS)
    in_heads = head < num_heads
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    own = tl.load(dst_key + row * num_heads + head, mask=in_heads, other=0)
    peak = own * 0 - float("inf")
    for first in range(begin, end, EDGES):
        e = first + tl.arange(0, EDGES)
        inside = (e < end)[:, None] & in_heads[None, :]
        source = tl.load(index + e, mask=e < end, other=0).to(tl.int64)
        score = _score(src_key, own, source, head, inside, num_heads)
        score = tl.where(score > 0, score, score * SLOPE)
        peak = tl.maximum(peak, tl.max(tl.where(inside, score, -float("inf")), 0))
    mass = own * 0
    for first in range(begin, end, EDGES):
        e = first + tl.arange(0, EDGES)
        inside = (e < end)[:, None] & in_heads[None, :]
        source = tl.load(index + e, mask=e < end, other=0).to(tl.int64)
        score = _score(src_key, own, source, head, inside, num_heads)
        value = tl.exp(tl.where(score > 0, score, score * SLOPE) - peak[None, :])
        mass += tl.sum(tl.where(inside, value, 0.0), 0)
    share_of_one = _inverse(mass)
    if key is not None:
        dst_state = absorb(tl.load(key).to(tl.uint64), tl.load(dst_ids + row).to(tl.int64).to(tl.uint64))
    for first in range(begin, end, EDGES):
        e = first + tl.arange(0, EDGES)
        inside = (e < end)[:, None] & in_heads[None, :]
        source = tl.load(index + e, mask=e < end, other=0).to(tl.int64)
        score = _score(src_key, own, source, head, inside, num_heads)
        share = tl.exp(tl.where(score > 0, score, score * SLOPE) - peak[None, :]) * share_of_one[None, :]
        place = e[:, None] * num_heads + head[None, :]
        tl.store(signed + place, tl.where(score > 0, share, -share), mask=inside)
        if key is not None:
            bits = edge_bits(dst_state, src_ids, edge_types, occurrence, source, e, end, head, LOOPS)
            share = tl.where(bits >= threshold, share * SCALE, 0.0)
        tl.store(weight + place, share, mask=inside)


@triton.jit
def _share_and_gradient(
    signed: tl.tensor, weight: tl.tensor, gradient: tl.tensor, place: tl.tensor, inside: tl.tensor, SCALE: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Signed weights, and the gradient of the weights before dropout; a weight that is not positive was dropped."""
    share = tl.load(signed + place, mask=inside, other=0)
    above = tl.load(gradient + place, mask=inside, other=0)
    if weight is not None:
        above = tl.where(tl.load(weight + place, mask=inside, other=0) > 0, above * SCALE, 0.0)
    return share, above


@triton.jit
def unweigh_kernel(
    indptr: tl.tensor,
    signed: tl.tensor,
    weight: tl.tensor,
    gradient: tl.tensor,
    change: tl.tensor,
    of_dst: tl.tensor,
    num_heads: tl.tensor,
    SLOPE: tl.constexpr,
    SCALE: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
) -> None:
    """Backward of `weigh_kernel` for one destination: gradients of the scores, and of the destination's key."""
    row, head = tl.program_id(0).to(tl.int64), tl.arange(0, HEADS)
    in_heads = head < num_heads
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    mean = tl.zeros((HEADS,), signed.dtype.element_ty)
    for first in range(begin, end, EDGES):
        e = first + tl.arange(0, EDGES)
        inside = (e < end)[:, None] & in_heads[None, :]
        place = e[:, None] * num_heads + head[None, :]
        share, above = _share_and_gradient(signed, weight, gradient, place, inside, SCALE)
        mean += tl.sum(tl.abs(share) * above, 0)
    total = mean * 0
    for first in range(begin, end, EDGES):
        e = first + tl.arange(0, EDGES)
        inside = (e < end)[:, None] & in_heads[None, :]
        place = e[:, None] * num_heads + head[None, :]
        share, above = _share_and_gradient(signed, weight, gradient, place, inside, SCALE)
        moved = tl.abs(share) * (above - mean[None, :])
        moved = tl.where(share > 0, moved, moved * SLOPE)
        tl.store(change + place, moved, mask=inside)
        total += tl.sum(tl.where(inside, moved, 0.0), 0)
    tl.store(of_dst + row * num_heads + head, total, mask=in_heads)


def weigh(
    edges: Edges,
    identity: EdgeIdentity | None,
    src_key: Tensor,
    dst_key: Tensor,
    slope: float,
    key: Tensor | None,
    threshold: int,
) -> tuple[Tensor, Tensor]:
    """Attention weights softmax(LeakyReLU(src_key + dst_key)) over the in-edges of each destination, then dropout.

    Args:
        edges: edges of the block.
        identity: identity of the edges; None without dropout.
        src_key: `[S, K]`.
        dst_key: `[D, K]`.
        slope: slope of the LeakyReLU below 0.
        key: key of the mask; None without dropout.
        threshold: a weight is dropped if its 16 random bits are below this.

    Returns:
        `[E, K]` weights before dropout, negative where the score was not positive, and `[E, K]` weights after it.
    """
    assert edges.index is not None
    num_edges, heads = edges.index.numel(), src_key.shape[1]
    signed, weight = (src_key.new_empty(num_edges, heads) for _ in range(2))
    if signed.numel():
        parts = (None,) * 4 if identity is None else identity[:4]
        weigh_kernel[edges.num_rows,](
            edges.indptr,
            edges.index,
            src_key.detach().contiguous(),
            dst_key.detach().contiguous(),
            signed,
            weight,
            *parts,
            key,
            threshold,
            heads,
            SLOPE=slope,
            SCALE=survivor_scale(threshold),
            LOOPS=identity is not None and identity.self_loops,
            EDGES=edges_of_tile(heads),
            HEADS=power_of_2(heads),
            **ONE_WARP,
        )
    return signed, weight


def unweigh(
    edges: Edges, signed: Tensor, weight: Tensor | None, gradient: Tensor, slope: float, threshold: int
) -> tuple[Tensor, Tensor]:
    """Backward of `weigh`: `[E, K]` gradients of the scores, and `[D, K]` their sums per destination.

    Args:
        edges: edges of the block.
        signed: `[E, K]` from `weigh`.
        weight: `[E, K]` from `weigh`; None without dropout.
        gradient: `[E, K]` gradient of the weights after dropout.
        slope: slope of the LeakyReLU below 0.
        threshold: of the dropout.
    """
    heads = signed.shape[1]
    change, of_dst = torch.empty_like(signed), signed.new_empty(edges.num_rows, heads)
    if of_dst.numel():
        unweigh_kernel[edges.num_rows,](
            edges.indptr,
            signed,
            weight,
            gradient.contiguous(),
            change,
            of_dst,
            heads,
            SLOPE=slope,
            SCALE=survivor_scale(threshold),
            EDGES=edges_of_tile(heads),
            HEADS=power_of_2(heads),
            **ONE_WARP,
        )
    return change, of_dst
