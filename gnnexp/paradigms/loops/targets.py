"""Targets of a global batch, and a rank's share of them: a pure function of seed, epoch and step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gnnexp.kernels.counter import Purpose, permutation, stream

# How targets of a global batch are assigned to ranks. With `even`, shares are contiguous and of equal size. With
# `owner`, the owner of a target trains it. With `stratified`, as in the published systems, every owner shuffles its own
# targets and takes a share of each batch.
Assign = Literal["even", "owner", "stratified"]


@dataclass(frozen=True, eq=False)
class TargetSchedule:
    """The order of the targets in every epoch, the same for any number of ranks.

    Attributes:
        targets: `[n]` original ids.
        batch_size: number of targets of a global batch; None: all in one.
        seed: seed of the run.
        shuffle: whether to draw a new order in every epoch.
        most_steps: most global batches of an epoch, or None.
    """

    targets: Tensor
    batch_size: int | None
    seed: int
    shuffle: bool
    most_steps: int | None = None

    @property
    def num_steps(self) -> int:
        """Number of global batches of an epoch. The last one may be smaller."""
        return min(self.num_batches, self.num_batches if self.most_steps is None else self.most_steps)

    @property
    def num_batches(self) -> int:
        """Number of global batches of all targets."""
        return math.ceil(self.targets.numel() / self._size)

    def order(self, epoch: int) -> Tensor:
        """`[n]` targets in the epoch's order. A single batch has the order of the data."""
        if not self.shuffle or self.num_batches == 1:
            return self.targets
        chosen = permutation(stream(self.seed, Purpose.SHUFFLE, epoch), self.targets.numel())
        return self.targets[torch.from_numpy(chosen)]

    def global_batch(self, order: Tensor, step: int) -> Tensor:
        """Targets of global batch `step`."""
        return order[step * self._size : (step + 1) * self._size]

    @property
    def _size(self) -> int:
        return max(1, self.targets.numel() if self.batch_size is None else self.batch_size)


@dataclass(frozen=True, eq=False)
class StratifiedSchedule:
    """Every part shuffles its own targets and spreads them evenly over the steps (GSplit's and DistDGL's scripts).

    Then a global batch is not a uniform sample of all targets: it has a fixed share of every part.

    Attributes:
        whole: schedule of all targets, with number of steps and seed.
        owner: `[V]` part of each vertex.
        num_parts: number of parts.
    """

    whole: TargetSchedule
    owner: Tensor
    num_parts: int

    def orders(self, epoch: int) -> list[Tensor]:
        """Every part's targets in the epoch's order."""
        targets = self.whole.targets
        of_part = self.owner[targets]
        orders = []
        for part in range(self.num_parts):
            own = targets[of_part == part]
            key = stream(self.whole.seed, Purpose.SHUFFLE, epoch, part)
            orders.append(own[torch.from_numpy(permutation(key, own.numel()))] if self.whole.shuffle else own)
        return orders

    def batch(self, orders: list[Tensor], step: int, part: int) -> tuple[Tensor, Tensor]:
        """`(targets of `part`, targets of all parts)` in step `step`."""
        shares = [targets_of_rank(order, step, self.whole.num_batches) for order in orders]
        return shares[part], torch.cat(shares)


def targets_of_rank(targets: Tensor, rank: int, num_ranks: int) -> Tensor:
    """A rank's contiguous share of a global batch. Sizes differ by at most one, and may be zero."""
    whole, rest = divmod(targets.numel(), num_ranks)
    start = rank * whole + min(rank, rest)
    return targets[start : start + whole + (1 if rank < rest else 0)]
