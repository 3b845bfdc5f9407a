"""Layer-neighbour sampling, LABOR-0 (Balin and Catalyurek, NeurIPS 2023), with exactly k neighbours each.

Every vertex u draws one number r_u per hop; a destination takes its k in-neighbours with the smallest numbers. For one
destination that is uniform sampling without replacement. But all destinations of a hop see the same numbers, so they
take the same neighbours where they can: fewer vertices to load for as many edges.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import Purpose, draw, stream
from gnnexp.samplers.base import Key, Topology
from gnnexp.samplers.layerwise import LayerSampler, Neighbours


class LaborSampler(LayerSampler):
    """Which neighbours a vertex takes is a function of (seed, epoch, step, hop, ids): on any number of ranks the same.

    Args:
        fanouts: k of every hop, target hop first, -1 for all neighbours.
        key: as `gnnexp.samplers.base.Sampler` has it, as the rest.
    """

    def __init__(
        self, fanouts: list[int], key: Key = "global", topology: Topology = "replicated", threads: int = 1,
        prefetch: int = 2,
    ) -> None:
        super().__init__(fanouts, key, topology, threads, prefetch)

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Take the graph of this rank: all of it, or all in-edges of what the rank owns."""
        super().setup(shard, num_layers)
        self._graph, self._needs = self.topology_of(shard), shard.needs
        self._fanouts = self.hops(num_layers)
        # Ranks that train parts of the graph have ids of their own; draws are keyed by the original ones.
        names = torch.arange(self._graph.num_nodes) if shard.names is None else shard.names
        self._names = names.to(torch.int64).numpy()

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """What each vertex of the frontier takes; safe to call from several threads."""
        graph, fanout = self._graph, self._fanouts[hop]
        starts = graph.indptr[frontier.long()]
        degrees = graph.indptr[frontier.long() + 1] - starts
        taken = degrees if fanout == -1 else degrees.clamp(max=fanout)
        indptr = torch.cat([taken.new_zeros(1), taken.cumsum(0)])
        positions = np.empty(int(indptr[-1]), np.int64)
        word = np.uint64(stream(key.seed, Purpose.SAMPLE, key.epoch, key.step, key.micro, hop))
        _choose(graph.indices.numpy(), self._names, starts.numpy(), degrees.numpy(), indptr.numpy(), word, positions)
        edges = torch.from_numpy(positions)
        return Neighbours(indptr, graph.indices[edges], self._occurrence(edges), self._types(edges))

    def _occurrence(self, edges: Tensor) -> Tensor | None:
        """Which of several parallel edges: where the model drops edges by identity."""
        wanted = self._needs.edge_identity and self._graph.occurrence is not None
        return self._graph.occurrence[edges] if wanted else None

    def _types(self, edges: Tensor) -> Tensor | None:
        wanted = (self._needs.edge_types or self._needs.edge_identity) and self._graph.edge_types is not None
        return self._graph.edge_types[edges] if wanted else None


@compiled()
def _choose(
    indices: np.ndarray, names: np.ndarray, starts: np.ndarray, degrees: np.ndarray, indptr: np.ndarray,
    key: np.uint64, positions: np.ndarray,
) -> None:
    """Write the positions of the edges that each destination takes, in the graph's order."""
    for i in range(starts.size):
        first, count = starts[i], indptr[i + 1] - indptr[i]
        if count == degrees[i]:
            chosen = np.arange(count)
        else:
            words = np.empty(degrees[i], np.uint64)
            for j in range(degrees[i]):
                words[j] = draw(key, np.uint64(names[indices[first + j]]))
            # Stable: of parallel edges, which have one number, the first ones.
            chosen = np.sort(np.argsort(words, kind="mergesort")[:count])
        positions[indptr[i] : indptr[i + 1]] = first + chosen
