"""GSplit's offline partitioning (section 4): balance the computation, and cut edges with little communication.

The weight of a vertex is how often it was a destination in pre-sampled epochs: the work to sample and compute it. The
weight of an edge is how often it was sampled: the rows that ranks exchange if the edge is cut. Edges that were never
sampled are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

from gnnexp.components.options import wrong_options
from gnnexp.errors import ConfigError
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.presample import Presample
from gnnexp.partitioners.base import Owners, Partitioner
from gnnexp.partitioners.metis import ByMetis

Balance = Literal["total", "layers"]
VertexWeight = Literal["counted", "published"]


def counts_hops(partitioner: Partitioner) -> bool:
    """Whether a partitioner's pre-sampled epochs must count destinations by hop, too."""
    return isinstance(partitioner, PresampledPartitioner) and partitioner.balance == "layers"


class PresampledPartitioner(ByMetis):
    """Weighted minimum edge cut by METIS, from the counts of pre-sampled epochs.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        epochs: number of pre-sampled epochs; 10 suffice (section 6.3).
        input_weight: additional weight of a vertex for each batch that reads its features (0: destinations only).
        edge_weights: False is the paper's "Node": pre-sampled vertex weights, and equal weights for all edges.
        imbalance: how far the heaviest part may exceed the mean (0.03 = 3 %).
        seed: seed of METIS's random choices.
        balance: `total`: the work of all layers together (Equation 2). `layers`: the work of each layer on its own, one
            constraint of METIS for each (Equation 1).
        vertex_weight: `counted`: the paper's weight. `published`: that of its code, which multiplies the counts by the
            mean degree and adds 1. So a vertex that was never computed counts, too.
    """

    def __init__(
        self,
        num_parts: int | Literal["auto"] = "auto",
        epochs: int = 10,
        input_weight: float = 0.0,
        edge_weights: bool = True,
        imbalance: float = 0.03,
        seed: int = 0,
        balance: Balance = "total",
        vertex_weight: VertexWeight = "counted",
    ) -> None:
        self.num_parts, self.epochs, self.input_weight = num_parts, epochs, input_weight
        self.edge_weights, self.imbalance, self.seed = edge_weights, imbalance, seed
        self.balance, self.vertex_weight = balance, vertex_weight
        rules = wrong_options(
            "partitioner",
            *self._weight_rules(),
            (epochs >= 1, "epochs", epochs, "must be at least 1", 10),
            (0 <= input_weight < 1e6, "input_weight", input_weight, "must be in [0, 1e6)", 0.0),
            *self.metis_rules(),
        )
        ConfigError.raise_all(rules)

    def _weight_rules(self) -> Iterator[tuple[bool, str, object, str, object]]:
        """The rules of the weights of vertices, as `wrong_options` takes them."""
        choices = {"balance": get_args(Balance), "vertex_weight": get_args(VertexWeight)}
        for name, allowed in choices.items():
            value = getattr(self, name)
            yield value in allowed, name, value, f"must be {' or '.join(allowed)}", allowed[0]
        if self.balance == "layers":  # its weights are counts of one layer each
            for name, only in {"vertex_weight": "counted", "input_weight": 0.0}.items():
                value = getattr(self, name)
                yield value == only, name, value, f"must be {only} with partitioner.balance=layers", only

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
        return self.split(graph, num_parts, self._vertex_weights(graph, self._presample), frequency)

    def _vertex_weights(self, graph: Graph, presample: Presample) -> np.ndarray:
        """Weights `[V, C]` int64. With the paper's weights, a vertex that was never computed has weight 0."""
        if self.balance == "layers":
            assert presample.hops is not None, "`counts_hops` asks for them"
            weights = presample.hops.numpy()
            weights = weights[weights.any(axis=1)]
        else:
            weights = presample.destinations.numpy().astype(np.int64)[None]
            if self.vertex_weight == "published":
                weights = np.rint(weights * (graph.num_edges / graph.num_nodes)).astype(np.int64) + 1
            if self.input_weight:
                weights = weights + np.rint(self.input_weight * presample.inputs.numpy()).astype(np.int64)
        if not weights.any():
            weights = np.ones((1, graph.num_nodes), np.int64)
        return np.ascontiguousarray(weights.T)
