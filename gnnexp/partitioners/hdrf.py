"""HDRF, High-Degree (are) Replicated First: replicas, degrees and loads decide the part of an edge.

Source: Petroni, Querzoni, Daudjee, Kamali, Iacoboni, "HDRF: Stream-Based Partitioning for Power-Law Graphs", CIKM 2015;
a baseline of SDT-GNN (section IV).
"""

from __future__ import annotations

import numpy as np

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.stream import EdgeStream, StreamOrder
from gnnexp.kernels.partitioners.hdrf import place_by_score
from gnnexp.partitioners.streaming import Degrees, EdgePlacer, Home, NumParts, Placement


class HdrfPartitioner(EdgePlacer):
    """An edge goes to the part with the best score, the lowest part on ties.

    For an edge (u, v) with degrees d, the score of a part is the sum of these terms:

    - 1 + (1 - d(u) / (d(u) + d(v))) if the part holds u, and likewise for v. So the end with the higher degree is
      replicated.
    - lambda (max - load) / (epsilon + max - min), with the loads of the fullest and of the emptiest part.

    Loads have no limit. With sorted edges and lambda of 1 or less, the first edges may all go to one part.

    Takes 4 + 8 ceil(p / 64) bytes per vertex while edges are streamed.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        lambda_: weight of balance against replicas, above 0. Up to 1, balance only decides between parts with equally
            many replicas; the paper and the published artifact of SDT-GNN use 1.
        epsilon: above 0; keeps the balance term finite (1 in the artifact).
        degrees: degrees `streamed` so far, with the current edge, as published, or `exact` degrees, which need an
            additional pass.
        order: order in which the edges of a graph are streamed: `stored` (by destination), or `shuffled`.
        seed: seed of the shuffle.
        home: see `VertexCut`.
    """

    def __init__(
        self,
        num_parts: NumParts = "auto",
        lambda_: float = 1.0,
        epsilon: float = 1.0,
        degrees: Degrees = "streamed",
        order: StreamOrder = "stored",
        seed: int = 0,
        home: Home = "most",
    ) -> None:
        super().__init__(num_parts, order, seed, home)
        self.lambda_, self.epsilon, self.degrees = lambda_, epsilon, degrees
        problems = [
            Problem(f"partitioner.{key}", value, "must be above 0", f"set partitioner.{key}=1")
            for key, value in (("lambda_", lambda_), ("epsilon", epsilon))
            if not 0 < value < np.inf
        ]
        ConfigError.raise_all(problems)

    def first_degrees(self, stream: EdgeStream) -> np.ndarray:
        """Degrees `[V]` int32: zeros if degrees are counted while edges are streamed."""
        return np.zeros(stream.num_nodes, np.int32) if self.degrees == "streamed" else stream.degrees

    def place(self, state: Placement, sources: np.ndarray, destinations: np.ndarray, parts: np.ndarray) -> None:
        """Place the edges by the kernel."""
        place_by_score(
            sources,
            destinations,
            state.degrees,
            state.replicas,
            state.loads,
            self.lambda_,
            self.epsilon,
            self.degrees == "streamed",
            parts,
        )
