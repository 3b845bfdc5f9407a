"""All neighbours on every hop, for full-batch training and exact evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.shard import Shard
from gnnexp.samplers.base import Key, Topology
from gnnexp.samplers.expansion import Expansion, Second
from gnnexp.samplers.layerwise import LayerSampler, LayerSamplerOptions, Neighbours


@dataclass(frozen=True)
class FullOptions(LayerSamplerOptions):
    """All in-edges of every vertex that the targets need; options as in `SamplerOptions`."""

    fanouts = None

    key: Key = "global"
    topology: Topology = "replicated"
    threads: int = 1
    prefetch: int = 2

    def make(self) -> FullSampler:
        """The sampler of a rank."""
        return FullSampler(self)


class FullSampler(LayerSampler):
    """All in-edges of every vertex that the targets need, in canonical order.

    The sampler keeps the blocks of the last targets. In full-batch training all batches have the same targets in the
    same order, so blocks are built and transposed once, and later batches differ only in their keys.
    """

    options: FullOptions

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Store the graph of this rank."""
        super().setup(shard, num_layers)
        self._expansion = Expansion(
            self.topology_of(shard), shard.needs, self.options.hops(num_layers), shard.names, self.pool
        )
        self._last: tuple[Tensor, tuple[Block, ...]] | None = None

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch; the same objects as in the last call if the targets are the same."""
        last = self._last  # read once, because another thread may replace it
        if last is not None and last[0].dtype == seeds.dtype and last[0].equal(seeds):
            return Batch(seeds, last[1], key, global_count)
        blocks = self._expansion.blocks(seeds, (0,) * self._num_hops, self.inside)
        self._last = (seeds.clone(), blocks)
        return Batch(seeds, blocks, key, global_count)

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """All in-edges of the frontier."""
        return self._expansion.neighbours(frontier, hop, 0, self.inside)[0]

    def sample_placed(
        self, frontier: Tensor, hop: int, key: BatchKey, second_loop: Second
    ) -> tuple[Neighbours, tuple[int, int]]:
        """The draws of one hop, and their places."""
        if type(self).sample_layer is not FullSampler.sample_layer:  # draws of a subclass
            return super().sample_placed(frontier, hop, key, second_loop)
        return self._expansion.neighbours(frontier, hop, 0, self.inside, second_loop)
