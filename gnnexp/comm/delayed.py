"""Exchanges whose result is used some epochs later: DistGNN's delayed aggregation (cd-r), forwards and backwards.

What arrives in an epoch is kept, and what arrived `delay` epochs before is used; in the first epochs nothing has, so
other ranks' parts are missing. Gradients take the same way back with the same delay.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import Halo
from gnnexp.measure.ledger import Tag
from gnnexp.ops.first_order import FirstOrderFunction


class Delayed:
    """One place where rows are exchanged in every epoch.

    Args:
        halo: how rows come and go.
        delay: epochs, at least 1.

    Attributes:
        forwards, backwards: what arrived and has not been used, oldest first.
    """

    def __init__(self, halo: Halo, delay: int) -> None:
        self.halo, self.delay = halo, delay
        self.forwards: deque[Tensor] = deque()
        self.backwards: deque[Tensor] = deque()

    def gather(self, local: Tensor, comm: Communicator, tag: Tag) -> Tensor:
        """As `shuffle`, with foreign rows of `delay` epochs ago."""
        if comm.size == 1:
            return local
        out: Tensor = _Gather.apply(local, self, comm, tag)  # type: ignore[no-untyped-call]
        return out

    def reduce(self, rows: Tensor, comm: Communicator, tag: Tag) -> Tensor:
        """As `reduce_home`, with foreign parts of `delay` epochs ago."""
        if comm.size == 1:
            return rows
        out: Tensor = _Reduce.apply(rows, self, comm, tag)  # type: ignore[no-untyped-call]
        return out

    def fetched(self, local: Tensor, comm: Communicator, tag: Tag, queue: deque[Tensor]) -> Tensor:
        """Foreign rows."""
        fresh = self.halo.fetch(local.contiguous(), comm, tag)
        assert isinstance(fresh, Tensor)
        return self._later(fresh, queue)

    def brought_home(self, foreign: Tensor, comm: Communicator, tag: Tag, queue: deque[Tensor]) -> Tensor:
        """`[num_local, d]` what other ranks add to the rows here."""
        nothing = foreign.new_zeros(self.halo.num_local, foreign.shape[1])
        return self._later(self.halo.put_back(torch.cat((nothing, foreign)), comm, tag), queue)

    def _later(self, fresh: Tensor, queue: deque[Tensor]) -> Tensor:
        queue.append(fresh)
        return queue.popleft() if len(queue) > self.delay else torch.zeros_like(fresh)

    def forget(self) -> None:
        """As if nothing had arrived."""
        self.forwards.clear()
        self.backwards.clear()


class _Gather(FirstOrderFunction):
    @staticmethod
    def forward(ctx: Any, local: Tensor, place: Delayed, comm: Communicator, tag: Tag) -> Tensor:
        ctx.rest = place, comm, tag
        return torch.cat((local, place.fetched(local, comm, tag, place.forwards)))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        place, comm, tag = ctx.rest
        count = place.halo.num_local
        return gradient[:count] + place.brought_home(gradient[count:], comm, tag, place.backwards), None, None, None


class _Reduce(FirstOrderFunction):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, place: Delayed, comm: Communicator, tag: Tag) -> Tensor:
        ctx.rest = place, comm, tag
        count = place.halo.num_local
        return rows[:count] + place.brought_home(rows[count:], comm, tag, place.forwards)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        place, comm, tag = ctx.rest
        return torch.cat((gradient, place.fetched(gradient, comm, tag, place.backwards))), None, None, None
