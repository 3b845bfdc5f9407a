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
from gnnexp.samplers.full import FullOptions, FullSampler
from gnnexp.samplers.layerwise import LayerSampler, Neighbours


@dataclass(frozen=True)
class DropEdgeOptions(FullOptions):
    """The options of full sampling, and the probability that an edge stays. Evaluation uses all edges."""

    keep: float = 0.8

    def make(self) -> DropEdge:
        """The sampler of a rank."""
        return DropEdge(self)


class DropEdge(FullSampler):
    """An edge's fate is a function of (seed, epoch, step, hop) and the ids of its ends: every rank draws the same."""

    options: DropEdgeOptions
    sample = LayerSampler.sample  # that of full sampling keeps the blocks of a batch for the next one

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Store the topology, and the original ids of its vertices."""
        super().setup(shard, num_layers)
        self._names = np.arange(shard.graph.num_nodes) if shard.names is None else shard.names.numpy()

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """The edges of the frontier that stay, in the graph's order."""
        every = super().sample_layer(frontier, hop, key)
        targets = self._names[frontier.numpy()].repeat(every.indptr.diff().numpy())
        word = np.uint64(stream(key.seed, Purpose.SAMPLE, key.epoch, key.step, key.micro, hop))
        stays = torch.from_numpy(_stay(word, targets, self._names[every.ids.numpy()], self.options.keep))
        counts = torch.cat([torch.zeros(1, dtype=torch.int64), stays.cumsum(0)])
        of_edges = {name: values[stays] for name, values in every.of_edges.items()}
        return Neighbours(counts[every.indptr], every.ids[stays], **of_edges)


@compiled()
def _stay(key: np.uint64, targets: np.ndarray, sources: np.ndarray, keep: float) -> np.ndarray:
    stays = np.empty(targets.size, np.bool_)
    for i in range(targets.size):
        stays[i] = draw(draw(key, np.uint64(targets[i])), np.uint64(sources[i])) < keep * 2.0**64
    return stays
