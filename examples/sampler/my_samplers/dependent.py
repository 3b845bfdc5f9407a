"""Dependent mini-batches (Balin et al. 2023): a vertex draws the same neighbours in some batches, one after the other.

Batches of one such group load many vertices twice, which a cache of recent rows can use. Draws are uniform in each
batch, but those of a group are not independent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from gnnexp.components.options import wrong_options
from gnnexp.errors import Problem
from gnnexp.graph.block import Batch, BatchKey
from gnnexp.samplers.fused import FusedOptions, FusedSampler
from gnnexp.samplers.layerwise import Neighbours


@dataclass(frozen=True)
class DependentOptions(FusedOptions):
    """The options, which the launcher checks. A rank makes its sampler of them.

    Attributes:
        repeats: number of batches with the same draws.
    """

    repeats: int = 4

    def problems(self) -> list[Problem]:
        """Options outside of their ranges. The launcher prints all of them at once."""
        wrong = (self.repeats >= 1, "repeats", self.repeats, "must be at least 1", 4)
        return [*super().problems(), *wrong_options("sampler", wrong)]

    def make(self) -> DependentSampler:
        """The sampler of a rank."""
        return DependentSampler(self)


class DependentSampler(FusedSampler):
    """Draws neighbours by a function of (seed, epoch, group of steps, hop, ids): any number of ranks draws the same."""

    options: DependentOptions

    def _of_group(self, key: BatchKey) -> BatchKey:
        return replace(key, step=key.step // self.options.repeats)

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch. Dropout still has the key of the batch."""
        return replace(super().sample(seeds, self._of_group(key), global_count), key=key)

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """The draws of one hop, for paradigms whose ranks exchange vertices between hops."""
        return super().sample_layer(frontier, hop, self._of_group(key))
