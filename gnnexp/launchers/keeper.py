"""Runs a command, and leaves no process of it behind: `python -I keeper.py PARENT PROGRAM ARGUMENT…`.

A rank starts its external command through this process, which has a session of its own. Every process below the command
stays below this process, also if it leaves the command's process group (`PR_SET_CHILD_SUBREAPER`).

- SIGTERM and SIGINT are passed on to the command's process group, which may end by itself.
- If the rank dies, or sends SIGHUP, all processes below this one are killed.
- If the command ends, the processes that it left are killed.

The exit code is that of the command, or 128 + n if signal n ended it. This file needs only Python.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NOT_STARTED = 127


def main() -> int:
    """Run the command of the arguments; returns its exit code."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
    if os.getppid() != int(sys.argv[1]):  # the rank died before this request
        return _NOT_STARTED
    try:
        # If this process is killed, the command is killed with it.
        command = subprocess.Popen(  # this process has one thread
            sys.argv[2:],
            process_group=0,
            preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509
        )
    except OSError as error:
        print(f"gnnexp: {sys.argv[2]} cannot be started: {error.strerror}", file=sys.stderr, flush=True)
        return _NOT_STARTED

    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            if command.pid in children_of(os.getpid()):
                os.killpg(command.pid, number)

    def kill_all(number: int, frame: FrameType | None) -> None:
        kill_children()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    signal.signal(signal.SIGHUP, kill_all)
    code = _wait_for(command.pid)
    if left := kill_children():
        print(f"gnnexp: the command ended and left {left} processes, which were killed", file=sys.stderr, flush=True)
    return code


def _wait_for(pid: int) -> int:
    """Reap every process that ends, until `pid` has ended; returns its exit code."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code


def kill_children() -> int:
    """Kill all processes below this one, and wait for their end. Returns their number.

    The children of a killed process become children of this one.
    """
    killed: set[int] = set()
    while children := list(children_of(os.getpid())):
        for pid in children:
            os.kill(pid, signal.SIGKILL)  # a child keeps its id until `wait`
            killed.add(pid)
        os.wait()
    return len(killed)


def children_of(parent: int) -> Iterator[int]:
    """Ids of the child processes of a process, from /proc."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text(errors="replace").rpartition(")")[2].split()  # a name may have blanks
        except OSError:  # it has ended
            continue
        if fields[1:2] == [str(parent)]:
            yield int(file.parent.name)


if __name__ == "__main__":
    sys.exit(main())
