"""Exact counts of communication between ranks (bytes, rounds and seconds by tag), and sums that threads add to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, Self, TypeVar, get_args


class Summable(Protocol):
    """Values that can be added: integers, traffic."""

    def __add__(self, other: Self, /) -> Self:
        """The sum."""


K = TypeVar("K", bound=str)
V = TypeVar("V", bound=Summable)


def added(one: Mapping[K, V], other: Mapping[K, V]) -> dict[K, V]:
    """The sum of two mappings: a name that only one of them has keeps its value."""
    return {**one, **{name: one[name] + value if name in one else value for name, value in other.items()}}


class Tally(Generic[K, V]):
    """Sums by name between two calls of `take` (thread-safe).

    Amounts that a thread adds inside `apart` are kept separate until the training loop adds them. So a batch that was
    prepared ahead is counted when it is trained, and a batch that is thrown away and prepared again is counted once.
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
        """Collect what the calling thread adds inside in separate sums. The training loop adds them later."""
        assert not hasattr(self._threads, "sums"), "a thread prepares one batch at a time"
        sums: dict[K, V] = {}
        self._threads.sums = sums
        try:
            yield sums
        finally:
            del self._threads.sums

    def take(self) -> dict[K, V]:
        """The sums since the last call. Resets them to zero."""
        with self._lock:
            sums, self._sums = self._sums, {}
        return sums


class Counts(Tally[str, int]):
    """Integers by name: rows, edges, bytes."""


Tag = Literal[
    "frontier",
    "features",
    "activations",
    "endpoints",
    "gradients",
    "embeddings",
    "parameters",
    "topology",
    "sizes",
    "evaluation",
]
TAGS: tuple[Tag, ...] = get_args(Tag)


@dataclass(frozen=True)
class Traffic:
    """One rank's traffic for one tag.

    Attributes:
        sent_bytes: payload sent to *other* ranks. An all-reduce of n bytes over N ranks counts 2(N-1)/N n on each rank,
            so that all ranks together count 2(N-1) n.
        rounds: number of payload exchanges of all ranks.
        seconds: time inside these collective calls.
    """

    sent_bytes: int = 0
    rounds: int = 0
    seconds: float = 0.0

    def __add__(self, other: Traffic) -> Traffic:
        """The sum of both."""
        return Traffic(self.sent_bytes + other.sent_bytes, self.rounds + other.rounds, self.seconds + other.seconds)


class Ledger(Tally[Tag, Traffic]):
    """Traffic by tag."""


def all_reduce_bytes(payload_bytes: int, rank: int, num_ranks: int) -> int:
    """Bytes that `rank` sends in an all-reduce of `payload_bytes`: an integer share of 2(N-1) payload_bytes.

    The shares of all ranks add up exactly: the lowest ranks count one byte more if the total is not divisible.
    """
    whole, rest = divmod(2 * (num_ranks - 1) * payload_bytes, num_ranks)
    return whole + (1 if rank < rest else 0)
