"""The CPU kernels of `gnnexp.kernels` as differentiable operations, with outputs and gradients in pooled buffers.

Kernels run on numba's threads (`NUMBA_NUM_THREADS`). The launcher sets `NUMBA_THREADING_LAYER=omp` for workers. With
`workqueue` short rows take twice as long, and two threads of a process must not use it at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.rows.aggregate import Group, chunks, groups
from gnnexp.kernels.rows.dropout import drop_sparse
from gnnexp.kernels.rows.layout import max_width
from gnnexp.ops.backend import Backend, Drop, EdgeWeights, NeighbourSums, RowDropout
from gnnexp.ops.first_order import applied
from gnnexp.ops.functions import Aggregate, AggregateOuter, AggregateScaled, Dropout, ReluDropout, spread
from gnnexp.ops.functions_edge import AttentionWeight, EdgeDropout, EdgeExp, EdgeScore, EdgeSum, edge_peak


def column_groups(column: Tensor, num_slots: int, itemsize: int) -> list[Group]:
    """Passes over columns with the weights `column` `[d]`; heads of equal width and in order share a pass."""
    slots, width = column.tolist(), int(column.numel())
    if width % num_slots == 0 and slots == [j // (width // num_slots) for j in range(width)]:
        return groups(width, num_slots, itemsize)
    starts = [j for j in range(width) if j == 0 or slots[j] != slots[j - 1]]
    return [
        Group(start + shift, piece, slots[start], 1)
        for start, stop in zip(starts, [*starts[1:], width], strict=True)
        for shift, piece in chunks(stop - start, max_width(itemsize))
    ]


@dataclass(frozen=True, eq=False)
class NumbaSums(NeighbourSums):
    """Register-blocked, prefetching, multi-threaded sums; they do not depend on the number of threads.

    Attributes:
        pool: memory of outputs and gradients.
    """

    pool: Pool

    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None, column: Tensor | None) -> Tensor:
        """`kernels.aggregate`; the backward pass reads the block's transpose."""
        width, itemsize = x.shape[1], x.element_size()
        if width == 0:
            return x.new_zeros(block.num_dst, 0)
        if weight is None:
            parts = groups(width, 0, itemsize)
        elif column is None:
            assert weight.shape[1] == 1, "several weights per edge need `column`"
            parts = groups(width, 1, itemsize)
        else:
            parts = column_groups(column, weight.shape[1], itemsize)
        return applied(Aggregate, x, weight, block, parts, self.pool)

    def aggregate_scaled(self, block: Block, x: Tensor, scale: Tensor) -> Tensor:
        """Scales are read by source, so they stay in a cache. The backward pass needs no weights."""
        if x.shape[1] == 0:
            return x.new_zeros(block.num_dst, 0)
        return applied(AggregateScaled, x, scale, block, self.pool)

    def spread(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """One pass over the block's transpose."""
        if gradient.shape[1] == 0:
            return gradient.new_zeros(block.num_src, 0)
        return spread(gradient, weight, block, self.pool)

    def aggregate_outer(self, block: Block, x: Tensor, weight: Tensor) -> Tensor:
        """`kernels.outer`: one gather of the rows for all heads."""
        if x.shape[1] == 0:
            return x.new_zeros(block.num_dst, weight.shape[1], 0)
        return applied(AggregateOuter, x, weight, block, self.pool)


@dataclass(frozen=True, eq=False)
class NumbaEdges(EdgeWeights):
    """Passes over the edges of destinations, by several threads.

    Attributes:
        pool: memory of outputs and gradients.
    """

    pool: Pool

    def score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
        """One pass over the edges."""
        return applied(EdgeScore, src_key, dst_key, block, self.pool)

    def max(self, block: Block, score: Tensor) -> Tensor:
        """One pass over the edges."""
        return edge_peak(score, block, self.pool)

    def exp(self, block: Block, score: Tensor, peak: Tensor) -> Tensor:
        """One pass over the edges."""
        return applied(EdgeExp, score, peak, block, self.pool)

    def sum(self, block: Block, weight: Tensor) -> Tensor:
        """One pass over the edges."""
        return applied(EdgeSum, weight, block, self.pool)

    def dropout(self, block: Block, weight: Tensor, drop: Drop) -> Tensor:
        """One pass; the backward pass draws the mask again."""
        return weight if drop.threshold == 0 else applied(EdgeDropout, weight, block, drop, self.pool)

    def attention_weight(
        self, block: Block, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """Scores, maxima, exponentials and sums in one kernel."""
        return applied(AttentionWeight, src_key, dst_key, block, slope, drop, self.pool)


@dataclass(frozen=True, eq=False)
class NumbaRows(RowDropout):
    """Passes over rows, by several threads.

    Attributes:
        pool: memory of outputs and gradients.
    """

    pool: Pool

    def dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """One pass; the backward pass draws the mask again."""
        return x if drop.threshold == 0 else applied(Dropout, x, ids, drop, num_columns, first_column, self.pool)

    def relu_dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """One pass; the backward pass reads the mask from the output."""
        return applied(ReluDropout, x, ids, drop, num_columns, first_column, self.pool)

    def sparse_dropout(self, rows: SparseRows, ids: Tensor, drop: Drop) -> SparseRows:
        """One pass over the nonzeros."""
        values = drop_sparse(
            rows.indptr.numpy(),
            rows.columns.numpy(),
            np.ascontiguousarray(rows.values.numpy()),
            ids.numpy(),
            drop.key,
            drop.threshold,
            rows.num_columns,
        )
        return SparseRows(rows.indptr, rows.columns, torch.from_numpy(values), rows.num_columns)


def numba_backend(pool: Pool | None = None) -> Backend:
    """Numba's kernels, with outputs and gradients in `pool`, by default one of its own."""
    pool = pool or Pool()
    return Backend("numba", NumbaSums(pool), NumbaEdges(pool), NumbaRows(pool), pool, reads_transpose=True)
