"""PowerGraph's greedy vertex-cut.

Source: Gonzalez, Low, Gu, Bickson, Guestrin, "PowerGraph: Distributed Graph-Parallel Computation on Natural Graphs",
OSDI 2012, section 5.1; a baseline of SDT-GNN (section IV). What the published artifact of SDT-GNN calls Greedy is
another rule: replicas counted 0 or 1 plus HDRF's balance term.
"""

from __future__ import annotations

import numpy as np

from gnnexp.graph.stream import EdgeStream
from gnnexp.kernels.partitioners.greedy import place_edges
from gnnexp.partitioners.streams.streaming import EdgePlacer, Placement


class GreedyPartitioner(EdgePlacer):
    """An edge goes to the least loaded candidate, the lowest part on ties.

    Candidates are the parts that hold both ends; if there is none and both ends are placed, those of the end with more
    edges still to be placed, the destination on ties; if one end is placed, its parts; if none is, all parts. How many
    edges are still to be placed takes a pass over the stream that counts degrees.

    A part gets its first edge only where neither end is placed: in stored order, which is the default as for all rules
    of SDT-GNN, whole components go to one part. Takes 4 + 8 ceil(p / 64) bytes per vertex while edges are streamed, 8
    beside it where the stream keeps its degrees.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        order: in which the edges of a graph are streamed: `stored` (by destination), or `shuffled`.
        seed: of the shuffle.
        home: see `VertexCut`.
    """

    def first_degrees(self, stream: EdgeStream) -> np.ndarray:
        """`[V]` int32, counted down while edges are placed."""
        return stream.degrees.copy()

    def place(self, state: Placement, sources: np.ndarray, destinations: np.ndarray, parts: np.ndarray) -> None:
        """By the kernel."""
        place_edges(sources, destinations, state.degrees, state.replicas, state.loads, True, parts)
