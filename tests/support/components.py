"""Components as a user writes them, for tests of composition and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gnnexp.errors import ConfigError, Problem


class Cache:
    def __init__(self, capacity: int, policy: Literal["lru", "degree"] = "lru") -> None:
        self.capacity = capacity
        self.policy = policy


class Store:
    def __init__(
        self, width: int, rate: float = 0.5, names: Sequence[str] = (), cache: Cache | None = None,
        shape: tuple[int, int] | None = None, flag: bool = False,
    ) -> None:
        if rate < 0:
            raise ConfigError(Problem("rate", rate, "must not be negative", "rate=0.5"))
        self.width, self.rate, self.names, self.cache, self.shape, self.flag = width, rate, names, cache, shape, flag


class OtherStore(Store):
    """A subclass that takes everything its base takes."""


def make_store(width: int) -> Store:
    return Store(width)


def anything(**options: object) -> dict[str, object]:
    return options
