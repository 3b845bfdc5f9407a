"""DropEdge (Rong et al., ICLR 2020): in every batch and hop, each edge stays with probability `keep`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import Purpose, draw, stream
from gnnexp.samplers.layerwise import LayerSampler, LayerSamplerOptions, Neighbours


@dataclass(frozen=True)
class DropEdgeOptions(LayerSamplerOptions):
    """Probability that an edge stays, and options of `SamplerOptions`. Evaluation uses all edges."""

    fanouts = None  # all neighbours
    keep: float = 0.8
    threads: int = 1
    prefetch: int = 2

    def make(self) -> DropEdge:
        """The sampler of a rank."""
        return DropEdge(self)


class DropEdge(LayerSampler):
    """An edge's fate is a function of (seed, epoch, step, hop) and the ids of its ends: every rank draws the same."""

    options: DropEdgeOptions

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Store the topology, and the original ids of its vertices."""
        super().setup(shard, num_layers)
        self._graph = self.topology_of(shard)
        self._names = np.arange(shard.graph.num_nodes) if shard.names is None else shard.names.numpy()

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """The edges of the frontier that stay, in the graph's order."""
        graph, vertices = self._graph, frontier.long()
        degrees, ends = graph.in_degree[vertices], graph.in_degree[vertices].cumsum(0)
        edges = torch.arange(int(degrees.sum())) + (graph.indptr[vertices + 1] - ends).repeat_interleave(degrees)
        targets = self._names[vertices.repeat_interleave(degrees).numpy()]
        word = np.uint64(stream(key.seed, Purpose.SAMPLE, key.epoch, key.step, key.micro, hop))
        stays = _stay(word, targets, self._names[graph.indices[edges].numpy()], self.options.keep)
        indptr = torch.from_numpy(np.append(0, stays.cumsum())[np.append(0, ends.numpy())])
        edges = edges[torch.from_numpy(stays)]
        of_edges = (graph.indices, graph.occurrence, graph.edge_types, graph.edge_weights)
        return Neighbours(indptr, *(None if values is None else values[edges] for values in of_edges))


@compiled()
def _stay(key: np.uint64, targets: np.ndarray, sources: np.ndarray, keep: float) -> np.ndarray:
    stays = np.empty(targets.size, np.bool_)
    for i in range(targets.size):
        stays[i] = draw(draw(key, np.uint64(targets[i])), np.uint64(sources[i])) < keep * 2.0**64
    return stays
