"""GSplit's offline partitioning (section 4): balance what is computed, cut little of what is communicated.

A vertex weighs how often it was a destination in pre-sampled epochs (the work of sampling and computing it), an edge
how often it was sampled (the rows that cross if it is cut); edges that were never sampled are left out.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import owner_dtype
from gnnexp.graph.storage.presample import Presample
from gnnexp.kernels.graph.undirected import undirected
from gnnexp.partitioners.base import Owners
from gnnexp.partitioners.metis import BYTES_PER_EDGE, ByMetis, check_memory, fill_empty
from gnnexp.partitioners.metis_library import MOST_IMBALANCE, check_limits, index_dtype, part_graph


class PresampledPartitioner(ByMetis):
    """Weighted minimum edge cut by METIS, from the counts of pre-sampled epochs.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        epochs: of pre-sampling; 10 suffice (section 6.3).
        input_weight: how much a vertex weighs for each batch that reads its features (0: destinations only).
        edge_weights: False is the paper's "Node": pre-sampled vertex weights, every edge of the graph alike.
        imbalance: how far the heaviest part may exceed the mean.
        seed: of METIS's random choices.
    """

    bytes_per_edge = BYTES_PER_EDGE

    def __init__(
        self, num_parts: int | Literal["auto"] = "auto", epochs: int = 10, input_weight: float = 0.0,
        edge_weights: bool = True, imbalance: float = 0.03, seed: int = 0,
    ) -> None:
        self.num_parts, self.epochs, self.input_weight = num_parts, epochs, input_weight
        self.edge_weights, self.imbalance, self.seed = edge_weights, imbalance, seed
        wrong = [
            (epochs < 1, "epochs", epochs, "must be at least 1", 10),
            (not 0 <= input_weight < 1e6, "input_weight", input_weight, "must be in [0, 1e6)", 0.0),
            (not 0 < imbalance <= MOST_IMBALANCE, "imbalance", imbalance, f"above 0, at most {MOST_IMBALANCE}", 0.03),
            (not 0 <= seed < (1 << 31) - 1, "seed", seed, "must be 0 to 2^31 - 2", 0),
        ]
        problems = [Problem(f"partitioner.{name}", value, allowed, f"partitioner.{name}={fix}")
                    for bad, name, value, allowed, fix in wrong if bad]
        if problems:
            raise ConfigError(problems)

    @property
    def presampled_epochs(self) -> int:
        """Epochs that the launcher samples for it."""
        return self.epochs

    def weigh_by(self, presample: Presample) -> None:
        """Take the counts."""
        self._presample = presample

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners by METIS on the weighted graph."""
        presample = self._presample
        if num_parts == 1:
            return Owners(torch.zeros(graph.num_nodes, dtype=owner_dtype(1)))
        dtype = index_dtype()
        check_memory(graph, dtype)
        weights = self._vertex_weights(presample)
        total = 2 * int(presample.edges.sum(dtype=torch.int64))
        check_limits(graph.num_nodes, 2 * graph.num_edges, weights, dtype, total if self.edge_weights else 0)
        frequency = presample.edges.numpy() if self.edge_weights else None
        starts, neighbours, cut = undirected(graph.indptr.numpy(), graph.indices.numpy(), dtype, frequency)
        parts, _ = part_graph(
            starts, neighbours, weights.astype(dtype, copy=False), cut, num_parts, recursive=False,
            imbalance=self.imbalance, seed=self.seed,
        )
        fill_empty(parts, num_parts)
        return Owners(torch.from_numpy(parts).to(owner_dtype(num_parts)))

    def _vertex_weights(self, presample: Presample) -> np.ndarray:
        """`[V, 1]` int64; a vertex that was never computed weighs nothing."""
        weights = presample.destinations.numpy().astype(np.int64)
        if self.input_weight:
            weights = weights + np.rint(self.input_weight * presample.inputs.numpy()).astype(np.int64)
        if not weights.any():
            weights = np.ones_like(weights)
        return np.ascontiguousarray(weights[:, None])
