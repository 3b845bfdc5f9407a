"""Autograd functions of the edge kernels: attention weights, and the edge operations that they consist of."""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.rows.aggregate import Edges, Matrix, groups, matrix, sum_rows
from gnnexp.kernels.rows.attention import EdgeOperation, edge_operation, unweigh, weigh
from gnnexp.kernels.rows.dropout import drop_edges
from gnnexp.ops.backend import Drop
from gnnexp.ops.first_order import FirstOrderFunction
from gnnexp.ops.functions import backward_edges, flat, forward_edges, pooled

_ABSENT = np.empty(0, np.int32)


def _phase(phase: EdgeOperation, block: Block, a: Tensor, b: Tensor | None, num_rows: int, pool: Pool) -> Tensor:
    """`[num_rows, K]`: one pass of `edge_operation`; `b` is None if the phase reads `a` only."""
    out = pooled(pool, (num_rows, a.shape[1]), a)
    other = flat(a) if b is None else flat(b)
    edge_operation(phase, forward_edges(block), flat(a), other, a.shape[1], flat(out))
    return out


def _sum_by_source(rows: Tensor, block: Block, pool: Pool) -> Tensor:
    """`[S, K]` sums of edge values `[E, K]` over the out-edges of every source."""
    turned = backward_edges(block)
    out = pooled(pool, (block.num_src, rows.shape[1]), rows)
    none = np.empty(0, flat(rows[:0]).dtype)
    by_edge = Edges(turned.indptr, turned.edges)
    sum_rows(
        by_edge, matrix(rows), Matrix(flat(out), rows.shape[1]), none, 1, groups(rows.shape[1], 0, rows.element_size())
    )
    return out


def _drop_into(weight: Tensor, out: Tensor, block: Block, drop: Drop) -> None:
    types = _ABSENT if block.edge_types is None else block.edge_types.numpy()
    occurrence = _ABSENT if block.occurrence is None else block.occurrence.numpy()
    drop_edges(
        block.indptr.numpy(),
        block.sources.numpy(),
        block.src_ids.numpy(),
        block.dst_ids.numpy(),
        types,
        occurrence,
        block.self_loops,
        flat(weight),
        flat(out),
        weight.shape[1],
        drop.key,
        drop.threshold,
    )


def edge_peak(score: Tensor, block: Block, pool: Pool) -> Tensor:
    """`[D, K]` maximum over in-edges; has no gradient."""
    return _phase(EdgeOperation.MAX, block, score.detach(), None, block.num_dst, pool)


class EdgeScore(FirstOrderFunction):
    """`EdgeWeights.score`."""

    @staticmethod
    def forward(ctx: Any, src_key: Tensor, dst_key: Tensor, block: Block, pool: Pool) -> Tensor:
        """Sum of both ends' keys."""
        ctx.block, ctx.pool = block, pool
        return _phase(EdgeOperation.SCORE, block, src_key, dst_key, block.num_edges, pool)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Sums over the edges of either end."""
        block, pool = ctx.block, ctx.pool
        src = _sum_by_source(gradient, block, pool) if ctx.needs_input_grad[0] else None
        dst = _phase(EdgeOperation.SUM, block, gradient, None, block.num_dst, pool) if ctx.needs_input_grad[1] else None
        return src, dst, None, None


class EdgeExp(FirstOrderFunction):
    """`EdgeWeights.exp`."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, peak: Tensor, block: Block, pool: Pool) -> Tensor:
        """exp(score - peak)."""
        out = _phase(EdgeOperation.EXP, block, score, peak, block.num_edges, pool)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient times the output."""
        (out,) = ctx.saved_tensors
        return gradient * out, None, None, None


class EdgeSum(FirstOrderFunction):
    """`EdgeWeights.sum`."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, block: Block, pool: Pool) -> Tensor:
        """Sum over in-edges."""
        ctx.block, ctx.pool = block, pool
        return _phase(EdgeOperation.SUM, block, weight, None, block.num_dst, pool)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """For each edge, the gradient of its destination."""
        return _phase(EdgeOperation.SPREAD, ctx.block, gradient, gradient, ctx.block.num_edges, ctx.pool), None, None


class EdgeDropout(FirstOrderFunction):
    """`EdgeWeights.dropout`."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, block: Block, drop: Drop, pool: Pool) -> Tensor:
        """Multiply by mask and scale."""
        ctx.block, ctx.drop, ctx.pool = block, drop, pool
        out = pooled(pool, tuple(weight.shape), weight)
        _drop_into(weight, out, block, drop)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Multiply by the same mask and scale."""
        out = pooled(ctx.pool, tuple(gradient.shape), gradient)
        _drop_into(gradient, out, ctx.block, ctx.drop)
        return out, None, None, None


class AttentionWeight(FirstOrderFunction):
    """GAT's weights: LeakyReLU scores, softmax over in-edges, dropout."""

    @staticmethod
    def forward(
        ctx: Any, src_key: Tensor, dst_key: Tensor, block: Block, slope: float, drop: Drop | None, pool: Pool
    ) -> Tensor:
        """Weights of all edges."""
        assert src_key.shape[0] == block.num_src and dst_key.shape[0] == block.num_dst, "one key per vertex"
        heads = src_key.shape[1]
        signed, weight = (pooled(pool, (block.num_edges, heads), src_key) for _ in range(2))
        weigh(forward_edges(block), flat(src_key), flat(dst_key), heads, slope, flat(signed), flat(weight))
        if drop is not None and drop.threshold > 0:
            _drop_into(weight, weight, block, drop)
        ctx.save_for_backward(signed, weight)
        ctx.block, ctx.slope, ctx.scale, ctx.pool = block, slope, 1.0 if drop is None else drop.scale, pool
        return weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None, None, None]:
        """Gradient of the scores, summed over the edges of either end."""
        signed, weight = ctx.saved_tensors
        block, heads = ctx.block, weight.shape[1]
        score_gradient = pooled(ctx.pool, tuple(weight.shape), weight)
        dst = pooled(ctx.pool, (block.num_dst, heads), weight)
        unweigh(
            forward_edges(block),
            flat(signed),
            flat(weight),
            flat(gradient),
            ctx.scale,
            ctx.slope,
            heads,
            flat(score_gradient),
            flat(dst),
        )
        src = _sum_by_source(score_gradient, block, ctx.pool) if ctx.needs_input_grad[0] else None
        return src, dst, None, None, None, None
