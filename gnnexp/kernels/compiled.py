"""How kernels are compiled: `numba.njit` with a cache on disk that several processes may fill at the same time.

numba does not lock its cache. If two processes save versions of a kernel at once, numba may store one version under the
number of the other. Later processes then load the wrong version, or never find it. So a process holds a lock per folder
while it saves. The ranks of a run also come to a new kernel at the same time. One of them compiles the kernel, and the
others wait and read what that rank has saved.

Nobody waits for a frozen process: a process that cannot get a lock compiles without it, and saves nothing.
"""

# ruff: noqa: ANN401  numba's own objects have no types
from __future__ import annotations

import fcntl
import logging
import os
import platform
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache

from gnnexp.files.disk import flock
from gnnexp.files.pulse import Pulse

log = logging.getLogger(__name__)
_within = threading.local()
_BUCKETS = 64
_POLL_S = 0.02
# A process that compiles uses a core all the time: after this silence it is frozen.
_FROZEN_S = 20.0
# A kernel takes seconds to compile. A process of another machine cannot be watched: it is given these minutes.
_UNSEEN_S = 300.0


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(cache=True, **options)`, safe for processes that compile at the same time."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(cache=True, **options)(function)
        dispatcher._cache = _LockedCache(function)
        dispatcher.compile = _InTurn(dispatcher.compile, Path(dispatcher._cache.cache_path), function.__qualname__)
        return dispatcher

    return decorate


@contextmanager
def locked(file: Path) -> Iterator[bool]:
    """Wait for the lock of `file`, which is made where it is missing; whether this process holds the lock now.

    It does not if the process that holds the lock is frozen.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield _acquire(handle, file)
    finally:
        os.close(handle)


def _acquire(handle: int, file: Path) -> bool:
    began, pulses = time.monotonic(), dict[int, Pulse]()
    while True:
        try:
            flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, file)
        except BlockingIOError:
            if why := _reason_to_leave(handle, pulses, time.monotonic() - began):
                log.warning("%s: %s; this process goes on without the lock", file, why)
                return False
            time.sleep(_POLL_S)
            continue
        with suppress(OSError):  # the disk is full: processes that wait do not know for whom
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{platform.node()} {os.getpid()}".encode(), 0)
        return True


def _reason_to_leave(handle: int, pulses: dict[int, Pulse], waited_s: float) -> str:
    """Why it is of no use to wait longer for the lock; empty while it is.

    Args:
        handle: of the lock file, in which the process that holds the lock has written its host and its number.
        pulses: of the processes that have been seen to hold the lock.
        waited_s: so far.
    """
    host, _, number = os.pread(handle, 512, 0).decode(errors="replace").rpartition(" ")
    if host == platform.node() and number.isdecimal():
        silent_s = pulses.setdefault(int(number), Pulse(int(number))).silent_s()
        return f"process {number} holds it and shows no sign of life for {silent_s:.0f} s" * (silent_s > _FROZEN_S)
    return f"another machine holds it for {waited_s:.0f} s" * (waited_s > _UNSEEN_S)


class _LockedCache(FunctionCache):
    """A function's versions on disk."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Read the list of versions, add one, write it: nobody else does meanwhile."""
        with locked(Path(self.cache_path) / "saving.lock") as alone:
            if alone:
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
