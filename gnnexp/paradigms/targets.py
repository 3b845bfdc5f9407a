"""Which targets make a global batch, and which of them are a rank's: a pure function of seed, epoch and step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnexp.kernels.counter import Purpose, permutation, stream


@dataclass(frozen=True, eq=False)
class TargetSchedule:
    """The order of the targets in every epoch, the same for any number of ranks.

    Attributes:
        targets: `[n]` original ids.
        batch_size: of a global batch; None = all in one.
        seed: of the run.
        shuffle: draw a new order in every epoch.
    """

    targets: Tensor
    batch_size: int | None
    seed: int
    shuffle: bool

    @property
    def num_steps(self) -> int:
        """Global batches of an epoch; the last one may be smaller."""
        return math.ceil(self.targets.numel() / self._size)

    def order(self, epoch: int) -> Tensor:
        """`[n]` targets in the epoch's order; with a single batch the order is that of the data."""
        if not self.shuffle or self.num_steps == 1:
            return self.targets
        chosen = permutation(stream(self.seed, Purpose.SHUFFLE, epoch), self.targets.numel())
        return self.targets[torch.from_numpy(chosen)]

    def global_batch(self, order: Tensor, step: int) -> Tensor:
        """Targets of global batch `step`."""
        return order[step * self._size : (step + 1) * self._size]

    @property
    def _size(self) -> int:
        return max(1, self.targets.numel() if self.batch_size is None else self.batch_size)


def share(targets: Tensor, rank: int, num_ranks: int) -> Tensor:
    """A contiguous share of a global batch; sizes differ by at most one, and may be zero."""
    whole, rest = divmod(targets.numel(), num_ranks)
    start = rank * whole + min(rank, rest)
    return targets[start : start + whole + (1 if rank < rest else 0)]
