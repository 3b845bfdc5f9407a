"""A request that one rank received becomes known to all ranks after the same step. No rank waits for it."""

from __future__ import annotations

import time

import torch
from torch.distributed import Work

from gnnexp.comm.communicator import Communicator

_PERIOD_S = 0.5
# Steps between two reductions are at most twice as many as before, and never more than this.
_MOST_STEPS = 1 << 20


class Agreement:
    """The maximum of the ranks' requests, known to all ranks after the same step.

    A rank that receives a signal cannot stop alone, because its peers would wait for it in the next exchange. Every few
    steps the ranks therefore start a max-reduction in the background, and read its result a few steps later. The
    reduction also carries the time since the last one. From this time all ranks choose the same number of steps until
    the next reduction, about one per half second. Reductions are neither timed nor counted: they belong to the platform
    and not to the paradigm.

    Args:
        comm: host tensors of all ranks, used by nobody else.
        period_s: wanted time between two reductions.
    """

    def __init__(self, comm: Communicator, period_s: float = _PERIOD_S) -> None:
        self._comm, self._period = comm, period_s
        self._stride, self._left = 1, 1
        self._steps, self._measured = 0, 0  # since the last reduction began, and when the pending one began
        self._pending: tuple[torch.Tensor, Work] | None = None
        self._since = time.monotonic()

    def after_step(self, request: int) -> int:
        """Called by all ranks after every step. Returns the largest request once all ranks know it, else 0."""
        if self._comm.size == 1:
            return request
        self._left -= 1
        self._steps += 1
        if self._left > 0:
            return 0
        agreed = self._take()
        self._left = self._stride
        now = time.monotonic()
        request = request if request > agreed else 0  # a request that is granted now is not repeated
        numbers = torch.tensor([float(request), now - self._since], dtype=torch.float64)
        self._since = now
        self._measured, self._steps = self._steps, 0
        self._pending = numbers, self._comm.start_max(numbers)
        return agreed

    def finish(self) -> int:
        """Wait for the pending reduction and return its result. All ranks call this at the end of an epoch."""
        agreed = self._take()
        self._left = 1
        return agreed

    def _take(self) -> int:
        if self._pending is None:
            return 0
        numbers, work = self._pending
        self._pending = None
        work.wait()
        request, seconds = numbers.tolist()
        # Those that were done: an epoch may have ended before the stride.
        steps = self._measured * self._period / max(seconds, 1e-6)
        self._stride = int(min(max(1.0, steps), 2 * self._stride, _MOST_STEPS))
        return int(request)
