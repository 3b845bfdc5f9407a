"""How kernels are compiled: `numba.njit` with a cache on disk that several processes may fill at the same time.

numba does not lock its cache: of two versions of a kernel that are saved at once, one may be kept under the number of
the other, and from then on is taken for it, or never found. So saving is locked, per folder. Nor do processes know that
they compile the same version, as the ranks of a run do when they come to a new kernel: one of them compiles it, and the
others read what it has written.
"""

# ruff: noqa: ANN401  numba's own objects have no types
from __future__ import annotations

import fcntl
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache

from gnnexp.disk import flock

_within = threading.local()
_BUCKETS = 64


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(cache=True, **options)`, safe for processes that compile at the same time."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(cache=True, **options)(function)
        dispatcher._cache = _LockedCache(function)
        dispatcher.compile = _InTurn(dispatcher.compile, Path(dispatcher._cache.cache_path), function.__qualname__)
        return dispatcher

    return decorate


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold `file`, which is made where it is missing, while no other process does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as lock:
        flock(lock.fileno(), fcntl.LOCK_EX, file)
        yield


class _LockedCache(FunctionCache):
    """A function's versions on disk."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Read the list of versions, add one, write it: nobody else does meanwhile."""
        with locked(Path(self.cache_path) / "saving.lock"):
            super().save_overload(sig, data)


class _InTurn:
    """A dispatcher's `compile`, which looks into the cache first."""

    def __init__(self, compile_: Callable[[Any], Any], folder: Path, name: str) -> None:
        self._compile, self._folder, self._name = compile_, folder, name

    def __call__(self, signature: Any) -> Any:
        # What a kernel calls is compiled within its turn: no process waits for a turn while it has one.
        if getattr(_within, "turn", False):
            return self._compile(signature)
        with locked(self._folder / f"turn{self._bucket(signature)}.lock"):
            _within.turn = True
            try:
                return self._compile(signature)
            finally:
                _within.turn = False

    def _bucket(self, signature: Any) -> int:
        """The same in every process, rarely the same for two versions: these would only wait for each other."""
        return zlib.crc32(f"{self._name}{signature}".encode()) % _BUCKETS
