"""Layer-neighbour sampling, LABOR-0 (Balin and Catalyurek, NeurIPS 2023), with exactly k neighbours per destination.

Every vertex u draws one number r_u per hop. A destination takes its k in-neighbours with the smallest numbers. For one
destination this is uniform sampling without replacement. All destinations of a hop see the same numbers, so they take
the same neighbours where they can. The batch then has fewer vertices to load for the same number of edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import Purpose, draw, stream
from gnnexp.samplers.base import Key, Topology
from gnnexp.samplers.layerwise import LayerSampler, LayerSamplerOptions, Neighbours


@dataclass(frozen=True)
class LaborOptions(LayerSamplerOptions):
    """The options, which the launcher checks. A rank makes its sampler of them.

    Attributes:
        fanouts: k of every hop, target hop first; -1: all neighbours.
        key: as in `gnnexp.samplers.base.SamplerOptions`, like the others.
    """

    fanouts: Sequence[int]
    key: Key = "global"
    topology: Topology = "replicated"
    threads: int = 1
    prefetch: int = 2

    def make(self) -> LaborSampler:
        """The sampler of a rank."""
        return LaborSampler(self)


class LaborSampler(LayerSampler):
    """Draws neighbours by a function of (seed, epoch, step, hop, ids), so any number of ranks draws the same ones."""

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Store the topology that this rank samples from: the whole graph, or all in-edges of its own vertices."""
        super().setup(shard, num_layers)
        self._graph, self._needs = self.topology_of(shard), shard.needs
        self._fanouts = self.options.hops(num_layers)
        # A rank that trains parts of the graph has local ids. Draws depend on the original ids.
        names = torch.arange(self._graph.num_nodes) if shard.names is None else shard.names
        self._names = names.to(torch.int64).numpy()

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """Draw the neighbours of each vertex of the frontier. Several threads may call it at the same time."""
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
        """0-based index among parallel edges, or None if the model does not drop edges by identity."""
        wanted = self._needs.edge_identity and self._graph.occurrence is not None
        return self._graph.occurrence[edges] if wanted else None

    def _types(self, edges: Tensor) -> Tensor | None:
        wanted = (self._needs.edge_types or self._needs.edge_identity) and self._graph.edge_types is not None
        return self._graph.edge_types[edges] if wanted else None


@compiled()
def _choose(
    indices: np.ndarray,
    names: np.ndarray,
    starts: np.ndarray,
    degrees: np.ndarray,
    indptr: np.ndarray,
    key: np.uint64,
    positions: np.ndarray,
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
            # A stable sort: parallel edges have the same number, and the first ones win.
            chosen = np.sort(np.argsort(words, kind="mergesort")[:count])
        positions[indptr[i] : indptr[i + 1]] = first + chosen
