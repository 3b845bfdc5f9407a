"""DGL's g-SpMM and g-SDDMM kernels with the same interface, for comparisons with the numba kernels.

Dropout uses the numba kernels: DGL has no masks that are functions of vertex ids.
"""

# ruff: noqa: ANN401  dgl has no types
from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnexp.graph.block import Block, destinations
from gnnexp.kernels.pool import Pool
from gnnexp.ops.backend import Backend, Drop, NeighbourSums
from gnnexp.ops.backend_numba import NumbaEdges, NumbaRows, NumbaSums
from gnnexp.ops.backend_torch import column_runs


class DGLGraphs:
    """Blocks as bipartite DGL graphs, made once for each block.

    Attributes:
        ops: DGL's message passing.
    """

    def __init__(self) -> None:
        os.environ.setdefault("DGLBACKEND", "pytorch")
        import dgl

        self._dgl, self.ops = dgl, dgl.ops
        self._graphs: WeakKeyDictionary[Block, Any] = WeakKeyDictionary()

    def of(self, block: Block) -> Any:
        """The graph from COO edges: with CSC the backward of `edge_softmax` fails."""
        if block not in self._graphs:
            ends = (block.sources.long(), destinations(block))
            counts = {"src": block.num_src, "dst": block.num_dst}
            self._graphs[block] = self._dgl.heterograph({("src", "edge", "dst"): ends}, counts)
        return self._graphs[block]


@dataclass(frozen=True, eq=False)
class DGLSums(NumbaSums):
    """Generalised sparse-dense products (g-SpMM).

    Attributes:
        graphs: DGL's graphs of blocks.
    """

    graphs: DGLGraphs

    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None, column: Tensor | None) -> Tensor:
        """`copy_u_sum` or `u_mul_e_sum`; heads of equal width are a dimension."""
        if block.num_edges == 0 or x.shape[1] == 0:
            return super().aggregate(block, x, weight, column)
        graph, ops = self.graphs.of(block), self.graphs.ops
        if weight is None:
            return ops.copy_u_sum(graph, x)  # type: ignore[no-any-return]
        if column is None:
            return ops.u_mul_e_sum(graph, x, weight)  # type: ignore[no-any-return]
        parts = column_runs(column)
        heads, width = weight.shape[1], x.shape[1]
        if [slot for *_, slot in parts] == list(range(heads)) and len({b - a for a, b, _ in parts}) == 1:
            by_head: Tensor = ops.u_mul_e_sum(graph, x.view(-1, heads, width // heads), weight.unsqueeze(2))
            return by_head.flatten(1)
        sums = [ops.u_mul_e_sum(graph, x[:, a:b].contiguous(), weight[:, k : k + 1].contiguous()) for a, b, k in parts]
        return torch.cat(sums, 1)

    def aggregate_scaled(self, block: Block, x: Tensor, scale: Tensor) -> Tensor:
        """Scale rows, then `copy_u_sum`, like DGL's GraphConv."""
        return NeighbourSums.aggregate_scaled(self, block, x, scale)

    def spread(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """The backward pass of DGL's sums."""
        return NeighbourSums.spread(self, block, gradient, weight)

    def aggregate_outer(self, block: Block, x: Tensor, weight: Tensor) -> Tensor:
        """`u_mul_e_sum` with broadcasting over heads."""
        if block.num_edges == 0 or x.shape[1] == 0:
            return super().aggregate_outer(block, x, weight)
        out: Tensor = self.graphs.ops.u_mul_e_sum(self.graphs.of(block), x.unsqueeze(1), weight.unsqueeze(2))
        return out


@dataclass(frozen=True, eq=False)
class DGLEdges(NumbaEdges):
    """Generalised sampled dense-dense products (g-SDDMM).

    Attributes:
        graphs: DGL's graphs of blocks.
    """

    graphs: DGLGraphs

    def score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
        """`u_add_v`."""
        if block.num_edges == 0:
            return super().score(block, src_key, dst_key)
        return self.graphs.ops.u_add_v(self.graphs.of(block), src_key, dst_key)  # type: ignore[no-any-return]

    def max(self, block: Block, score: Tensor) -> Tensor:
        """`copy_e_max`, with -inf in place of its 0 for destinations without edges."""
        if block.num_edges == 0:
            return super().max(block, score)
        peak = self.graphs.ops.copy_e_max(self.graphs.of(block), score.detach())
        return peak.masked_fill((block.indptr[1:] == block.indptr[:-1]).unsqueeze(1), -torch.inf)  # type: ignore[no-any-return]

    def exp(self, block: Block, score: Tensor, peak: Tensor) -> Tensor:
        """The exponential of `e_sub_v`."""
        if block.num_edges == 0:
            return super().exp(block, score, peak)
        return torch.exp(self.graphs.ops.e_sub_v(self.graphs.of(block), score, peak.detach()))

    def sum(self, block: Block, weight: Tensor) -> Tensor:
        """`copy_e_sum`."""
        if block.num_edges == 0:
            return super().sum(block, weight)
        return self.graphs.ops.copy_e_sum(self.graphs.of(block), weight)  # type: ignore[no-any-return]

    def attention_weight(
        self, block: Block, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """`u_add_v`, then `edge_softmax`."""
        if block.num_edges == 0:
            return super().attention_weight(block, src_key, dst_key, slope, drop)
        graph = self.graphs.of(block)
        score = F.leaky_relu(self.graphs.ops.u_add_v(graph, src_key, dst_key), slope)
        weight: Tensor = self.graphs.ops.edge_softmax(graph, score.unsqueeze(2)).squeeze(2)
        return weight if drop is None else self.dropout(block, weight, drop)


def dgl_backend(pool: Pool | None = None) -> Backend:
    """DGL's operations for message passing, on CPU; the rest as in `numba_backend`."""
    pool, graphs = pool or Pool(), DGLGraphs()
    sums, edges = DGLSums(pool, graphs), DGLEdges(pool, graphs)
    return Backend("dgl", sums, edges, NumbaRows(pool), pool, reads_transpose=True)
