"""Parts are ranges of the reverse Cuthill-McKee order (1969): neighbours get close numbers, so few edges are cut."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from gnnexp.graph.graph import Graph
from gnnexp.partitioners.base import Owners, Partitioner


class BandwidthPartitioner(Partitioner):
    """Makes parts of equal size; the first parts may have one vertex more.

    Args:
        num_parts: number of parts; `auto`: one per rank.
    """

    def __init__(self, num_parts: int | Literal["auto"] = "auto") -> None:
        self.num_parts = num_parts

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Give every vertex an owner. An edge belongs to the owner of its destination."""
        edges, indptr = np.ones(graph.num_edges, np.int8), graph.indptr.numpy()
        matrix = csr_array((edges, graph.indices.numpy(), indptr), shape=(graph.num_nodes, graph.num_nodes))
        order = reverse_cuthill_mckee(matrix)  # order of the undirected graph: the matrix and its transpose
        owner = np.empty(graph.num_nodes, np.int32)
        for part, vertices in enumerate(np.array_split(order, num_parts)):
            owner[vertices] = part
        return Owners(torch.from_numpy(owner))
