"""Requests from outside to write a checkpoint or to stop. All ranks agree on the step at which they act."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractContextManager
from enum import IntEnum
from types import FrameType

from gnnexp.comm.agreement import Agreement
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import STOP_VARIABLE
from gnnexp.launchers.interrupts import Handler, handling


class StopRequest(IntEnum):
    """What a rank was asked to do. The larger value wins."""

    NOTHING = 0
    SAVE = 1
    STOP = 2


class Interruption:
    """Handles signals: SIGUSR2 asks for a checkpoint, SIGTERM for a checkpoint and the end of the run.

    Under SLURM, SIGUSR2 announces the end of the allocation (`STOP_VARIABLE`), and is handled like SIGTERM. Python runs
    signal handlers between two Python instructions. A rank in a collective call therefore handles a signal after it.

    Args:
        comm: communicator of all ranks. The constructor is a collective call.

    Attributes:
        asked_by: the signal that this rank received last, or `another rank`.
    """

    def __init__(self, comm: Communicator) -> None:
        self._agreement = Agreement(comm.clone_for_thread())
        self._request = StopRequest.NOTHING
        self.asked_by = "another rank"

    def listening(self) -> AbstractContextManager[None]:
        """Note signals inside, instead of ending the process."""
        on_usr2 = StopRequest.STOP if os.environ.get(STOP_VARIABLE) else StopRequest.SAVE
        return handling({signal.SIGTERM: self._note(StopRequest.STOP), signal.SIGUSR2: self._note(on_usr2)})

    def _note(self, request: StopRequest) -> Handler:
        def handle(number: int, frame: FrameType | None) -> None:
            self._request, self.asked_by = max(self._request, request), signal.Signals(number).name

        return handle

    def after_step(self) -> StopRequest:
        """The request that all ranks handle now. All ranks call this after the same step, and get the same answer."""
        return StopRequest(self._agreement.after_step(self._request))

    def at_epoch_end(self) -> StopRequest:
        """The largest request that this rank knows. At the end of an epoch, ranks exchange these values."""
        return max(self._request, StopRequest(self._agreement.finish()))

    def granted(self, request: StopRequest) -> None:
        """Clear the handled `request`; a stronger one received meanwhile stays pending."""
        if self._request <= request:
            self._request = StopRequest.NOTHING
