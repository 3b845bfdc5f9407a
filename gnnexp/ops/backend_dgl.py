"""DGL's g-SpMM and g-SDDMM kernels with the same interface, for comparisons with the numba kernels.

Dropout masks and gathers of rows use the numba kernels: DGL has no masks that are functions of vertex ids.
"""

# ruff: noqa: ANN401  dgl has no types
from __future__ import annotations

import os
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnexp.graph.block import Block, destinations
from gnnexp.ops.backend import Backend, Drop
from gnnexp.ops.backend_numba import NumbaBackend
from gnnexp.ops.backend_torch import runs


def _import_dgl() -> Any:
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl

    return dgl


class DGLBackend(NumbaBackend):
    """DGL's operations for message passing, on CPU."""

    name = "dgl"

    def __init__(self) -> None:
        super().__init__()
        self._dgl = _import_dgl()
        self._graphs: WeakKeyDictionary[Block, Any] = WeakKeyDictionary()

    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None, column: Tensor | None) -> Tensor:
        """`copy_u_sum` or `u_mul_e_sum`; heads of equal width are a dimension."""
        if block.num_edges == 0 or x.shape[1] == 0:
            return super().aggregate(block, x, weight, column)
        graph, ops = self._graph(block), self._dgl.ops
        if weight is None:
            return ops.copy_u_sum(graph, x)  # type: ignore[no-any-return]
        if column is None:
            return ops.u_mul_e_sum(graph, x, weight)  # type: ignore[no-any-return]
        parts = runs(column)
        heads, width = weight.shape[1], x.shape[1]
        if [slot for *_, slot in parts] == list(range(heads)) and len({b - a for a, b, _ in parts}) == 1:
            return self._heads(block, x.view(-1, heads, width // heads), weight)
        sums = [ops.u_mul_e_sum(graph, x[:, a:b].contiguous(), weight[:, k : k + 1].contiguous()) for a, b, k in parts]
        return torch.cat(sums, 1)

    def aggregate_scaled(self, block: Block, x: Tensor, scale: Tensor) -> Tensor:
        """Scale rows, then `copy_u_sum`, like DGL's GraphConv."""
        return Backend.aggregate_scaled(self, block, x, scale)

    def spread(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """The backward pass of DGL's sums."""
        return Backend.spread(self, block, gradient, weight)

    def aggregate_outer(self, block: Block, x: Tensor, weight: Tensor) -> Tensor:
        """`u_mul_e_sum` with broadcasting over heads."""
        if block.num_edges == 0 or x.shape[1] == 0:
            return super().aggregate_outer(block, x, weight)
        out: Tensor = self._dgl.ops.u_mul_e_sum(self._graph(block), x.unsqueeze(1), weight.unsqueeze(2))
        return out

    def edge_score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
        """`u_add_v`."""
        if block.num_edges == 0:
            return super().edge_score(block, src_key, dst_key)
        return self._dgl.ops.u_add_v(self._graph(block), src_key, dst_key)  # type: ignore[no-any-return]

    def edge_max(self, block: Block, score: Tensor) -> Tensor:
        """`copy_e_max`, with -inf in place of its 0 for destinations without edges."""
        if block.num_edges == 0:
            return super().edge_max(block, score)
        peak = self._dgl.ops.copy_e_max(self._graph(block), score.detach())
        return peak.masked_fill((block.indptr[1:] == block.indptr[:-1]).unsqueeze(1), -torch.inf)  # type: ignore[no-any-return]

    def edge_exp(self, block: Block, score: Tensor, peak: Tensor) -> Tensor:
        """The exponential of `e_sub_v`."""
        if block.num_edges == 0:
            return super().edge_exp(block, score, peak)
        return torch.exp(self._dgl.ops.e_sub_v(self._graph(block), score, peak.detach()))

    def edge_sum(self, block: Block, weight: Tensor) -> Tensor:
        """`copy_e_sum`."""
        if block.num_edges == 0:
            return super().edge_sum(block, weight)
        return self._dgl.ops.copy_e_sum(self._graph(block), weight)  # type: ignore[no-any-return]

    def attention_weight(
        self, block: Block, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """`u_add_v`, then `edge_softmax`."""
        if block.num_edges == 0:
            return super().attention_weight(block, src_key, dst_key, slope, drop)
        graph = self._graph(block)
        score = F.leaky_relu(self._dgl.ops.u_add_v(graph, src_key, dst_key), slope)
        weight: Tensor = self._dgl.ops.edge_softmax(graph, score.unsqueeze(2)).squeeze(2)
        return weight if drop is None else self.edge_dropout(block, weight, drop)

    def attention(
        self, block: Block, x: Tensor, src_key: Tensor, dst_key: Tensor, slope: float, drop: Drop | None
    ) -> Tensor:
        """`edge_softmax`, then `u_mul_e_sum`, like DGL's GATConv."""
        if block.num_edges == 0:
            return super().attention(block, x, src_key, dst_key, slope, drop)
        heads = src_key.shape[1]
        weight = self.attention_weight(block, src_key, dst_key, slope, drop)
        return self._heads(block, x.view(-1, heads, x.shape[1] // heads), weight)

    def _heads(self, block: Block, x: Tensor, weight: Tensor) -> Tensor:
        """`[D, K * F]` from `[S, K, F]`."""
        out: Tensor = self._dgl.ops.u_mul_e_sum(self._graph(block), x, weight.unsqueeze(2))
        return out.flatten(1)

    def _graph(self, block: Block) -> Any:
        """The block as a bipartite DGL graph, from COO edges: with CSC the backward of `edge_softmax` fails."""
        if block not in self._graphs:
            ends = (block.sources.long(), destinations(block))
            counts = {"src": block.num_src, "dst": block.num_dst}
            self._graphs[block] = self._dgl.heterograph({("src", "edge", "dst"): ends}, counts)
        return self._graphs[block]
