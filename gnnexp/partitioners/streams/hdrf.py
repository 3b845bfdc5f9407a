"""HDRF, High-Degree (are) Replicated First: edges by replicas, degrees and load.

Source: Petroni, Querzoni, Daudjee, Kamali, Iacoboni, "HDRF: Stream-Based Partitioning for Power-Law Graphs", CIKM 2015;
a baseline of SDT-GNN (section IV).
"""

from __future__ import annotations

import numpy as np

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.stream import EdgeStream, StreamOrder
from gnnexp.kernels.partitioners.hdrf import place_edges
from gnnexp.partitioners.streams.streaming import Degrees, EdgePlacer, Home, NumParts, Placement


class HdrfPartitioner(EdgePlacer):
    """An edge goes to the part with the best score, the lowest one on ties.

    With d the degrees, a part that holds u scores 1 + (1 - d(u) / (d(u) + d(v))), likewise for v, so that of two ends
    the one with the higher degree is replicated; and lambda (max - load) / (epsilon + max - min), with the loads of the
    fullest and of the emptiest part. There is no cap on loads: of edges that come sorted, the first ones may all go to
    one part as long as lambda is 1 or less.

    Takes 4 + 8 ceil(p / 64) bytes per vertex while edges are streamed.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        lambda_: weight of balance against replicas, above 0: up to 1 it decides between parts with equally many
            replicas only, which is what the paper and the published artifact of SDT-GNN run (1).
        epsilon: above 0; keeps the balance term finite (1 in the artifact).
        degrees: those `streamed` so far, the edge at hand included, as published, or `exact` ones, by a pass more.
        order: in which the edges of a graph are streamed: `stored` (by destination), or `shuffled`.
        seed: of the shuffle.
        home: see `VertexCut`.
    """

    def __init__(
        self, num_parts: NumParts = "auto", lambda_: float = 1.0, epsilon: float = 1.0, degrees: Degrees = "streamed",
        order: StreamOrder = "stored", seed: int = 0, home: Home = "most",
    ) -> None:
        super().__init__(num_parts, order, seed, home)
        self.lambda_, self.epsilon, self.degrees = lambda_, epsilon, degrees
        problems = [
            Problem(f"partitioner.{key}", value, "must be above 0", f"set partitioner.{key}=1")
            for key, value in (("lambda_", lambda_), ("epsilon", epsilon)) if not 0 < value < np.inf
        ]
        if problems:
            raise ConfigError(problems)

    def first_degrees(self, stream: EdgeStream) -> np.ndarray:
        """`[V]` int32, zeros to count in if degrees are streamed."""
        return np.zeros(stream.num_nodes, np.int32) if self.degrees == "streamed" else stream.degrees

    def place(self, state: Placement, sources: np.ndarray, destinations: np.ndarray, parts: np.ndarray) -> None:
        """By the kernel."""
        place_edges(sources, destinations, state.degrees, state.replicas, state.loads, self.lambda_, self.epsilon,
                    self.degrees == "streamed", parts)
