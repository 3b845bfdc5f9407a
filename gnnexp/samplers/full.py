"""Every neighbour on every hop: full-batch training and exact evaluation."""

from __future__ import annotations

from torch import Tensor

from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.shard import Shard
from gnnexp.samplers.base import Key, Topology
from gnnexp.samplers.expansion import Expansion
from gnnexp.samplers.layerwise import LayerSampler, Neighbours


class FullSampler(LayerSampler):
    """All in-edges of every vertex that the targets need, in canonical order.

    The blocks of the last targets are kept: full-batch training, where every batch has the same targets in the same
    order, expands once (and transposes once) and then only gets another key.
    """

    def __init__(
        self, key: Key = "global", topology: Topology = "replicated", threads: int = 1, prefetch: int = 2
    ) -> None:
        super().__init__(None, key, topology, threads, prefetch)

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Take the graph of this rank."""
        super().setup(shard, num_layers)
        self._expansion = Expansion(
            self.topology_of(shard), shard.needs, self.hops(num_layers), shard.names, self.pool)
        self._last: tuple[Tensor, tuple[Block, ...]] | None = None

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch, the very same objects for the same targets as last time."""
        last = self._last  # one read: another thread may replace it meanwhile
        if last is not None and last[0].dtype == seeds.dtype and last[0].equal(seeds):
            return Batch(seeds, last[1], key, global_count)
        blocks = self._expansion.blocks(seeds, (0,) * self._num_hops)
        self._last = (seeds.clone(), blocks)
        return Batch(seeds, blocks, key, global_count)

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """All in-edges of the frontier."""
        return self._expansion.neighbours(frontier, hop, 0)
