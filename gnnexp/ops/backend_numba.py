"""The CPU kernels of `gnnexp.kernels` as differentiable operations; outputs and gradients live in pooled buffers.

Threads are numba's (`NUMBA_NUM_THREADS`). The launcher sets `NUMBA_THREADING_LAYER=omp` for workers: with `workqueue`
short rows take twice as long, and two threads of one process must not enter it at once.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.rows.aggregate import Group, chunks, groups
from gnnexp.kernels.rows.dropout import drop_sparse
from gnnexp.kernels.rows.gather import gather_rows
from gnnexp.kernels.rows.layout import max_width
from gnnexp.ops.backend import Backend, Drop
from gnnexp.ops.functions import Aggregate, AggregateOuter, AggregateScaled, Dropout, Gather, ReluDropout, spread
from gnnexp.ops.functions_edge import AttentionWeight, EdgeDropout, EdgeExp, EdgeScore, EdgeSum, edge_peak


def column_groups(column: Tensor, num_slots: int, itemsize: int) -> list[Group]:
    """Passes over columns whose weight slots are `column` `[d]`: whole heads together where equal and in order."""
    slots, width = column.tolist(), int(column.numel())
    if width % num_slots == 0 and slots == [j // (width // num_slots) for j in range(width)]:
        return groups(width, num_slots, itemsize)
    starts = [j for j in range(width) if j == 0 or slots[j] != slots[j - 1]]
    return [
        Group(start + shift, piece, slots[start], 1)
        for start, stop in zip(starts, [*starts[1:], width], strict=True)
        for shift, piece in chunks(stop - start, max_width(itemsize))
    ]


class NumbaBackend(Backend):
    """Register-blocked, prefetching, multi-threaded CPU kernels; results do not depend on the number of threads.

    Attributes:
        pool: where outputs and gradients come from.
    """

    name = "numba"
    reads_transpose = True

    def __init__(self) -> None:
        self.pool = Pool()

    def draw_from(self, pool: Pool) -> None:
        """All of them."""
        self.pool = pool

    def release(self) -> None:
        """Idle buffers."""
        self.pool.trim()

    def keep_at_most(self, num_bytes: int) -> None:
        """Of idle buffers."""
        self.pool.idle_limit_bytes = num_bytes

    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None, column: Tensor | None) -> Tensor:
        """`kernels.aggregate`, backward over the block's transpose."""
        width, itemsize = x.shape[1], x.element_size()
        if width == 0:
            return x.new_zeros(block.num_dst, 0)
        if weight is None:
            parts = groups(width, 0, itemsize)
        elif column is None:
            assert weight.shape[1] == 1, "several weights per edge need to know their columns"
            parts = groups(width, 1, itemsize)
        else:
            parts = column_groups(column, weight.shape[1], itemsize)
        return Aggregate.run(x, weight, block, parts, self.pool)

    def aggregate_scaled(self, block: Block, x: Tensor, scale: Tensor) -> Tensor:
        """Scales are read by source, where they stay in a cache: no weight per edge, and none at all backwards."""
        if x.shape[1] == 0:
            return x.new_zeros(block.num_dst, 0)
        return AggregateScaled.run(x, scale, block, self.pool)

    def spread(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """One pass over the block's transpose."""
        if gradient.shape[1] == 0:
            return gradient.new_zeros(block.num_src, 0)
        return spread(gradient, weight, block, self.pool)

    def aggregate_outer(self, block: Block, x: Tensor, weight: Tensor) -> Tensor:
        """`kernels.outer`: one gather for all heads."""
        if x.shape[1] == 0:
            return x.new_zeros(block.num_dst, weight.shape[1], 0)
        return AggregateOuter.run(x, weight, block, self.pool)

    def edge_score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
        """One pass over the edges."""
        return EdgeScore.run(src_key, dst_key, block, self.pool)

    def edge_max(self, block: Block, score: Tensor) -> Tensor:
        """One pass over the edges."""
        return edge_peak(score, block, self.pool)

    def edge_exp(self, block: Block, score: Tensor, peak: Tensor) -> Tensor:
        """One pass over the edges."""
        return EdgeExp.run(score, peak, block, self.pool)

    def edge_sum(self, block: Block, weight: Tensor) -> Tensor:
        """One pass over the edges."""
        return EdgeSum.run(weight, block, self.pool)

    def attention_weight(
        self, block: Block, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """Score, peak, exponential and sum in two passes over the edges."""
        return AttentionWeight.run(src_key, dst_key, block, slope, drop, self.pool)

    def attention(
        self, block: Block, x: Tensor, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """Weights of all edges, then one gather of the rows; backward one gather of the gradients."""
        heads = src_key.shape[1]
        weight = self.attention_weight(block, src_key, dst_key, slope, drop)
        return Aggregate.run(x, weight, block, groups(x.shape[1], heads, x.element_size()), self.pool)

    def attention_aggregate_first(
        self, block: Block, x: Tensor, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """Weights of all edges, then one gather of the rows for all heads."""
        weight = self.attention_weight(block, src_key, dst_key, slope, drop)
        return self.aggregate_outer(block, x, weight)

    def gather(self, x: Tensor, ids: Tensor) -> Tensor:
        """Multi-threaded copy into a pooled buffer."""
        return Gather.run(x, ids, self.pool) if x.requires_grad else gather_rows(x, ids, self.pool)

    def dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """One pass; backward draws the mask again."""
        return x if drop.threshold == 0 else Dropout.run(x, ids, drop, num_columns, first_column, self.pool)

    def relu_dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """One pass; backward reads the mask off the output."""
        return ReluDropout.run(x, ids, drop, num_columns, first_column, self.pool)

    def edge_dropout(self, block: Block, weight: Tensor, drop: Drop) -> Tensor:
        """One pass; backward draws the mask again."""
        return weight if drop.threshold == 0 else EdgeDropout.run(weight, block, drop, self.pool)

    def sparse_dropout(self, rows: SparseRows, ids: Tensor, drop: Drop) -> SparseRows:
        """One pass over the nonzeros."""
        values = drop_sparse(
            rows.indptr.numpy(), rows.columns.numpy(), np.ascontiguousarray(rows.values.numpy()), ids.numpy(), drop.key,
            drop.threshold, rows.num_columns,
        )
        return SparseRows(rows.indptr, rows.columns, torch.from_numpy(values), rows.num_columns)
