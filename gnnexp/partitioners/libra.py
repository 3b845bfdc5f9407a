"""Libra, the vertex-cut of DistGNN: every edge to a part where its ends already are.

Source: DistGNN (Md et al., SC 2021), as its authors published it in DGL (`dgl.distgnn.partition`, with
`src/array/libra_partition.cc`). The paper's own words, the "least-loaded relevant" part, would also allow every part
that holds either end. Theirs takes edges in the graph's order and draws ties between parts at random; here the order is
an option, and the lowest part wins ties, so that a partition is a function of its options.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import owner_dtype
from gnnexp.kernels.counter import Purpose, permutation, stream
from gnnexp.kernels.edges import edge_destinations
from gnnexp.kernels.libra import place_edges
from gnnexp.kernels.masters import masters
from gnnexp.partitioners.base import Owners, Partitioner

# Peak per edge, while the shuffled order is sorted: 20.0 measured on R-MAT, 200,000 vertices, 10 M edges, 64 parts.
# In stored order the arrays take 6.
BYTES_PER_EDGE = 20
# Keeps the draws of edges apart from those of `random`, which has none of its own after the purpose.
_EDGES = 1


class LibraPartitioner(Partitioner):
    """A greedy vertex-cut in one pass over the edges.

    An edge goes to the least loaded part that holds both ends; if there is none, to the least loaded of those that hold
    the end of the lower degree (in + out; the destination on ties), or the other end if that is in no part yet; if
    neither is, to the least loaded of all. Ties go to the lowest part.

    A part gets its first edge only where neither end is held yet: a star goes to one part whole, and where vertices are
    few parts may stay empty. Measured with 16 parts, seed 0: copies per vertex (`replication_cut`) shuffled and stored,
    against every edge at random, and edges of the largest part over the mean (`balance_edges`) shuffled and stored:

    - Cora: 1.64, 1.46, against 5.50; 1.028, 1.078.
    - R-MAT, 20,000 vertices, 200,000 edges, locality 0.5: 2.51, 2.23, against 8.82; 1.000, 1.001.
    - amazon-computers: 4.18, 3.68, against 12.90; 1.000, 1.000.
    - Cornell5: 6.12, 6.00, against 14.59; 1.000, 1.000.

    The stored order copies less, but fails where the first destinations have an edge from nearly everywhere: all of
    R-MAT with 2,000 vertices, 400,000 edges and locality 0 goes to one part (shuffled: balance 1.000). So it is not the
    default.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        order: in which edges are placed: `shuffled`, a random permutation, or `stored`, the graph's own order by
            destination, which takes a third of the memory.
        seed: of the permutation.
    """

    vertex_cut = True
    bytes_per_edge = BYTES_PER_EDGE

    def __init__(
        self, num_parts: int | Literal["auto"] = "auto", order: Literal["shuffled", "stored"] = "shuffled",
        seed: int = 0,
    ) -> None:
        self.num_parts = num_parts
        self.order = order
        self.seed = seed

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners of edges by one pass over them, owners of vertices by `masters`; a part may have no vertex."""
        indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
        order = self._order(graph.num_edges)  # before the rest is there: sorting it is the peak
        edges = np.empty(graph.num_edges, torch.zeros(0, dtype=owner_dtype(num_parts)).numpy().dtype)
        place_edges(indices, edge_destinations(indptr, indices), order, graph.num_nodes, num_parts, edges)
        return Owners(torch.from_numpy(masters(indptr, indices, edges, num_parts)), torch.from_numpy(edges))

    def _order(self, num_edges: int) -> np.ndarray:
        """`[E]` int64, empty for the stored order."""
        if self.order == "stored":
            return np.empty(0, np.int64)
        return permutation(stream(self.seed, Purpose.PARTITION, _EDGES), num_edges)
