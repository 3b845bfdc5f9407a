"""Whether a process lives or is frozen, seen from outside; and how one is ended that may not end."""

from __future__ import annotations

import platform
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

# What a killed process has until nobody waits for it any more.
KILLED_S = 5.0


class Pulse:
    """Signs of life of a process of this machine: time on a core, and how often it was given one.

    A process that waits with a time limit, as all of ours do, is given a core again and again. One that was frozen
    (SIGSTOP, a frozen container, a file system that does not answer) is not.

    Args:
        pid: of the process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen = self._look()
        self._since = time.monotonic()

    def silent_s(self) -> float:
        """For how long it has shown no sign of life, as far as it was looked at."""
        seen, now = self._look(), time.monotonic()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since

    def _look(self) -> tuple[float, ...]:
        """Empty once the process is gone, and while no file handle is free to look."""
        try:
            process = psutil.Process(self._pid)
            with process.oneshot():
                times, switches = process.cpu_times(), process.num_ctx_switches()
        except (psutil.Error, OSError):
            return ()
        return (times.user, times.system, switches.voluntary, switches.involuntary)


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal or a debugger, and nobody has let it go on."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def kill(process: subprocess.Popen[Any]) -> bool:
    """Kill a child; whether it has ended.

    Not even SIGKILL ends one that waits for a dead file system or driver, or that is in a frozen container. It ends
    when that is over, and nobody waits for it.
    """
    process.kill()
    try:
        process.wait(KILLED_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def process_table() -> str:
    """Where this process has its number: equal texts, equal processes behind a number.

    Containers of one machine may have its name and yet number their processes each for itself; so do machines of one
    name that share a file system.
    """
    found = [platform.node()]
    with suppress(OSError):  # no Linux
        found += [Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
                  str(Path("/proc/self/ns/pid").readlink())]
    return "/".join(found)
