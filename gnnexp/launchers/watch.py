"""The launcher's watchdog: it records which rank dies first, and ends the ranks that do not end by themselves."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import psutil

from gnnexp.files.disk import HeldFolder
from gnnexp.launchers.parent import STACKS
from gnnexp.launchers.status import Hang, Status, hanging, read_statuses

_POLL_S = 0.1
# Seconds that the other ranks have after the first failure, also if they ignore SIGTERM.
GRACE_S = 4.0
# A killed process disappears as soon as its parent at that time has noticed its end.
_KILLED_S = 5.0
# Seconds to write the stacks of a process into its log.
STACKS_S = 0.3
# If polls are this far apart, or the clock was changed by as much, this process was frozen, and its ranks with it.
_ABSENT_S = 3.0
# Seconds after every rank has reported its end; then a process that hangs in the interpreter's exit is ended.
_LINGER_S = 20.0


class Watchdog(threading.Thread):
    """Watches the worker processes of one run.

    Args:
        place: the run directory, held open.
        pids: process id of each rank that has started so far; it grows while this thread runs.
        num_ranks: number of processes to expect.
        timeout_s: seconds without a sign of life after which a rank counts as hanging.

    Attributes:
        vanished: when each rank was seen to have died without having finished.
        killed: ranks that the watchdog ended.
        hung: the rank that hangs, or None.
        gone_since: when every rank was seen to have ended, on the monotonic clock; None while one lives.
    """

    def __init__(self, place: HeldFolder, pids: Mapping[int, int], num_ranks: int, timeout_s: float) -> None:
        super().__init__(name="gnnexp-watchdog", daemon=True)
        self.place, self.run_dir = place, place.folder
        self.pids = pids
        self.num_ranks = num_ranks
        self.timeout_s = timeout_s
        self.hung: Hang | None = None
        self.gone_since: float | None = None
        self.vanished: dict[int, float] = {}
        self.killed: set[int] = set()
        self._ranks: dict[int, psutil.Process] = {}
        self._found: dict[int, float] = {}
        self._polled = (time.time(), time.monotonic())
        self._back = 0.0
        self._done = threading.Event()
        self._deadline: float | None = None

    def run(self) -> None:
        """Poll until `close`. A poll that fails for lack of a file handle or of the disk's answer is repeated soon."""
        while not self._done.wait(_POLL_S):
            self._find()
            with suppress(OSError):
                self._look()
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._end()

    def close(self) -> None:
        """Stop watching, and end all processes that are left of the run, including child processes of workers."""
        self._done.set()
        self.join()
        self._find()
        for process in self._ranks.values():
            _kill_group(process)
        with suppress(OSError):
            psutil.wait_procs(self._ranks.values(), _KILLED_S)

    def _find(self) -> None:
        for rank, pid in list(self.pids.items()):
            if rank not in self._ranks:
                self._found.setdefault(rank, time.time())
                try:
                    self._ranks[rank] = psutil.Process(pid)
                except psutil.NoSuchProcess:
                    self.vanished.setdefault(rank, time.time())
                except OSError:  # no file handle is free: the next poll finds the process
                    continue

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to the ranks."""
        for process in self._ranks.values():
            with suppress(psutil.Error, OSError):
                process.send_signal(number)

    def _look(self) -> None:
        if self._deadline is None and self.place.is_left():
            self._deadline = time.monotonic()  # the ranks have no place for a checkpoint
        started = len(self._ranks) + len(self.vanished.keys() - self._ranks.keys()) == self.num_ranks
        if started and self.gone_since is None and not any(map(_alive, self._ranks.values())):
            self.gone_since = time.monotonic()
        statuses = read_statuses(self.run_dir)
        states = {status.rank: status.state for status in statuses}
        now = self._time()
        if self.hung is None and all(states.get(rank) == "failed" for rank in self.vanished):
            wordless = [Status(rank, "running", since) for rank, since in self._found.items() if rank not in states]
            heard = [self._since_back(status, now) for status in (*statuses, *wordless)]
            self.hung = hanging(heard, now, self.timeout_s)
        for rank, process in self._ranks.items():
            if states.get(rank) not in ("finished", "stopped") and rank not in self.vanished and not _alive(process):
                self.vanished[rank] = now
        if self._deadline is not None:
            return
        if self.vanished or self.hung or "failed" in states.values():
            self._deadline = time.monotonic() + GRACE_S
        elif len(states) == self.num_ranks and set(states.values()) <= {"finished", "stopped"}:
            self._deadline = time.monotonic() + _LINGER_S

    def _time(self) -> float:
        """Seconds since the epoch. Also notes when this process returns after it was frozen or the clock was set.

        A suspended machine, a paused container or a corrected clock is no hang of a rank.
        """
        (wall, steady), self._polled = self._polled, (time.time(), time.monotonic())
        passed = self._polled[1] - steady
        if max(passed, abs(self._polled[0] - wall - passed)) > _ABSENT_S:
            self._back = self._polled[0]
        return self._polled[0]

    def _since_back(self, status: Status, now: float) -> Status:
        """The status, with its silence counted from the return of this process: it could not see ranks before.

        A status with a time in the future was written before the clock was set back.
        """
        heard, since = (
            self._back if moment > now else max(moment, self._back) if moment else moment
            for moment in (status.time, status.since)
        )
        return replace(status, time=heard, since=since) if self._back else status

    def _end(self) -> None:
        """End the ranks that are left. Their logs get the stacks of all threads first: where each one was."""
        left = {rank: process for rank, process in self._ranks.items() if _alive(process)}
        for process in left.values():
            with suppress(psutil.Error, OSError):
                process.send_signal(STACKS)
        if left:
            self._done.wait(STACKS_S)
        for rank, process in left.items():
            if _alive(process):
                self.killed.add(rank)
                _kill_group(process)


def _alive(process: psutil.Process) -> bool:
    """Whether the process may be alive; also True if that cannot be seen, for example for lack of a file handle."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except OSError:
        return True


def _kill_group(process: psutil.Process) -> None:
    """Kill a worker and its children: each worker leads its own process group.

    A process that was frozen right after its fork does not lead a group yet.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(psutil.Error, OSError):
        process.kill()
