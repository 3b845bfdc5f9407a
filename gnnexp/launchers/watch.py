"""The launcher's watchdog: sees which rank dies first, and ends the ranks that do not end by themselves."""

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
from gnnexp.launchers.status import Hang, Status, hanging, read_statuses

_POLL_S = 0.1
# What the others have after the first failure, those that ignore SIGTERM too.
GRACE_S = 4.0
# A killed process is gone once whoever is its parent by now has noticed.
_KILLED_S = 5.0
# Polls that are this far apart, or a clock that was set by as much: this process was frozen, and its ranks with it.
_ABSENT_S = 3.0
# After every rank has said "finished", a process that hangs in its interpreter's exit is ended.
_LINGER_S = 20.0


class Watchdog(threading.Thread):
    """Watches the worker processes of one run.

    Args:
        place: of the run directory.
        pids: process of each rank that has started so far; grows while this runs.
        num_ranks: processes to expect.
        timeout_s: after how long without a sign of life a rank is taken to hang.

    Attributes:
        vanished: when each rank was seen to have died without having finished.
        killed: ranks that were ended here.
        hung: the rank that was found to hang, if one was.
        gone_since: when every rank was seen to have ended, on the monotonic clock; None as long as one lives.
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
        """Poll until `close`; what cannot be seen for want of a file handle, or of a disk's answer, is soon."""
        while not self._done.wait(_POLL_S):
            self._find()
            with suppress(OSError):
                self._look()
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._end()

    def close(self) -> None:
        """Stop watching and end whatever is left of the run, its workers' own children included."""
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
                except OSError:  # no file handle is free: the next poll finds it
                    continue

    def tell(self, number: signal.Signals) -> None:
        """Pass a signal on to the ranks."""
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
        """Seconds since the epoch; notes when this process is back from having been frozen, or its clock was set.

        A suspended machine, a paused container or a clock that is corrected is no hang of a rank.
        """
        (wall, steady), self._polled = self._polled, (time.time(), time.monotonic())
        passed = self._polled[1] - steady
        if max(passed, abs(self._polled[0] - wall - passed)) > _ABSENT_S:
            self._back = self._polled[0]
        return self._polled[0]

    def _since_back(self, status: Status, now: float) -> Status:
        """A status whose silence begins when this process was back: before that, nobody could be heard.

        A word of the future was written before the clock was set back.
        """
        heard, since = (self._back if moment > now else max(moment, self._back) if moment else moment
                        for moment in (status.time, status.since))
        return replace(status, time=heard, since=since) if self._back else status

    def _end(self) -> None:
        for rank, process in self._ranks.items():
            if _alive(process):
                self.killed.add(rank)
                _kill_group(process)


def _alive(process: psutil.Process) -> bool:
    """Whether it may live: no file handle is free to look, for example."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except OSError:
        return True


def _kill_group(process: psutil.Process) -> None:
    """Kill a worker and its children: each worker leads its own process group.

    One that was frozen right after its fork leads none yet.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(psutil.Error, OSError):
        process.kill()
