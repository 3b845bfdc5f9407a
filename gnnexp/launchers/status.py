"""Finds out which rank failed first, from the status files that workers write, and what the user should read."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gnnexp.files.disk import EXIT_CODE
from gnnexp.files.regular import open_regular
from gnnexp.launchers.base import Outcome
from gnnexp.measure.available import limit_in_words
from gnnexp.record.records import RESULT_FILE, read_fields

USER_ERROR = 2
# Seconds after a sign of life until the next one is missing: its period, and a little more.
_NEXT_SIGN_S = 3.0
SHORT_OF_MEMORY = (
    "fix: give the run more memory and go on with it, or start one that needs less: a smaller "
    "train.batch_size or model.hidden, or fewer hardware.workers"
)
_TAIL_LINES, _TAIL_BYTES = 15, 1 << 16


@dataclass(frozen=True)
class Status:
    """The status that a rank writes about itself (`RUN_DIR/status/rank_<r>.json`).

    Attributes:
        rank: the rank's number.
        state: `running`, `finished`, `stopped` (on request, with a checkpoint to continue from) or `failed`.
        time: when it was written, in seconds since the epoch of the clock.
        host: machine that the rank runs on.
        phase: phase that the rank was in.
        reason: reason of a failure, in one line.
        traceback: traceback of the rank's own exception; empty for a user's mistake.
        exit_code: exit code of the rank.
        kind: kind of the failure.
        exchanging: whether the rank is inside a collective.
        since: when a phase or exchange last began or ended in it, in seconds since the epoch of the clock.
        needed_bytes, available_bytes: bytes of memory, if too little memory was the failure and they are known.
        pid: process id of the rank; 0 if not known.
        table: process table of that id (`gnnexp.files.pulse.process_table`).
    """

    rank: int
    state: str
    time: float = 0.0
    host: str = ""
    phase: str = ""
    reason: str = ""
    traceback: str = ""
    exit_code: int = 1
    kind: str = ""
    exchanging: bool = False
    since: float = 0.0
    needed_bytes: int | None = None
    available_bytes: int | None = None
    pid: int = 0
    table: str = ""


def read_statuses(run_dir: Path) -> list[Status]:
    """The status of every rank, in order of rank; a file that cannot be read yet is left out."""
    statuses = []
    for file in sorted((run_dir / "status").glob("rank_*.json")):
        try:
            statuses.append(read_fields(file, Status))
        except (OSError, ValueError):
            continue  # files are written atomically, so the rank dies while it writes: its exit code shows that
    return sorted(statuses, key=lambda status: status.rank)


def remove_unfinished_words(run_dir: Path) -> None:
    """Remove unfinished status files of ranks that ended while they wrote; called when all ranks have ended."""
    for file in (run_dir / "status").glob(".rank_*.tmp"):
        with suppress(OSError):  # a read-only disk: the next attempt removes the whole folder
            file.unlink(missing_ok=True)


def first_failure(statuses: Sequence[Status]) -> Status | None:
    """The first failure: the others are its consequences ("connection closed by peer")."""
    failed = [status for status in statuses if status.state == "failed"]
    return min(failed, key=lambda status: status.time, default=None)


def missed_at(status: Status) -> float:
    """When a rank without a last word is known to have gone: its next sign of life did not come.

    A rank that another program ended, because one had failed, gave its last sign of life before that failure.
    """
    return status.time + _NEXT_SIGN_S


@dataclass(frozen=True)
class Death:
    """The end of a process, seen from outside.

    Attributes:
        rank: the rank's number.
        exit_code: exit code of the process, -n if signal n ended it, None if not known.
        time: when the end was noticed, in seconds since the epoch of the clock.
        out_of_memory: whether the kernel ended a process of the run because memory ran out.
        started: whether the rank ever gave a sign of life.
    """

    rank: int
    exit_code: int | None
    time: float
    out_of_memory: bool = False
    started: bool = True

    @property
    def is_of_disk(self) -> bool:
        """Whether the process ended because its disk accepted no data, not even an error message."""
        return self.exit_code == EXIT_CODE

    def describe(self) -> str:
        """The end in words."""
        if self.exit_code is None:
            return "vanished" if self.started else "gave no sign of life"
        if self.is_of_disk:
            return "could not write: its disk is full, over its quota or read-only"
        if self.exit_code >= 0:
            return f"exited with code {self.exit_code}"
        try:
            name = signal.Signals(-self.exit_code).name
        except ValueError:
            name = f"signal {-self.exit_code}"
        if self.out_of_memory:
            return f"was killed by the kernel: out of memory ({limit_in_words()})"
        return f"was ended by {name}"


# Errors of a surviving rank when another rank has vanished or does not answer: they are never the cause. Torch has
# classes for errors of its store and its groups; errors of gloo are known by words.
_OF_TORCH = ("DistNetworkError", "DistStoreError", "DistBackendError", "LostStoreError")
_LOST_PEER = (
    "closed by peer",
    "reset by peer",
    "broken pipe",
    "pair closure",
    "connection refused",
    "socket closed",
    "clients joined",
    "recvvalue failed",
    "sendbytes failed",
)
_NO_ANSWER = ("timed out", "timeout", "clients joined")


def _is_consequence(status: Status) -> bool:
    reason = status.reason.lower()
    return status.reason.startswith(_OF_TORCH) or any(words in reason for words in (*_LOST_PEER, *_NO_ANSWER))


@dataclass(frozen=True)
class Hang:
    """A rank that hangs.

    Attributes:
        status: the rank's last status.
        silent_s: how long the rank had given no sign of life when that was noticed; 0 if it still gives signs of life.
    """

    status: Status
    silent_s: float = 0.0

    def describe(self) -> str:
        """The hang in words."""
        last, phase = self.status, self.status.phase or "start"
        if self.silent_s:
            return (
                f"{_where(last.rank, last.host)} has given no sign of life for {self.silent_s:.0f} s; "
                f"last seen in phase {phase}"
            )
        heard = "" if not last.since else f" (nothing began or ended there for {last.time - last.since:.0f} s)"
        return f"{_where(last.rank, last.host)} hangs in phase {phase}{heard}"


def hanging(statuses: Sequence[Status], now: float, timeout_s: float) -> Hang | None:
    """The rank that hangs by itself; if several do, the one that began first.

    A rank hangs if its heartbeat has stopped for `timeout_s` (a frozen process). If another rank has waited for an
    answer in vain, half of that time is enough, but no less than what passes between two signs of life. Then a rank
    with a heartbeat also hangs if it was in no exchange and nothing began or ended in it for half of the time.
    """
    running = [status for status in statuses if status.state == "running" and status.time > 0]
    waited = any(
        status.state == "failed" and any(words in status.reason.lower() for words in _NO_ANSWER) for status in statuses
    )
    half = 0.5 * timeout_s
    silent_after = max(half, _NEXT_SIGN_S) if waited else timeout_s
    stuck = [
        status
        for status in running
        if now - status.time > silent_after or (waited and not status.exchanging and status.time - status.since > half)
    ]
    first = min(stuck, key=lambda status: min(status.since or status.time, status.time), default=None)
    if first is None:
        return None
    return Hang(first, now - first.time if now - first.time > silent_after else 0.0)


def judge(run_dir: Path, deaths: Sequence[Death], hung: Hang | None = None) -> Outcome:
    """The outcome of a launch in which something went wrong.

    Args:
        run_dir: the run directory, with the ranks' status files.
        deaths: ranks that ended without having finished and that the launcher did not end.
        hung: the rank that was ended because it hangs, or None.
    """
    statuses = read_statuses(run_dir)
    if hung is not None:
        reason = hung.describe() + _also_failed(statuses)
        return Outcome(1, "failed", reason, f"{reason}\n{log_tail(run_dir, hung.status.rank)}".rstrip(), "hang")
    spoken = first_failure(statuses)
    said = {status.rank for status in statuses if status.state == "failed"}
    silent = min(
        (death for death in deaths if death.rank not in said),
        key=lambda death: (not death.is_of_disk, death.time),
        default=None,
    )
    if silent and (spoken is None or _is_consequence(spoken) or silent.time < spoken.time):
        return _silent_outcome(run_dir, silent, statuses)
    if spoken is None:
        return Outcome(1, "failed", "the run ended without a rank saying why", f"see {run_dir / 'logs'}")
    if spoken.exit_code == USER_ERROR:
        return Outcome(USER_ERROR, "failed", spoken.reason, spoken.reason, spoken.kind or "mistake")
    where = f"in phase {spoken.phase}" if spoken.phase else "between phases"
    reason = f"{_where(spoken.rank, spoken.host)} failed {where}: {spoken.reason}"
    figures = {"needed_bytes": spoken.needed_bytes, "available_bytes": spoken.available_bytes}
    memory = {name: value for name, value in figures.items() if value is not None}
    message = f"{reason}\n{spoken.traceback}".rstrip() + _fix(spoken.kind)
    return Outcome(1, "failed", reason, message, spoken.kind or "error", memory)


def _also_failed(statuses: Sequence[Status]) -> str:
    """What the first rank said that failed, if one did: a rank that hangs may be the cause, or have another one."""
    spoken = first_failure(statuses)
    return "" if spoken is None else f"; {_where(spoken.rank, spoken.host)} had failed: {spoken.reason}"


def _silent_outcome(run_dir: Path, death: Death, statuses: Sequence[Status]) -> Outcome:
    last = next((status for status in statuses if status.rank == death.rank), Status(death.rank, "running"))
    where = f" in phase {last.phase}" if last.phase else ""
    reason = f"{_where(death.rank, last.host)} {death.describe()}{where}"
    kind = "out of memory" if death.out_of_memory else "disk" if death.is_of_disk else "killed"
    return Outcome(1, "failed", reason, f"{reason}\n{log_tail(run_dir, death.rank)}".rstrip() + _fix(kind), kind)


def _fix(kind: str) -> str:
    """What a user can do about a failure, as a line of its own; empty if the reason says it."""
    return "\n" + SHORT_OF_MEMORY if kind == "out of memory" else ""


def _where(rank: int, host: str) -> str:
    return f"rank {rank} on {host}" if host else f"rank {rank}"


def log_tail(run_dir: Path, rank: int) -> str:
    """The last lines of a rank's log."""
    file = run_dir / "logs" / f"rank_{rank}.log"
    try:
        with open_regular(file) as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError:  # the log is missing or cannot be read
        return ""
    return "\n".join(["", f"last lines of {file}:", *lines]) if lines else ""


def have_finished(run_dir: Path, num_ranks: int) -> bool:
    """Whether every rank has finished by its own status, and the result exists."""
    if not (run_dir / RESULT_FILE).exists():
        return False
    statuses = read_statuses(run_dir)
    return len(statuses) == num_ranks and all(status.state == "finished" for status in statuses)
