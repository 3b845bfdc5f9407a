"""How kernels are compiled: `numba.njit` with a cache on disk that several processes may fill at the same time.

numba does not lock its cache. If two processes save versions of a kernel at once, numba may store one version under the
number of the other. Later processes then load the wrong version, or never find it. So a process holds a lock per folder
while it saves. The ranks of a run also reach a new kernel at the same time. One of them compiles the kernel. The others
wait and then read the saved version.

No process waits for a frozen one: a process that cannot get a lock compiles without it, and saves nothing.

After numba (0.68.1) asked for a literal, its errors keep the frames of all callers, and so the arrays in them, until
Python's collector runs. Rows that a kernel has read would then count as memory of the step that compiled it. So the
collector runs after each version that was compiled (findings/numba_literal_keeps_arrays.sh).
"""

# ruff: noqa: ANN401  numba's own objects have no types
from __future__ import annotations

import fcntl
import gc
import logging
import os
import platform
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
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
# A process that compiles uses a core all the time. After this time without CPU use it counts as frozen.
_FROZEN_S = 20.0
# A kernel takes seconds to compile. A process on another machine cannot be observed, so the wait for it has a limit.
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
    """Wait for the lock of `file` and hold the lock inside the context; a missing file is created.

    Yields whether this process holds the lock: False if the process that holds it is frozen.
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
            reason = _why_not_wait(handle, pulses, time.monotonic() - began)
            if reason is not None:
                log.warning("%s: %s; this process goes on without the lock", file, reason)
                return False
            time.sleep(_POLL_S)
            continue
        with suppress(OSError):  # the disk is full: processes that wait do not know for whom
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{platform.node()} {os.getpid()}".encode(), 0)
        return True


def _why_not_wait(handle: int, pulses: dict[int, Pulse], waited_s: float) -> str | None:
    """The reason to stop waiting for the lock, or None if waiting still makes sense.

    Args:
        handle: the open lock file; the process that holds the lock has written its host and process id there.
        pulses: signs of life of every process that held the lock during this wait, by process id.
        waited_s: seconds waited so far.
    """
    host, _, number = os.pread(handle, 512, 0).decode(errors="replace").rpartition(" ")
    if host == platform.node() and number.isdecimal():
        silent_s = pulses.setdefault(int(number), Pulse(int(number))).silent_s()
        reason = f"process {number} holds it and shows no sign of life for {silent_s:.0f} s"
        return reason if silent_s > _FROZEN_S else None
    return f"another machine holds it for {waited_s:.0f} s" if waited_s > _UNSEEN_S else None


@cache
def _say_once() -> None:
    """One line per process, not per kernel."""
    log.warning("compiling kernels at their first use: this takes seconds, and later runs find them in the cache")


class _LockedCache(FunctionCache):
    """The compiled versions of a function on disk."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The version on disk, or None; then it is compiled next, which the user should know."""
        found = super().load_overload(sig, target_context)
        if found is None:
            _say_once()
            _within.compiles = True
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Read the list of versions, add one, and write the list, under a lock that excludes other processes."""
        with locked(Path(self.cache_path) / "saving.lock") as alone:
            if alone:
                super().save_overload(sig, data)


class _InTurn:
    """A dispatcher's `compile` under a lock; `compile` itself looks into the cache first."""

    def __init__(self, compile_: Callable[[Any], Any], folder: Path, name: str) -> None:
        self._compile, self._folder, self._name = compile_, folder, name

    def __call__(self, signature: Any) -> Any:
        # Functions that a kernel calls are compiled within the kernel's turn. So a process that has a turn never waits
        # for another turn, and there is no deadlock.
        if getattr(_within, "turn", False):
            return self._compile(signature)
        with locked(self._folder / f"turn{self._bucket(signature)}.lock"):
            _within.turn, _within.compiles = True, False
            try:
                return self._compile(signature)
            finally:
                _within.turn = False
                if _within.compiles:
                    gc.collect()

    def _bucket(self, signature: Any) -> int:
        """The number of the turn's lock file, the same in every process.

        Two versions rarely share a number. If they do, one only waits for the other.
        """
        return zlib.crc32(f"{self._name}{signature}".encode()) % _BUCKETS
