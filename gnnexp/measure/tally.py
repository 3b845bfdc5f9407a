"""Sums that several threads add to, and what a batch that is prepared ahead adds to them when it is trained."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, Protocol, Self, TypeVar


class Summable(Protocol):
    """Amounts: whole numbers, traffic."""

    def __add__(self, other: Self, /) -> Self:
        """The sum."""


K = TypeVar("K", bound=str)
V = TypeVar("V", bound=Summable)


class Tally(Generic[K, V]):
    """Sums by name between two calls of `take` (thread-safe).

    What a thread adds inside `apart` is no part of the sums until the training loop adds it: a batch that was prepared
    ahead is counted when it is trained. One that is thrown away and prepared again is counted once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[K, V] = {}
        self._threads = threading.local()

    def add(self, amounts: Mapping[K, V]) -> None:
        """Add amounts by name."""
        apart: dict[K, V] | None = getattr(self._threads, "sums", None)
        with self._lock:
            sums = self._sums if apart is None else apart
            for name, amount in amounts.items():
                sums[name] = sums[name] + amount if name in sums else amount

    @contextmanager
    def apart(self) -> Iterator[dict[K, V]]:
        """Keep what the calling thread adds inside in these sums of its own, for whoever takes its result to add."""
        assert not hasattr(self._threads, "sums"), "a thread prepares one batch at a time"
        sums: dict[K, V] = {}
        self._threads.sums = sums
        try:
            yield sums
        finally:
            del self._threads.sums

    def take(self) -> dict[K, V]:
        """The sums since the last call; starts afresh."""
        with self._lock:
            sums, self._sums = self._sums, {}
        return sums


class Counts(Tally[str, int]):
    """Whole numbers by name: rows, edges, bytes."""
