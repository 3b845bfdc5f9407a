"""Processes that do not outlive the one that started them, however that one ends, and import what it imports."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

# Who started a process, for processes whose parent may have died before they could look.
LAUNCHER_VARIABLE = "GNNEXP_LAUNCHER_PID"
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask Linux to kill this process when its launcher dies: nothing is left behind by a SIGKILLed launcher.

    A process that is frozen then is killed, too.
    """
    launcher = int(os.environ.get(LAUNCHER_VARIABLE, os.getppid()))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it died before we asked
        os._exit(1)


def import_from_here() -> None:
    """Have this process import modules of the current folder first, as `python -m` does.

    The process that a user starts and every rank must find the same modules under the same names, also where the
    folder is on `PYTHONPATH` behind another one, or `PYTHONSAFEPATH` is set.
    """
    here = str(Path.cwd())
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
