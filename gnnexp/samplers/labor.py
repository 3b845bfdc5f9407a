"""Layer-neighbour sampling, LABOR-0 (Balin and Catalyurek, NeurIPS 2023), with exactly k neighbours per destination.

Every vertex u draws one number r_u per hop. A destination takes its k in-neighbours with the smallest numbers. For one
destination this is uniform sampling without replacement. All destinations of a hop see the same numbers, so they take
the same neighbours where they can. The batch then has fewer vertices to load for the same number of edges.

The paper also has the form in which a neighbour is taken if r_u is below k / d, so k on average. With exactly k, the
number of edges is that of neighbour sampling, and comparisons of the two are about vertices only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import ends
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.samplers.smallest import take_smallest
from gnnexp.samplers.base import Key, Topology
from gnnexp.samplers.layerwise import LayerSampler, LayerSamplerOptions, Neighbours, values_of_edges


@dataclass(frozen=True)
class LaborOptions(LayerSamplerOptions):
    """LABOR-0 with exactly k neighbours per destination.

    Attributes:
        fanouts: k of every hop, target hop first; -1: all neighbours.
        key: `global`: all ranks see the same numbers; `micro`: each micro-batch has its own.
        topology, threads, prefetch: see `SamplerOptions`.
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
        graph = self._graph = self.topology_of(shard)
        self._hops, needs = self.options.hops(num_layers), shard.needs
        # A rank that trains parts of the graph has local ids. Draws depend on the original ids.
        self._names = np.empty(0, graph.indices.numpy().dtype) if shard.names is None else shard.names.numpy()
        self._of_edges = {
            "occurrence": graph.occurrence if needs.edge_identity else None,
            "edge_types": graph.edge_types if needs.edge_types or needs.edge_identity else None,
            "weight": graph.edge_weights,
        }

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """The edges to the k in-neighbours with the smallest numbers, in the graph's order."""
        graph, fanout, vertices = self._graph, self._hops[hop], frontier.long()
        starts = graph.indptr[vertices]
        degrees = graph.indptr[vertices + 1] - starts
        indptr = ends(degrees if fanout == -1 else degrees.clamp(max=fanout))
        word = np.uint64(stream(key.seed, Purpose.SAMPLE, key.epoch, key.step, key.micro, hop))
        arrays = (graph.indices.numpy(), self._names, starts.numpy(), degrees.numpy(), indptr.numpy())
        edges = torch.from_numpy(take_smallest(*arrays, word, self.inside))
        held: dict[str, Any] = {
            name: values_of_edges(values, edges) for name, values in self._of_edges.items() if values is not None
        }
        return Neighbours(indptr, graph.indices[edges], **held)
