"""Finds out from outside whether a process lives or is frozen, and ends processes that may not end."""

from __future__ import annotations

import platform
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

# Seconds to wait for the end of a killed process.
KILLED_S = 5.0


class Pulse:
    """Signs of life of a process of this machine: its time on a core, and how often it got one.

    A process that waits with a time limit, as all of ours do, gets a core again and again. A frozen process (SIGSTOP, a
    frozen container, a file system that does not answer) does not.

    Args:
        pid: id of the process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen = self._look()
        self._since = time.monotonic()

    def silent_s(self) -> float:
        """Seconds since the last sign of life that a call of this method saw."""
        seen, now = self._look(), time.monotonic()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since

    def _look(self) -> tuple[float, ...]:
        """The signs of life; empty if the process is gone, or if no file handle is free to look."""
        try:
            process = psutil.Process(self._pid)
            with process.oneshot():
                times, switches = process.cpu_times(), process.num_ctx_switches()
        except (psutil.Error, OSError):
            return ()
        return (times.user, times.system, switches.voluntary, switches.involuntary)


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger stopped the process, and it was not continued."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def kill(process: subprocess.Popen[Any]) -> bool:
    """Kill a child process, and return whether it has ended.

    SIGKILL does not end a process that waits for a dead file system or driver, or that is in a frozen container. It
    ends when that is over, and this call does not wait for it.
    """
    process.kill()
    try:
        process.wait(KILLED_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def process_table() -> str:
    """Identifies the process table: with equal texts, equal process ids mean the same process.

    Containers may have the name of their machine but number processes independently. So do machines of the same name
    that share a file system.
    """
    parts = [platform.node()]
    with suppress(OSError):  # no Linux
        parts += [
            Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            str(Path("/proc/self/ns/pid").readlink()),
        ]
    return "/".join(parts)
