"""Records stop signals instead of raising them anywhere, so that the code can handle them at safe points."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Interrupts:
    """The stop signals that have arrived.

    Attributes:
        first: the first signal; None if none has arrived.
        count: number of signals; a second one means that the user does not want to wait.
    """

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self.count = 0


@contextmanager
def handling(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Inside of this context, signals have these handlers. At the end, earlier handlers are restored.

    Python lets only the main thread handle signals. In another thread, this context does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def noted() -> Iterator[Interrupts]:
    """Record stop signals inside of this context instead of raising. At the end, earlier handlers are restored.

    Signals that this process was started to ignore stay ignored (`nohup`, background jobs of a script). In a thread
    other than the main thread, no signal is recorded.
    """
    interrupts = Interrupts()

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.first = interrupts.first or signal.Signals(number)
        interrupts.count += 1

    heard = [item for item in _SIGNALS if signal.getsignal(item) is not signal.SIG_IGN]
    with handling(dict.fromkeys(heard, note)):
        yield interrupts
