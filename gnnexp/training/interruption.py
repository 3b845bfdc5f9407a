"""Requests from outside to write a checkpoint or to stop, agreed on by all ranks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType

from gnnexp.comm.agreement import Agreement
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import STOP_VARIABLE


class StopRequest(IntEnum):
    """What a rank was asked to do; the larger one wins."""

    NOTHING = 0
    SAVE = 1
    STOP = 2


class Interruption:
    """SIGUSR2 asks for a checkpoint, SIGTERM for a checkpoint and the end of the run.

    Python runs signal handlers between two of its own instructions: a rank that sits in a collective hears of a signal
    when the collective is over.

    Args:
        comm: the run's; called by all ranks.

    Attributes:
        asked_by: the signal that this rank heard last, or `another rank`.
    """

    def __init__(self, comm: Communicator) -> None:
        self._agreement = Agreement(comm.clone_for_thread())
        self._request = StopRequest.NOTHING
        self.asked_by = "another rank"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Have signals noted instead of ending this process."""
        on_usr2 = StopRequest.STOP if os.environ.get(STOP_VARIABLE) else StopRequest.SAVE
        before = {
            number: signal.signal(number, self._note(request))
            for number, request in ((signal.SIGTERM, StopRequest.STOP), (signal.SIGUSR2, on_usr2))
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, request: StopRequest) -> Callable[[int, FrameType | None], None]:
        def handle(number: int, frame: FrameType | None) -> None:
            self._request, self.asked_by = max(self._request, request), signal.Signals(number).name

        return handle

    def after_step(self) -> StopRequest:
        """What all ranks do now, after the same step of each."""
        return StopRequest(self._agreement.after_step(self._request))

    def at_epoch_end(self) -> StopRequest:
        """What this rank knows of, for the agreement that ends an epoch."""
        return max(self._request, StopRequest(self._agreement.finish()))

    def granted(self, request: StopRequest) -> None:
        """`request` has been fulfilled; what was heard meanwhile, and asks for more, stands."""
        if self._request <= request:
            self._request = StopRequest.NOTHING
