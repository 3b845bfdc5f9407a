"""A rank's module whose starter freezes while it imports: `tests/launchers/test_frozen.py`."""

import os
import signal

from stub_worker import main

__all__ = ["main", "preload"]


def preload() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
