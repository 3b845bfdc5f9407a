"""What crossed between ranks: bytes, rounds and seconds by purpose, exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gnnexp.measure.tally import Tally

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

    def __add__(self, other: Traffic) -> Traffic:
        """Of both together."""
        return Traffic(
            self.sent_bytes + other.sent_bytes, self.rounds + other.rounds, self.seconds + other.seconds
        )


class Ledger(Tally[Tag, Traffic]):
    """Traffic by tag."""


def all_reduce_bytes(payload_bytes: int, rank: int, num_ranks: int) -> int:
    """Bytes that `rank` sends in an all-reduce of `payload_bytes`: an integer share of 2(N-1) payload_bytes.

    The shares of all ranks add up exactly; what does not divide goes to the lowest ranks.
    """
    whole, rest = divmod(2 * (num_ranks - 1) * payload_bytes, num_ranks)
    return whole + (1 if rank < rest else 0)
