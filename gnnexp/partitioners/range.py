"""Contiguous ranges of vertex ids: no work to compute, and good if near vertices have near ids."""

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
        balance: the quantity of which all ranges have about the same number, `vertices` or (in-)`edges`; every range
            has at least one vertex.
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
        """First vertex of every part, and V: `[num_parts + 1]` int64."""
        parts = torch.arange(num_parts + 1)
        if self.balance == "vertices":
            return parts * graph.num_nodes // num_parts
        ideal = parts * graph.num_edges // num_parts
        after = torch.searchsorted(graph.indptr, ideal)
        before = (after - 1).clamp(min=0)
        nearest = torch.where(ideal - graph.indptr[before] < graph.indptr[after] - ideal, before, after)
        nearest[0], nearest[-1] = 0, graph.num_nodes
        # Every part gets at least one vertex: bounds increase by 1 or more, and leave a vertex for each later part.
        rising = torch.cummax(nearest - parts, 0).values + parts
        return torch.minimum(rising, graph.num_nodes - num_parts + parts)
