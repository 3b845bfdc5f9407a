"""Autograd functions of the row kernels. Buffers are pooled, and slices are not copied."""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.rows.aggregate import Edges, Group, dot_rows, groups, matrix, sum_and_dot_rows, sum_rows
from gnnexp.kernels.rows.dropout import drop_rows, keep_positive
from gnnexp.kernels.rows.outer import inner_rows, outer_dot_rows, outer_rows
from gnnexp.ops.backend import Drop
from gnnexp.ops.first_order import FirstOrderFunction

_NUMPY: dict[torch.dtype, type[np.floating]] = {torch.float32: np.float32, torch.float64: np.float64}


def pooled(pool: Pool, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """An uninitialised tensor in a pooled buffer, with the dtype of `like`."""
    return torch.from_numpy(pool.empty(shape, _NUMPY[like.dtype]))


def flat(x: Tensor) -> np.ndarray:
    """All elements in one dimension; a view if `x` is contiguous."""
    return x.detach().contiguous().view(-1).numpy()


def forward_edges(block: Block) -> Edges:
    """Edges by destination."""
    return Edges(block.indptr.numpy(), block.sources.numpy())


def backward_edges(block: Block) -> Edges:
    """Edges by source; the transpose is built once per block, when it is first needed."""
    turned = block.transpose
    return Edges(turned.indptr.numpy(), turned.destinations.numpy(), turned.edges.numpy())


class Aggregate(FirstOrderFunction):
    """`NeighbourSums.aggregate`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, block: Block, parts: list[Group], pool: Pool) -> Tensor:
        """Sum over in-edges."""
        assert x.shape[0] == block.num_src, "one row per source of the block"
        ctx.block, ctx.parts, ctx.pool = block, parts, pool
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        out = pooled(pool, (block.num_dst, x.shape[1]), x)
        values, slots = _weights(weight, x)
        sum_rows(forward_edges(block), matrix(x), matrix(out), values, slots, parts)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """Sums over out-edges for x, inner products along edges for the weights; one pass if both are needed."""
        x, weight = ctx.saved_tensors
        block, parts, pool = ctx.block, ctx.parts, ctx.pool
        for_x, for_weight = ctx.needs_input_grad[:2]
        (values, slots), dy = _weights(weight, gradient), matrix(gradient)
        dx = pooled(pool, (block.num_src, gradient.shape[1]), gradient) if for_x else None
        products = None
        if for_weight:
            products = pooled(pool, (block.num_edges, slots), gradient)
            if {group.slot + h for group in parts for h in range(group.heads)} != set(range(slots)):
                products.zero_()
        if dx is not None and products is not None:
            sum_and_dot_rows(backward_edges(block), matrix(x), dy, matrix(dx), flat(products), values, slots, parts)
        elif dx is not None:
            sum_rows(backward_edges(block), dy, matrix(dx), values, slots, parts)
        elif products is not None:
            dot_rows(forward_edges(block), dy, matrix(x), flat(products), slots, parts)
        return dx, products, None, None, None


class AggregateScaled(FirstOrderFunction):
    """`NeighbourSums.aggregate_scaled`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, block: Block, pool: Pool) -> Tensor:
        """Sum over in-edges. The source of an edge is the position of its weight."""
        assert x.shape[0] == scale.numel() == block.num_src, "one row and one scale per source of the block"
        ctx.block, ctx.pool = block, pool
        ctx.save_for_backward(scale)
        out = pooled(pool, (block.num_dst, x.shape[1]), x)
        sources = block.sources.numpy()
        by_source = Edges(block.indptr.numpy(), sources, sources)
        sum_rows(by_source, matrix(x), matrix(out), flat(scale), 1, groups(x.shape[1], 1, x.element_size()))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Unweighted sums over out-edges, which are then scaled."""
        (scale,) = ctx.saved_tensors
        return spread(gradient, None, ctx.block, ctx.pool).mul_(scale.unsqueeze(1)), None, None, None


def spread(gradient: Tensor, weight: Tensor | None, block: Block, pool: Pool) -> Tensor:
    """`[S, d]`: weighted sums over out-edges."""
    dx = pooled(pool, (block.num_src, gradient.shape[1]), gradient)
    values, slots = _weights(weight, gradient)
    parts = groups(gradient.shape[1], 0 if weight is None else 1, gradient.element_size())
    sum_rows(backward_edges(block), matrix(gradient), matrix(dx), values, slots, parts)
    return dx


def _weights(weight: Tensor | None, like: Tensor) -> tuple[np.ndarray, int]:
    """Flat weights, empty for ones, and the number of weights per edge."""
    return (np.empty(0, _NUMPY[like.dtype]), 1) if weight is None else (flat(weight), weight.shape[1])


class AggregateOuter(FirstOrderFunction):
    """`NeighbourSums.aggregate_outer`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, block: Block, pool: Pool) -> Tensor:
        """Sum over in-edges for each weight column."""
        assert x.shape[0] == block.num_src, "one row per source of the block"
        ctx.block, ctx.pool = block, pool
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        heads, width = weight.shape[1], x.shape[1]
        out = pooled(pool, (block.num_dst, heads, width), x)
        outer_rows(forward_edges(block), matrix(x), flat(out), flat(weight), heads, width)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Transposed sums for x, and inner products along edges for the weights."""
        x, weight = ctx.saved_tensors
        heads, width, dy = weight.shape[1], gradient.shape[2], flat(gradient)
        dx = products = None
        if ctx.needs_input_grad[0]:
            dx = pooled(ctx.pool, (ctx.block.num_src, width), gradient)
            inner_rows(backward_edges(ctx.block), dy, flat(dx), flat(weight), heads, width)
        if ctx.needs_input_grad[1]:
            products = pooled(ctx.pool, (ctx.block.num_edges, heads), gradient)
            outer_dot_rows(forward_edges(ctx.block), dy, matrix(x), flat(products), heads, width)
        return dx, products, None, None


class Dropout(FirstOrderFunction):
    """`RowDropout.dropout`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int, pool: Pool
    ) -> Tensor:
        """Multiply by mask and scale."""
        ctx.save_for_backward(ids)
        ctx.rest = drop, num_columns, first_column, pool
        return _dropped(x, ids, drop, num_columns, first_column, pool, relu=False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        """Multiply by the same mask and scale."""
        (ids,) = ctx.saved_tensors
        return _dropped(gradient, ids, *ctx.rest, relu=False), None, None, None, None, None


class ReluDropout(FirstOrderFunction):
    """`RowDropout.relu_dropout`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int, pool: Pool
    ) -> Tensor:
        """max(x, 0), multiplied by mask and scale."""
        out = _dropped(x, ids, drop, num_columns, first_column, pool, relu=True)
        ctx.save_for_backward(out)
        ctx.threshold, ctx.pool = drop.threshold, pool
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        """The scaled gradient where the output is positive, else 0."""
        (output,) = ctx.saved_tensors
        dx = pooled(ctx.pool, tuple(output.shape), output)
        keep_positive(flat(output), flat(gradient), flat(dx), ctx.threshold)
        return dx, None, None, None, None, None


def _dropped(
    x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int, pool: Pool, *, relu: bool
) -> Tensor:
    out = pooled(pool, tuple(x.shape), x)
    rows, stop = matrix(x), first_column + x.shape[1]
    drop_rows(
        rows.values,
        rows.stride,
        flat(out),
        ids.numpy(),
        drop.key,
        drop.threshold,
        num_columns,
        first_column,
        stop,
        relu=relu,
    )
    return out
