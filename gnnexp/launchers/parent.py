"""Processes that end with the process that started them, however it ends, and that import the same modules."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

# The starting process's id, for processes whose parent may have died before they could ask for its id.
LAUNCHER_VARIABLE = "GNNEXP_LAUNCHER_PID"
_PR_SET_PDEATHSIG = 1
# A rank that gets this signal writes the stacks of its threads into its log.
STACKS = signal.SIGUSR1


def die_with_parent() -> None:
    """Ask Linux to kill this process when its launcher dies, so that a SIGKILLed launcher leaves no process behind.

    This also kills a process that is frozen.
    """
    launcher = int(os.environ.get(LAUNCHER_VARIABLE, os.getppid()))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # the launcher died before this request
        os._exit(1)


def import_from_here() -> None:
    """Let this process import modules of the current folder first, as `python -m` does.

    The user's process and every rank must find the same modules under the same names. This must also hold if another
    folder comes first on `PYTHONPATH`, or if `PYTHONSAFEPATH` is set.
    """
    here = str(Path.cwd())
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
