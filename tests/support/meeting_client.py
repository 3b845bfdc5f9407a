"""A client for tests of two processes that ask a store at the same time."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any


class Meeting:
    """A client whose search is answered when another one has searched, too, or nobody else does for a second."""

    def __init__(self, client: Any, barrier: threading.Barrier) -> None:
        self.client, self.barrier = client, barrier

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def search_runs(self, *arguments: Any, **more: Any) -> Any:
        found = self.client.search_runs(*arguments, **more)
        with suppress(threading.BrokenBarrierError):
            self.barrier.wait(1.0)
            self.barrier.reset()
        return found
