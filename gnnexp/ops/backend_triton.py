"""The Triton kernels of `gnnexp.kernels.cuda` as differentiable operations, on a GPU.

With `TRITON_INTERPRET=1` Triton interprets the kernels on the CPU, slowly: this tests them without a GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import SparseRows, StoredRows
from gnnexp.kernels.cuda.aggregate import Heads
from gnnexp.kernels.cuda.dropout import drop_rows, drop_sparse
from gnnexp.kernels.cuda.edges import edge_operation
from gnnexp.kernels.rows.attention import EdgeOperation
from gnnexp.ops.backend import Backend, Drop, EdgeWeights, NeighbourSums, RowDropout
from gnnexp.ops.backend_torch import column_runs
from gnnexp.ops.first_order import applied
from gnnexp.ops.functions_triton import (
    Aggregate,
    AggregateOuter,
    AggregateScaled,
    AggregateStored,
    AttentionWeight,
    Dropout,
    EdgeDropout,
    EdgeExp,
    EdgeScore,
    EdgeSum,
    ReluDropout,
    forward_edges,
    key_of,
    spread,
)


def heads_of(column: Tensor) -> list[Heads]:
    """The columns `[d]` of every weight; heads of equal width and in order share a launch."""
    parts = column_runs(column)
    start, stop, slot = parts[0] if parts else (0, 0, 0)
    width = stop - start
    if all(part == (i * width, (i + 1) * width, slot + i) for i, part in enumerate(parts)):
        return [Heads(0, width, len(parts), slot)]
    return [Heads(start, stop - start, 1, slot) for start, stop, slot in parts]


class TritonSums(NeighbourSums):
    """The sums of the CPU to the bit for rows of at most `aggregate.LONG` edges."""

    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None, column: Tensor | None) -> Tensor:
        """One launch for all heads, or one for each run of columns with the same weight."""
        assert weight is None or column is not None or weight.shape[1] == 1, "several weights per edge need `column`"
        whole = weight is None or column is None
        heads = [Heads(0, x.shape[1])] if whole or column is None else heads_of(column)
        return applied(Aggregate, x, weight, block, heads)

    def aggregate_scaled(self, block: Block, x: Tensor, scale: Tensor) -> Tensor:
        """Scales are read by source, so they stay in a cache. The backward pass needs no weights."""
        return applied(AggregateScaled, x, scale, block)

    def aggregate_stored(
        self, block: Block, x: StoredRows, weight: Tensor | None, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The pass of `aggregate`, which looks each source's row up.

        A matrix of the rows would be written once, and an index of the edges' rows too. Here an edge costs one more
        id, mostly from a cache.
        """
        if weight is not None and weight.requires_grad:
            return super().aggregate_stored(block, x, weight, scale)
        assert x.ids is None or not x.requires_grad, "rows that are chosen by ids take no gradient"
        return applied(AggregateStored, x.values, weight, scale, block, x)

    def spread(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """One pass over the block's transpose."""
        return spread(gradient, weight, block)

    def aggregate_outer(self, block: Block, x: Tensor, weight: Tensor) -> Tensor:
        """One gather of the rows for all heads."""
        return applied(AggregateOuter, x, weight, block)


class TritonEdges(EdgeWeights):
    """Passes over the edges of destinations."""

    def score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
        """One pass over the edges."""
        return applied(EdgeScore, src_key, dst_key, block)

    def max(self, block: Block, score: Tensor) -> Tensor:
        """One pass over the edges."""
        return edge_operation(EdgeOperation.MAX, forward_edges(block), score.detach())

    def exp(self, block: Block, score: Tensor, peak: Tensor) -> Tensor:
        """One pass over the edges."""
        return applied(EdgeExp, score, peak.detach(), block)

    def sum(self, block: Block, weight: Tensor) -> Tensor:
        """Sums in edge order."""
        return applied(EdgeSum, weight, block)

    def dropout(self, block: Block, weight: Tensor, drop: Drop) -> Tensor:
        """One pass; the backward pass draws the mask again."""
        return weight if drop.threshold == 0 else applied(EdgeDropout, weight, block, drop)

    def attention_weight(
        self, block: Block, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """Scores, maxima, exponentials, sums and dropout in one kernel."""
        return applied(AttentionWeight, src_key, dst_key, block, slope, drop)


class TritonRows(RowDropout):
    """Passes over rows."""

    def dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """One pass; the backward pass draws the mask again."""
        return x if drop.threshold == 0 else applied(Dropout, x, ids, drop, num_columns, first_column)

    def relu_dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """One pass; the backward pass reads the mask from the output."""
        if drop.threshold == 0:
            return F.relu(x)
        return applied(ReluDropout, x, ids, drop, num_columns, first_column, x.dtype)

    def relu_dropout_rounded(self, x: Tensor, ids: Tensor, drop: Drop) -> Tensor:
        """One pass for float32. The backward pass reads the mask from the rounded output, which is all that is kept."""
        if x.dtype != torch.float32:
            return super().relu_dropout_rounded(x, ids, drop)
        return applied(ReluDropout, x, ids, drop, x.shape[1], 0, torch.bfloat16)

    def dropout_stored(self, x: StoredRows, ids: Tensor, drop: Drop) -> Tensor:
        """One pass, which looks each row up."""
        if drop.threshold == 0:
            return x.to_dense()
        return drop_rows(
            x.values, ids, key_of(drop, x.values), drop.threshold, x.shape[1], 0, places=x.ids, dtype=x.dtype
        )

    def sparse_dropout(self, rows: SparseRows, ids: Tensor, drop: Drop) -> SparseRows:
        """One pass over the nonzeros."""
        values = drop_sparse(
            rows.indptr, rows.columns, rows.values, ids, key_of(drop, ids), drop.threshold, rows.num_columns
        )
        return SparseRows(rows.indptr, rows.columns, values, rows.num_columns)


def triton_backend() -> Backend:
    """Triton's kernels. A block's transpose is made on its device, so none is copied to it."""
    return Backend("triton", TritonSums(), TritonEdges(), TritonRows(), reads_stored=True)
