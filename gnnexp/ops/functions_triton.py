"""Autograd functions of the Triton kernels; as in `functions.py`, backward passes read the block's transpose."""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import StoredRows
from gnnexp.kernels.cuda.aggregate import Edges, Heads, dot_rows, sum_and_dot_rows, sum_rows
from gnnexp.kernels.cuda.attention import unweigh, weigh
from gnnexp.kernels.cuda.dropout import EdgeIdentity, drop_edges, drop_rows, keep_positive
from gnnexp.kernels.cuda.edges import edge_operation
from gnnexp.kernels.cuda.outer import inner_rows, outer_dot_rows, outer_rows
from gnnexp.kernels.rows.attention import EdgeOperation
from gnnexp.kernels.words import signed
from gnnexp.ops.backend import Drop
from gnnexp.ops.first_order import FirstOrderFunction
from gnnexp.ops.shortcuts import add_at


def key_of(drop: Drop, like: Tensor) -> Tensor:
    """The key of the mask on the device of `like`, as one int64; filled in there if the step has not brought it."""
    if drop.word is not None:
        return drop.word
    return torch.full((), signed(drop.key), dtype=torch.int64, device=like.device)


def forward_edges(block: Block) -> Edges:
    """Edges by destination."""
    return Edges(block.indptr, block.sources)


def backward_edges(block: Block) -> Edges:
    """Edges by source."""
    turned = block.transpose
    return Edges(turned.indptr, turned.destinations, turned.edges)


def _identity(block: Block) -> EdgeIdentity:
    return EdgeIdentity(block.src_ids, block.dst_ids, block.edge_types, block.occurrence, block.self_loops)


def _sum_of_edges(block: Block, values: Tensor, *, by_source: bool) -> Tensor:
    """Sums of edge values `[E, K]` over the edges of either end."""
    edges = Edges(block.transpose.indptr, block.transpose.edges) if by_source else Edges(block.indptr, None)
    return sum_rows(edges, values, [Heads(0, values.shape[1])])


class Aggregate(FirstOrderFunction):
    """`NeighbourSums.aggregate`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, block: Block, heads: Sequence[Heads]) -> Tensor:
        """Sum over in-edges."""
        assert x.shape[0] == block.num_src, "one row per source of the block"
        ctx.block, ctx.heads = block, heads
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return sum_rows(forward_edges(block), x, heads, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Sums over out-edges for x, inner products along edges for the weights; one pass if both are needed."""
        x, weight = ctx.saved_tensors
        block, heads, (for_x, for_weight) = ctx.block, ctx.heads, ctx.needs_input_grad[:2]
        dx = products = None
        if for_x and for_weight:
            dx, products = sum_and_dot_rows(backward_edges(block), x, gradient, heads, weight)
        elif for_x:
            dx = sum_rows(backward_edges(block), gradient, heads, weight)
        elif for_weight:
            products = dot_rows(forward_edges(block), gradient, x, heads, weight.shape[1])
        return dx, products, None, None


class AggregateScaled(FirstOrderFunction):
    """`NeighbourSums.aggregate_scaled`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, block: Block) -> Tensor:
        """Sum over in-edges. The source of an edge is the position of its weight."""
        assert x.shape[0] == scale.numel() == block.num_src, "one row and one scale per source of the block"
        ctx.block = block
        ctx.save_for_backward(scale)
        by_source = Edges(block.indptr, block.sources, block.sources)
        return sum_rows(by_source, x, [Heads(0, x.shape[1])], scale.unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Unweighted sums over out-edges, which are then scaled."""
        (scale,) = ctx.saved_tensors
        return spread(gradient, None, ctx.block).mul_(scale.unsqueeze(1)), None, None


