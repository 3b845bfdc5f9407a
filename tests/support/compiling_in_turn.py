"""Kernels that are not in numba's cache: one process compiles each of them, and the others read what it has written.

The ranks of a test come to the same kernel at the same time. Left alone each of them compiles it, on two cores for as
many seconds as there are ranks. Nor does numba lock its cache: of two versions of a kernel that are saved at once, one
may be kept under the number of the other, and is then lost or taken for it.
"""

from __future__ import annotations

import fcntl
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.dispatcher import Dispatcher

_within = threading.local()


def compile_in_turn() -> None:
    """Have this process wait where another that has called this compiles a kernel of the same source file."""
    if not hasattr(Dispatcher.compile, "__wrapped__"):
        Dispatcher.compile = _in_turn(Dispatcher.compile)


def _in_turn(compile_: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compile_)
    def compile_or_read(dispatcher: Any, signature: Any) -> Any:
        # What a kernel calls is compiled within its turn: no process waits for a second lock while it holds one.
        if getattr(_within, "turn", False) or dispatcher._cache.cache_path is None:
            return compile_(dispatcher, signature)
        with Path(dispatcher.py_func.__code__.co_filename).open("rb") as source:
            fcntl.flock(source, fcntl.LOCK_EX)
            _within.turn = True
            try:
                return compile_(dispatcher, signature)  # looks into the cache before it compiles
            finally:
                _within.turn = False

    return compile_or_read
