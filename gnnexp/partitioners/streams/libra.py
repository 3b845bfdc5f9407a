"""Libra, the vertex-cut of DistGNN: every edge to a part where its ends already are.

Source: DistGNN (Md et al., SC 2021), as its authors published it in DGL (`dgl.distgnn.partition`, with
`src/array/libra_partition.cc`). The paper's own words, the "least-loaded relevant" part, would also allow every part
that holds either end. Theirs takes edges in the graph's order and draws ties between parts at random; here the order is
an option, and the lowest part wins ties, so that a partition is a function of its options.
"""

from __future__ import annotations

import numpy as np

from gnnexp.graph.stream import StreamOrder
from gnnexp.kernels.partitioners.greedy import place_edges
from gnnexp.partitioners.streams.streaming import EdgePlacer, Home, NumParts, Placement


class LibraPartitioner(EdgePlacer):
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
            destination, which takes a seventh of the memory.
        seed: of the permutation.
        home: see `VertexCut`.
    """

    def __init__(
        self, num_parts: NumParts = "auto", order: StreamOrder = "shuffled", seed: int = 0, home: Home = "most"
    ) -> None:
        super().__init__(num_parts, order, seed, home)

    def place(self, state: Placement, sources: np.ndarray, destinations: np.ndarray, parts: np.ndarray) -> None:
        """By the kernel."""
        place_edges(sources, destinations, state.degrees, state.replicas, state.loads, False, parts)
