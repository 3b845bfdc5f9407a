"""Counts the work of a GPU: launches, waits of the host, copies and their bytes, by kernel and by line."""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import gnnexp

NAMES = (
    "launches",
    "waits",
    "stream_waits",
    "h2d_copies",
    "h2d_bytes",
    "pageable_h2d_bytes",
    "d2h_copies",
    "d2h_bytes",
    "pinned_bytes",
    "host_read_bytes",
    "peer_read_bytes",
)
_GNNEXP = Path(gnnexp.__file__).parent
_NOT_NAMED = (f"{_GNNEXP / 'testing'}{os.sep}", f"{Path(__file__).parent}{os.sep}")
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@dataclass
class Counts:
    """Counts since counting began: bytes for names that end in `_bytes`, numbers of events for others.

    Attributes:
        totals: counts by name (`NAMES`).
        places: counts by name and by the line that caused them, of gnnexp ("comm/rows.py:40") or of a user
            ("my_layer.py:12"); "autograd" if no such line is on the thread's stack.
        kernels: counts by name and kernel.
    """

    totals: Counter[str] = field(default_factory=Counter)
    places: Counter[tuple[str, str]] = field(default_factory=Counter)
    kernels: Counter[tuple[str, str]] = field(default_factory=Counter)


@contextmanager
def counting(library: ctypes.CDLL) -> Iterator[Counts]:
    """Count what all threads of this process do on the emulated device inside. Contexts cannot be nested."""
    counts, lock = Counts(), threading.Lock()

    def seen(what: int, amount: int, kernel: bytes) -> None:
        name, place = NAMES[what], _place()
        with lock:
            counts.totals[name] += amount
            counts.kernels[name, kernel.decode()] += amount
            counts.places[name, place] += amount

    observer = _OBSERVER(seen)
    library.emulated_observe(observer)
    try:
        yield counts
    finally:
        library.emulated_observe(None)


_OBSERVER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int64, ctypes.c_char_p)


def _place() -> str:
    """The innermost line on this thread's stack of gnnexp, without `gnnexp.testing`, or of a user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(f"{_GNNEXP}{os.sep}"):
            if not file.startswith(_NOT_NAMED):
                return f"{Path(file).relative_to(_GNNEXP)}:{frame.f_lineno}"
        elif Path(file).is_absolute() and not file.startswith((*_LIBRARIES, *_NOT_NAMED)):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return "autograd"
