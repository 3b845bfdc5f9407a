"""GSplit's offline partitioning (section 4): balance the computation, and cut edges with little communication.

The weight of a vertex is how often it was a destination in pre-sampled epochs: the work to sample and compute it. The
weight of an edge is how often it was sampled: the rows that ranks exchange if the edge is cut. Edges that were never
sampled are left out.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from gnnexp.components.options import wrong_options
from gnnexp.errors import ConfigError
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.presample import Presample
from gnnexp.partitioners.base import Owners
from gnnexp.partitioners.metis import ByMetis


class PresampledPartitioner(ByMetis):
    """Weighted minimum edge cut by METIS, from the counts of pre-sampled epochs.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        epochs: number of pre-sampled epochs; 10 suffice (section 6.3).
        input_weight: additional weight of a vertex for each batch that reads its features (0: destinations only).
        edge_weights: False is the paper's "Node": pre-sampled vertex weights, and equal weights for all edges.
        imbalance: how far the heaviest part may exceed the mean (0.03 = 3 %).
        seed: seed of METIS's random choices.
    """

    def __init__(
        self,
        num_parts: int | Literal["auto"] = "auto",
        epochs: int = 10,
        input_weight: float = 0.0,
        edge_weights: bool = True,
        imbalance: float = 0.03,
        seed: int = 0,
    ) -> None:
        self.num_parts, self.epochs, self.input_weight = num_parts, epochs, input_weight
        self.edge_weights, self.imbalance, self.seed = edge_weights, imbalance, seed
        rules = wrong_options(
            "partitioner",
            (epochs >= 1, "epochs", epochs, "must be at least 1", 10),
            (0 <= input_weight < 1e6, "input_weight", input_weight, "must be in [0, 1e6)", 0.0),
            *self.metis_rules(),
        )
        ConfigError.raise_all(rules)

    @property
    def presampled_epochs(self) -> int:
        """Number of epochs that the launcher pre-samples."""
        return self.epochs

    def weigh_by(self, presample: Presample) -> None:
        """Store the counts for `assign`."""
        self._presample = presample

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners by METIS on the weighted graph."""
        frequency = self._presample.edges.numpy() if self.edge_weights else None
        return self.split(graph, num_parts, self._vertex_weights(self._presample), frequency)

    def _vertex_weights(self, presample: Presample) -> np.ndarray:
        """Weights `[V, 1]` int64; a vertex that was never computed has weight 0."""
        weights = presample.destinations.numpy().astype(np.int64)
        if self.input_weight:
            weights = weights + np.rint(self.input_weight * presample.inputs.numpy()).astype(np.int64)
        if not weights.any():
            weights = np.ones_like(weights)
        return np.ascontiguousarray(weights[:, None])
