"""What campaigns counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Failure:
    """Something that must not happen, and did.

    Attributes:
        campaign: `fuzz`, ….
        what: happened, in words.
        seed: of the case.
        how: the command that reproduces it.
    """

    campaign: str
    what: str
    seed: int
    how: str


@dataclass(frozen=True)
class Counts:
    """Numbers by their names, and every failure.

    Attributes:
        numbers: how often something was done or seen.
        failures: in the order in which they were found.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        """The sum of all numbers, and the failures of both."""
        total = Counter(self.numbers)
        total.update(other.numbers)
        return Counts(dict(sorted(total.items())), self.failures + other.failures)
