"""Components as a user writes them, for tests of composition and checks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from gnnexp.errors import ConfigError, Problem


class Cache:
    def __init__(self, capacity: int, policy: Literal["lru", "degree"] = "lru") -> None:
        self.capacity = capacity
        self.policy = policy


class Store:
    def __init__(
        self,
        width: int,
        rate: float = 0.5,
        names: Sequence[str] = (),
        cache: Cache | None = None,
        shape: tuple[int, int] | None = None,
        flag: bool = False,
    ) -> None:
        if rate < 0:
            raise ConfigError(Problem("rate", rate, "must not be negative", "rate=0.5"))
        self.width, self.rate, self.names, self.cache, self.shape, self.flag = width, rate, names, cache, shape, flag


class OtherStore(Store):
    """A subclass that takes everything its base takes."""


def make_store(width: int) -> Store:
    return Store(width)


class AnyStore(Store):
    """Takes whatever it is given."""

    def __init__(self, **options: object) -> None:
        super().__init__(1)
        self.options = options


class Open(Store):
    """Keys of every sort that is no component's."""

    def __init__(
        self,
        anything: Any = None,
        thing: object = None,
        word: str = "",
        options: Mapping[str, Any] | None = None,
        caches: Sequence[Cache] = (),
        call: Callable[..., object] | None = None,
        key: Hashable | None = None,
    ) -> None:
        super().__init__(1)
        self.given = (anything, thing, word, options, caches, call, key)


class Either(Store):
    """One key, two kinds."""

    def __init__(self, part: Cache | Store | None = None) -> None:
        super().__init__(1)
        self.part = part


class Calls:
    """No component: notes that it was called."""

    count = 0

    def __init__(self, **options: object) -> None:
        type(self).count += 1


def note_call(**options: object):
    Calls()
    return Store(1)


def note_call_of_any(**options: object) -> Any:
    return note_call(**options)


def note_call_of_store_or_none(width: int = 1) -> Store | None:
    Calls()
    return Store(width)


def liar(width: int = 1) -> Store:
    """Says that it returns a store, and does not."""
    return Cache(width)  # type: ignore[return-value]


if TYPE_CHECKING:
    from components_for_checkers import Unknown


def make_unknown(width: int = 1) -> Unknown:
    return note_call(width=width)


class Claims:
    """Claims to be any class when it is asked, as proxies of libraries do; `raising` raises."""

    def __init__(self, raising: bool = False) -> None:
        object.__setattr__(self, "raising", raising)

    @property
    def __class__(self) -> type:
        if self.raising:
            raise RuntimeError("outside of a context")
        return type

    def __call__(self, **options: object) -> Store:
        return note_call(**options)


claims, raises = Claims(), Claims(raising=True)
