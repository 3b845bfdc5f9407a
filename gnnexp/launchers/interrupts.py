"""Signals that ask to stop, while stopping takes care: noted, and looked at where something can be done about them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Interrupts:
    """What has been asked.

    Attributes:
        first: the signal that came first, None while there was none.
        count: how many have come; a second one is from somebody who does not want to wait.
    """

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self.count = 0


@contextmanager
def noted() -> Iterator[Interrupts]:
    """Signals raise nothing inside, however many come; the caller's handlers are back at the end. Main thread only.

    What this process was started to ignore it goes on ignoring (`nohup`, the background jobs of a script).
    """
    found = Interrupts()

    def note(number: int, frame: FrameType | None) -> None:
        found.first = found.first or signal.Signals(number)
        found.count += 1

    heard = [item for item in _SIGNALS if signal.getsignal(item) is not signal.SIG_IGN]
    before = {item: signal.signal(item, note) for item in heard}
    try:
        yield found
    finally:
        for item, handler in before.items():
            signal.signal(item, handler)
