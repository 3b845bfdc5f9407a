"""The default sampler: FastSample's fused neighbour sampling, with draws that are a pure function of their key."""

from __future__ import annotations

from torch import Tensor

from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.samplers.base import Key, Topology
from gnnexp.samplers.expansion import Expansion
from gnnexp.samplers.layerwise import LayerSampler, Neighbours


class FusedSampler(LayerSampler):
    """Uniform neighbour sampling without replacement, directly into CSC (FastSample, section 3.2, Algorithm 1).

    The neighbours that vertex v draws at hop h depend only on (seed, epoch, step, micro, h, v) and on the fanout. They
    do not depend on threads, on ranks, or on other vertices of the batch. The edges of a destination are in the order
    of its draws, or in canonical order if all of them are taken.
    """

    def __init__(
        self, fanouts: list[int], key: Key = "global", topology: Topology = "replicated",
        threads: int = 1, prefetch: int = 2,
    ) -> None:
        super().__init__(fanouts, key, topology, threads, prefetch)

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Store the graph of this rank."""
        super().setup(shard, num_layers)
        self._expansion = Expansion(
            self.topology_of(shard), shard.needs, self.hops(num_layers), shard.names, self.pool)

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch; all hops share one list of vertices."""
        streams = [_stream(key, hop) for hop in range(self._num_hops)]
        return Batch(seeds, self._expansion.blocks(seeds, streams), key, global_count)

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """The draws of one hop."""
        return self._expansion.neighbours(frontier, hop, _stream(key, hop))


def _stream(key: BatchKey, hop: int) -> int:
    return stream(key.seed, Purpose.SAMPLE, key.epoch, key.step, key.micro, hop)
