"""Contiguous ranges of vertex ids: free to compute, good where ids follow the graph's locality."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import owner_dtype
from gnnexp.partitioners.base import Owners, Partitioner


class RangePartitioner(Partitioner):
    """Part p owns the p-th contiguous range of vertex ids.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        balance: what the ranges have equally many of, `vertices` or (in-)`edges`; every range has a vertex.
    """

    def __init__(
        self, num_parts: int | Literal["auto"] = "auto", balance: Literal["vertices", "edges"] = "vertices"
    ) -> None:
        self.num_parts = num_parts
        self.balance = balance

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners by range."""
        bounds = self._bounds(graph, num_parts)
        sizes = bounds[1:] - bounds[:-1]
        return Owners(torch.repeat_interleave(torch.arange(num_parts, dtype=owner_dtype(num_parts)), sizes))

    def _bounds(self, graph: Graph, num_parts: int) -> Tensor:
        """`[num_parts + 1]` int64, first vertex of every part."""
        parts = torch.arange(num_parts + 1)
        if self.balance == "vertices":
            return parts * graph.num_nodes // num_parts
        ideal = parts * graph.num_edges // num_parts
        after = torch.searchsorted(graph.indptr, ideal)
        before = (after - 1).clamp(min=0)
        nearest = torch.where(ideal - graph.indptr[before] < graph.indptr[after] - ideal, before, after)
        nearest[0], nearest[-1] = 0, graph.num_nodes
        # At least one vertex each: bounds that rise by one, and leave enough behind them.
        rising = torch.cummax(nearest - parts, 0).values + parts
        return torch.minimum(rising, graph.num_nodes - num_parts + parts)