class AggregateStored(FirstOrderFunction):
    """`NeighbourSums.aggregate_stored`."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, weight: Tensor | None, scale: Tensor | None, block: Block, x: StoredRows
    ) -> tuple[Tensor, Tensor]:
        """Sum over in-edges, and read the rows of the destinations."""
        assert x.shape[0] == block.num_src, "one row per source of the block"
        ctx.block, ctx.kind = block, values.dtype
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weight, scale)
        edges = Edges(block.indptr, block.sources, None if scale is None else block.sources, x.ids)
        sums = sum_rows(edges, values, [Heads(0, x.shape[1])], weight if scale is None else scale.unsqueeze(1), x.dtype)
        return sums, x.rows(block.dst_places).to_dense()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, own: Tensor | None) -> tuple[Tensor | None, None, None, None, None]:
        """The sum of both gradients, rounded once. Autograd would round each of them."""
        weight, scale = ctx.saved_tensors
        block, like = ctx.block, own if gradient is None else gradient
        if like is None:
            return None, None, None, None, None
        if gradient is None:
            total = like.new_zeros(block.num_src, like.shape[1])
        else:
            total = spread(gradient, weight, block)
            total = total if scale is None else total.mul_(scale.unsqueeze(1))
        if own is not None:
            add_at(total, block.dst_places, own)
        return total.to(ctx.kind), None, None, None, None


def spread(gradient: Tensor, weight: Tensor | None, block: Block) -> Tensor:
    """`[S, d]`: weighted sums over out-edges."""
    return sum_rows(backward_edges(block), gradient, [Heads(0, gradient.shape[1])], weight)


class AggregateOuter(FirstOrderFunction):
    """`NeighbourSums.aggregate_outer`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, block: Block) -> Tensor:
        """Sum over in-edges for each weight column."""
        assert x.shape[0] == block.num_src, "one row per source of the block"
        ctx.block = block
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return outer_rows(forward_edges(block), x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Transposed sums for x, and inner products along edges for the weights."""
        x, weight = ctx.saved_tensors
        dx = inner_rows(backward_edges(ctx.block), gradient, weight) if ctx.needs_input_grad[0] else None
        products = outer_dot_rows(forward_edges(ctx.block), gradient, x) if ctx.needs_input_grad[1] else None
        return dx, products, None


class Dropout(FirstOrderFunction):
    """`RowDropout.dropout`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int) -> Tensor:
        """Multiply by mask and scale."""
        ctx.save_for_backward(ids)
        ctx.rest = key_of(drop, x), drop.threshold, num_columns, first_column
        return drop_rows(x, ids, *ctx.rest)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Multiply by the same mask and scale."""
        (ids,) = ctx.saved_tensors
        return drop_rows(gradient, ids, *ctx.rest), None, None, None, None


class ReluDropout(FirstOrderFunction):
    """`RowDropout.relu_dropout`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int, dtype: torch.dtype
    ) -> Tensor:
        """max(x, 0), multiplied by mask and scale, and rounded to `dtype`."""
        out = drop_rows(x, ids, key_of(drop, x), drop.threshold, num_columns, first_column, relu=True, dtype=dtype)
        ctx.save_for_backward(out)
        ctx.threshold, ctx.kind = drop.threshold, x.dtype
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        """The scaled gradient where the output is positive, else 0."""
        (output,) = ctx.saved_tensors
        return keep_positive(output, gradient, ctx.threshold, ctx.kind), None, None, None, None, None


class EdgeScore(FirstOrderFunction):
    """`EdgeWeights.score`."""

    @staticmethod
    def forward(ctx: Any, src_key: Tensor, dst_key: Tensor, block: Block) -> Tensor:
        """Sum of both ends' keys."""
        ctx.block = block
        return edge_operation(EdgeOperation.SCORE, forward_edges(block), src_key, dst_key)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Sums over the edges of either end."""
        src, dst = (
            _sum_of_edges(ctx.block, gradient, by_source=by_source) if ctx.needs_input_grad[i] else None
            for i, by_source in enumerate((True, False))
        )
        return src, dst, None


class EdgeExp(FirstOrderFunction):
    """`EdgeWeights.exp`."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, peak: Tensor, block: Block) -> Tensor:
        """exp(score - peak)."""
        out = edge_operation(EdgeOperation.EXP, forward_edges(block), score, peak)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradient times the output."""
        (out,) = ctx.saved_tensors
        return gradient * out, None, None


class EdgeSum(FirstOrderFunction):
    """`EdgeWeights.sum`."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, block: Block) -> Tensor:
        """Sum over in-edges."""
        ctx.block = block
        return _sum_of_edges(block, weight, by_source=False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """For each edge, the gradient of its destination."""
        return edge_operation(EdgeOperation.SPREAD, forward_edges(ctx.block), gradient, gradient), None


class EdgeDropout(FirstOrderFunction):
    """`EdgeWeights.dropout`."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, block: Block, drop: Drop) -> Tensor:
        """Multiply by mask and scale."""
        ctx.rest = forward_edges(block), _identity(block), key_of(drop, weight), drop.threshold
        return _dropped(weight, *ctx.rest)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Multiply by the same mask and scale."""
        return _dropped(gradient, *ctx.rest), None, None


def _dropped(weight: Tensor, edges: Edges, identity: EdgeIdentity, key: Tensor, threshold: int) -> Tensor:
    return drop_edges(edges, identity, weight, key, threshold)


class AttentionWeight(FirstOrderFunction):
    """GAT's weights: LeakyReLU scores, softmax over in-edges, dropout."""

    @staticmethod
    def forward(ctx: Any, src_key: Tensor, dst_key: Tensor, block: Block, slope: float, drop: Drop | None) -> Tensor:
        """Weights of all edges."""
        assert src_key.shape[0] == block.num_src and dst_key.shape[0] == block.num_dst, "one key per vertex"
        threshold = 0 if drop is None else drop.threshold
        identity, key = (None, None) if drop is None or threshold == 0 else (_identity(block), key_of(drop, src_key))
        shares, weight = weigh(forward_edges(block), identity, src_key, dst_key, slope, key, threshold)
        ctx.save_for_backward(shares, None if key is None else weight)
        ctx.block, ctx.slope, ctx.threshold = block, slope, threshold
        return weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None, None]:
        """Gradient of the scores, summed over the edges of either end."""
        shares, weight = ctx.saved_tensors
        of_scores, dst = unweigh(forward_edges(ctx.block), shares, weight, gradient, ctx.slope, ctx.threshold)
        src = _sum_of_edges(ctx.block, of_scores, by_source=True) if ctx.needs_input_grad[0] else None
        return src, dst, None, None, None
