"""What a rank is doing right now, for whoever looks at it from another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Stage = Literal["start", "train", "evaluate", "checkpoint", "end"]


class Activity:
    """The stage of the run, how often something began or ended (`marks`), and whether an exchange is under way.

    A rank that makes no marks and is in no exchange hangs by itself; one that waits in an exchange waits for another.

    Attributes:
        stage: of the run; phases of the epoch record are inside `train`.
        marks: grows with every phase that is entered or left.
    """

    def __init__(self) -> None:
        self.stage: Stage = "start"
        self.marks = 0
        self._exchanges = 0
        self._lock = threading.Lock()

    @property
    def exchanging(self) -> bool:
        """Whether a thread of this rank is inside a collective."""
        return self._exchanges > 0

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Around a collective, on any thread."""
        with self._lock:
            self._exchanges += 1
        try:
            yield
        finally:
            with self._lock:
                self._exchanges -= 1
            self.marks += 1

    @contextmanager
    def during(self, stage: Stage) -> Iterator[None]:
        """Be in `stage`; it stays that of an error that leaves it."""
        before, self.stage = self.stage, stage
        self.marks += 1
        yield
        self.stage = before
        self.marks += 1
