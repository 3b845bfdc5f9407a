"""What crossed between ranks: bytes, rounds and seconds by purpose, exact."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Literal, get_args

Tag = Literal[
    "frontier", "features", "activations", "endpoints", "gradients", "embeddings", "parameters", "topology", "sizes",
    "evaluation",
]
TAGS: tuple[Tag, ...] = get_args(Tag)


@dataclass(frozen=True)
class Traffic:
    """One rank's traffic for one purpose.

    Attributes:
        sent_bytes: payload sent to *other* ranks; an all-reduce of n bytes over N ranks counts 2(N-1)/N n, so that
            all ranks together count 2(N-1) n.
        rounds: payload exchanges that all ranks took part in.
        seconds: time inside those collectives.
    """

    sent_bytes: int = 0
    rounds: int = 0
    seconds: float = 0.0

    def joined(self, later: Traffic) -> Traffic:
        """Of two pieces of an epoch together."""
        return Traffic(
            self.sent_bytes + later.sent_bytes, self.rounds + later.rounds, self.seconds + later.seconds
        )


class Ledger:
    """Accumulates traffic by tag between two calls of `take` (thread-safe)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Tag, Traffic] = {}

    def add(self, tag: Tag, sent_bytes: int, rounds: int, seconds: float) -> None:
        """Record one exchange."""
        with self._lock:
            old = self._entries.get(tag, Traffic())
            self._entries[tag] = Traffic(
                old.sent_bytes + sent_bytes, old.rounds + rounds, old.seconds + seconds
            )

    def add_seconds(self, tag: Tag, seconds: float) -> None:
        """Record time of an exchange whose bytes were recorded when it was issued."""
        with self._lock:
            old = self._entries.get(tag, Traffic())
            self._entries[tag] = replace(old, seconds=old.seconds + seconds)

    def take(self) -> dict[Tag, Traffic]:
        """Everything since the last call; starts afresh."""
        with self._lock:
            entries, self._entries = self._entries, {}
        return entries


def all_reduce_share(payload_bytes: int, rank: int, num_ranks: int) -> int:
    """Bytes that `rank` sends in an all-reduce of `payload_bytes`: an integer share of 2(N-1) payload_bytes.

    The shares of all ranks add up exactly; what does not divide goes to the lowest ranks.
    """
    whole, rest = divmod(2 * (num_ranks - 1) * payload_bytes, num_ranks)
    return whole + (1 if rank < rest else 0)
