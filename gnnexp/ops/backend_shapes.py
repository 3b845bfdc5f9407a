"""Operations of the counting mode: results have the right shapes, and no values (`gnnexp.kernels.shape_tensor`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.shape_tensor import shaped
from gnnexp.ops.backend import Backend, Drop, EdgeWeights, NeighbourSums, RowDropout
from gnnexp.ops.first_order import FirstOrderFunction, applied


class _Result(FirstOrderFunction):
    """A result of a shape, with gradients of the shapes of its inputs."""

    @staticmethod
    def forward(ctx: Any, shape: Sequence[int], *inputs: Tensor | None) -> Tensor:  # noqa: ANN401
        ctx.of = [None if value is None else (tuple(value.shape), value.dtype) for value in inputs]
        first = next(value for value in inputs if value is not None)
        return shaped(shape, first.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        return None, *(
            shaped(*of) if of is not None and needed else None
            for of, needed in zip(ctx.of, ctx.needs_input_grad[1:], strict=True)
        )


def _result(shape: Sequence[int], *inputs: Tensor | None) -> Tensor:
    return applied(_Result, tuple(shape), *inputs)


class ShapeSums(NeighbourSums):
    """See `NeighbourSums`."""

    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None, column: Tensor | None) -> Tensor:
        """`[D, d]`."""
        return _result((block.num_dst, x.shape[1]), x, weight)

    def aggregate_outer(self, block: Block, x: Tensor, weight: Tensor) -> Tensor:
        """`[D, K, d]`."""
        return _result((block.num_dst, weight.shape[1], x.shape[1]), x, weight)


class ShapeEdges(EdgeWeights):
    """See `EdgeWeights`."""

    def score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
        """`[E, K]`."""
        return _result((block.num_edges, src_key.shape[1]), src_key, dst_key)

    def max(self, block: Block, score: Tensor) -> Tensor:
        """`[D, K]`."""
        return shaped((block.num_dst, score.shape[1]), score.dtype)

    def exp(self, block: Block, score: Tensor, peak: Tensor) -> Tensor:
        """`[E, K]`."""
        return _result(score.shape, score)

    def sum(self, block: Block, weight: Tensor) -> Tensor:
        """`[D, K]`."""
        return _result((block.num_dst, weight.shape[1]), weight)

    def dropout(self, block: Block, weight: Tensor, drop: Drop) -> Tensor:
        """`[E, K]`."""
        return _result(weight.shape, weight)

    def attention_weight(
        self, block: Block, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """`[E, K]`."""
        return _result((block.num_edges, src_key.shape[1]), src_key, dst_key)


class ShapeRows(RowDropout):
    """See `RowDropout`."""

    def dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """The shape of `x`."""
        return _result(x.shape, x)

    def relu_dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """The shape of `x`."""
        return _result(x.shape, x)

    def sparse_dropout(self, rows: SparseRows, ids: Tensor, drop: Drop) -> SparseRows:
        """The rows: a dropped value is a zero that stays."""
        return rows


def shapes_of(backend: Backend) -> Backend:
    """Operations that return the shapes of the results of `backend`; what it reads and keeps stays the same."""
    return replace(backend, sums=ShapeSums(), edges=ShapeEdges(), rows=ShapeRows(), pool=None)
