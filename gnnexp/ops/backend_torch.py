"""Kernels in plain PyTorch: the reference on CPU, and the implementation on CUDA.

Aggregation is `embedding_bag`, a fused gather and sum over CSR offsets, with gradients for rows and weights on both
devices. Dropout masks are the same 32-bit and 64-bit hashes as in the numba kernels, in int64 tensor arithmetic.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnexp.graph.block import Block, destinations
from gnnexp.graph.sparse import SparseRows
from gnnexp.ops import masks
from gnnexp.ops.backend import Backend, Drop, EdgeWeights, NeighbourSums, RowDropout


def column_runs(column: Tensor) -> list[tuple[int, int, int]]:
    """`(start, stop, slot)` of each run of equal values in `column` `[d]`."""
    slots = column.tolist()
    edges = [0, *(j for j in range(1, len(slots)) if slots[j] != slots[j - 1]), len(slots)]
    return [(start, stop, slots[start]) for start, stop in pairwise(edges) if stop > start]


class TorchSums(NeighbourSums):
    """Sums by `embedding_bag`."""

    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None, column: Tensor | None) -> Tensor:
        """One bag per destination, for each run of columns with the same weight."""
        if column is None or weight is None:
            return _bag(block, x, None if weight is None else weight.squeeze(1))
        parts = [_bag(block, x[:, start:stop], weight[:, slot]) for start, stop, slot in column_runs(column)]
        return torch.cat(parts, 1) if parts else x.new_zeros(block.num_dst, 0)

    def aggregate_outer(self, block: Block, x: Tensor, weight: Tensor) -> Tensor:
        """One bag per destination and weight column."""
        return torch.stack([_bag(block, x, weight[:, head]) for head in range(weight.shape[1])], 1)


class TorchEdges(EdgeWeights):
    """Gathers and scatters."""

    def score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
        """Two gathers and a sum."""
        return src_key[block.sources.long()] + dst_key[destinations(block)]

    def max(self, block: Block, score: Tensor) -> Tensor:
        """Scatter with the maximum."""
        peak = torch.full((block.num_dst, score.shape[1]), -torch.inf, dtype=score.dtype, device=score.device)
        index = destinations(block).unsqueeze(1).expand_as(score)
        return peak.scatter_reduce_(0, index, score.detach(), "amax")

    def exp(self, block: Block, score: Tensor, peak: Tensor) -> Tensor:
        """Gather, subtract, exponentiate."""
        return torch.exp(score - peak.detach()[destinations(block)])

    def sum(self, block: Block, weight: Tensor) -> Tensor:
        """A bag of consecutive edges per destination."""
        return _bag(block, weight, None, torch.arange(block.num_edges, device=weight.device))

    def dropout(self, block: Block, weight: Tensor, drop: Drop) -> Tensor:
        """Multiply by the mask."""
        kept = masks.kept_edges(block, destinations(block), weight.shape[1], drop)
        return weight * (kept.to(weight.dtype) * drop.scale)

    def attention_weight(
        self, block: Block, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """The edge operations one after another."""
        score = F.leaky_relu(self.score(block, src_key, dst_key), slope)
        weight = self.exp(block, score, self.max(block, score))
        weight = weight / self.sum(block, weight)[destinations(block)]
        return weight if drop is None else self.dropout(block, weight, drop)


class TorchRows(RowDropout):
    """Products with the mask."""

    def dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """Multiply by the mask."""
        return x * _scale(x, ids, drop, num_columns, first_column)

    def relu_dropout(self, x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int = 0) -> Tensor:
        """ReLU, then multiply by the mask."""
        kept = F.relu(x)
        return kept if drop.threshold == 0 else kept * _scale(x, ids, drop, num_columns, first_column)

    def sparse_dropout(self, rows: SparseRows, ids: Tensor, drop: Drop) -> SparseRows:
        """The mask of each nonzero's row and column."""
        lengths = rows.indptr[1:] - rows.indptr[:-1]
        row_ids = torch.repeat_interleave(ids, lengths, output_size=rows.columns.numel())
        kept = masks.kept_entries(row_ids, rows.columns, drop, rows.num_columns)
        values = rows.values * (kept.to(rows.values.dtype) * drop.scale)
        return SparseRows(rows.indptr, rows.columns, values, rows.num_columns)


def torch_backend() -> Backend:
    """PyTorch's operations; they work on any device."""
    return Backend("torch", TorchSums(), TorchEdges(), TorchRows())


def _scale(x: Tensor, ids: Tensor, drop: Drop, num_columns: int, first_column: int) -> Tensor:
    return masks.kept_columns(ids, first_column, x.shape[1], drop, num_columns).to(x.dtype) * drop.scale


def _bag(block: Block, rows: Tensor, weight: Tensor | None, index: Tensor | None = None) -> Tensor:
    """`[D, d]` weighted sums of `rows[index]` over in-edges; `index` `[E]`, by default the sources."""
    if block.num_dst == 0 or block.num_edges == 0 or rows.shape[1] == 0:
        # The result depends on the inputs, so that gradients are zeros instead of None.
        nothing = rows.sum() * 0 if weight is None else rows.sum() * 0 + weight.sum() * 0
        return nothing + rows.new_zeros(block.num_dst, rows.shape[1])
    return F.embedding_bag(
        block.sources.long() if index is None else index,
        rows,
        block.indptr,
        mode="sum",
        per_sample_weights=weight,
        include_last_offset=True,
    )
