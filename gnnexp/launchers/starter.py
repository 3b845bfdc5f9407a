"""The process that ranks are forked from: `python -m gnnexp.launchers.starter MODULE`, see `gnnexp.launchers.ranks`.

Importing torch, numba and other packages takes several seconds on a core, and every rank needs the same ones. Here they
are imported once, and ranks are forks of this process. This saves time if there are fewer cores than ranks. No thread
may start before a fork: forks of a process whose OpenMP threads have started would hang.

A request is a line of JSON on the standard input, `{"run_dir", "folder", "ranks": [variables of each]}`. The standard
output has a line `{"rank", "pid"}` for every rank that started, and `{"rank", "exit_code"}` for every rank that ended.
After a run, rank 0 says on a pipe what it has loaded (`lesson` of the module). Before the next run, this process loads
it for the ranks of that run (`learn`).

When the input ends, this process ends, and so do its ranks (`gnnexp.launchers.parent`). It also dies with its launcher
if it is frozen: ranks that live on would train at the same time as those of `gnnexp resume`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnexp.files.leaving import Ending
from gnnexp.launchers.parent import LAUNCHER_VARIABLE, STACKS, die_with_parent

_POLL_S = 0.05
_CHUNK = 1 << 16
# A pipe holds 64 KiB. A rank must not wait until somebody reads.
_MOST_TAUGHT = 1 << 15


def main() -> int:
    """Serve requests until the input ends. In a forked process, return the exit code of its rank."""
    die_with_parent()
    signal.signal(STACKS, signal.SIG_IGN)  # in a fork, until it can write its stacks
    name, ending = sys.argv[1], Ending()
    failure = _preload(name)
    requests, replies, lessons = os.dup(0), os.dup(1), os.pipe()
    os.dup2(2, 1)  # output of libraries must not mix with replies
    os.environ[LAUNCHER_VARIABLE] = str(os.getpid())
    running: dict[int, int] = {}
    for request in _requests(requests, replies, running, Lessons(lessons[0], name)):
        for rank, variables in enumerate(request["ranks"]):
            pid = os.fork()
            if pid == 0:
                os.close(requests)
                os.close(replies)
                _become(rank, name, request, variables)
                os.close(lessons[0])
                if failure is not None:
                    raise failure
                exit_code = importlib.import_module(name).main() or 0
                if rank == 0 and not exit_code:
                    _teach(name, lessons[1])
                ending.exit_code = exit_code
                return exit_code
            running[pid] = rank
            _tell(replies, rank=rank, pid=pid)
    ending.exit_code = 0
    return 0


def _preload(name: str) -> Exception | None:
    """Import what the ranks need. Return the error of a failed import: each rank raises it in its own log."""
    gc.disable()  # collections would go through all objects of the modules again and again
    try:
        getattr(importlib.import_module(name), "preload", int)()
    except Exception as error:
        return error
    finally:
        gc.freeze()  # otherwise a rank's first collection writes to every page of objects, and so copies it
        gc.enable()
    return None


class Lessons:
    """What ranks that have finished teach this process, for the ranks of later runs.

    Args:
        pipe: where rank 0 writes a line.
        name: the module of the ranks.
    """

    def __init__(self, pipe: int, name: str) -> None:
        self.pipe, self._name, self._unread = pipe, name, b""

    def take(self) -> None:
        """Learn from the runs that have ended. A command with one run never calls this after it."""
        if not select.select([self.pipe], [], [], 0)[0]:
            return
        *lines, self._unread = (self._unread + os.read(self.pipe, _CHUNK)).split(b"\n")
        for line in lines:
            try:
                importlib.import_module(self._name).learn(line.decode())
            except Exception:  # ranks load by themselves what this process cannot
                traceback.print_exc()
        gc.freeze()


def _teach(name: str, pipe: int) -> None:
    """Tell the starter what this rank has loaded. A module without lessons, or a longer line, is left out."""
    line = getattr(importlib.import_module(name), "lesson", str)().encode() + b"\n"
    if 1 < len(line) <= _MOST_TAUGHT:
        os.write(pipe, line)


def _requests(requests: int, replies: int, running: dict[int, int], lessons: Lessons) -> Iterator[dict[str, Any]]:
    """Yield requests until the input ends. Between requests, report ranks that have ended."""
    unread = b""
    while True:
        if select.select([requests], [], [], _POLL_S if running else None)[0]:
            received = os.read(requests, _CHUNK)
            if not received:
                return
            *lines, unread = (unread + received).split(b"\n")
            lessons.take()
            yield from map(json.loads, lines)
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                _tell(replies, rank=running.pop(pid), exit_code=os.waitstatus_to_exitcode(status))


def _become(rank: int, name: str, request: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    """Turn this fork into the process `python -m MODULE RUN_DIR` with these variables, which writes to its own log."""
    os.setsid()
    os.chdir(request["folder"])
    os.environ.update(variables)
    sys.argv = [name, request["run_dir"]]
    log = os.open(Path(request["run_dir"]) / "logs" / f"rank_{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for opened, stream in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(opened, stream)
    os.close(log)
    os.close(nothing)


def _tell(replies: int, **reply: int) -> None:
    os.write(replies, json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
