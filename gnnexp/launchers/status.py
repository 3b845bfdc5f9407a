"""Who failed first: the status files that workers write, and what to tell the user from them."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnexp.launchers.base import Outcome

USER_ERROR = 2
_TAIL_LINES = 15


@dataclass(frozen=True)
class Status:
    """One rank's own word on how it is doing (`RUN_DIR/status/rank_<r>.json`).

    Attributes:
        rank: which.
        state: `running`, `finished` or `failed`.
        time: when it was written, seconds since the epoch of the clock.
        host: machine the rank runs on.
        phase: what the rank was doing.
        reason: one line.
        traceback: of the rank's own exception, empty for a user's mistake.
        exit_code: what the rank exits with.
    """

    rank: int
    state: str
    time: float = 0.0
    host: str = ""
    phase: str = ""
    reason: str = ""
    traceback: str = ""
    exit_code: int = 1


def read_statuses(run_dir: Path) -> list[Status]:
    """Every rank's status, in order of rank; a file that cannot be read yet is left out."""
    statuses = []
    for file in sorted((run_dir / "status").glob("rank_*.json")):
        try:
            found = json.loads(file.read_text())
        except (OSError, json.JSONDecodeError):
            continue  # written atomically, so this is a rank that dies while it writes: its exit code tells
        known = {name: found[name] for name in Status.__dataclass_fields__ if found.get(name) is not None}
        statuses.append(Status(**known))
    return sorted(statuses, key=lambda status: status.rank)


def first_failure(statuses: Sequence[Status]) -> Status | None:
    """The failure that came first: the others are its consequences ("connection closed by peer")."""
    failed = [status for status in statuses if status.state == "failed"]
    return min(failed, key=lambda status: status.time, default=None)


@dataclass(frozen=True)
class Death:
    """How a process ended, seen from outside.

    Attributes:
        rank: which.
        exit_code: of the process, -n when signal n ended it, None when nobody knows.
        time: when it was noticed, seconds.
    """

    rank: int
    exit_code: int | None
    time: float

    def describe(self) -> str:
        """In words."""
        if self.exit_code is None:
            return "vanished"
        if self.exit_code >= 0:
            return f"exited with code {self.exit_code}"
        try:
            name = signal.Signals(-self.exit_code).name
        except ValueError:
            name = f"signal {-self.exit_code}"
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"


# What a survivor says when another rank has vanished: never the cause.
_LOST_PEER = ("closed by peer", "reset by peer", "broken pipe", "pair closure", "connection refused",
              "socket closed", "clients joined", "recvvalue failed", "sendbytes failed")


def _is_consequence(status: Status) -> bool:
    return any(words in status.reason.lower() for words in _LOST_PEER)


def judge(run_dir: Path, deaths: Sequence[Death]) -> Outcome:
    """The outcome of a launch in which something went wrong.

    Args:
        run_dir: where the ranks' own words are.
        deaths: ranks that ended without having finished, not by our own hand.
    """
    statuses = read_statuses(run_dir)
    spoken = first_failure(statuses)
    said = {status.rank for status in statuses if status.state == "failed"}
    silent = min((death for death in deaths if death.rank not in said), key=lambda death: death.time, default=None)
    if silent and (spoken is None or _is_consequence(spoken) or silent.time < spoken.time):
        return _silent_outcome(run_dir, silent, statuses)
    if spoken is None:
        return Outcome(1, "failed", "the run ended without a rank saying why", f"see {run_dir / 'logs'}")
    if spoken.exit_code == USER_ERROR:
        return Outcome(USER_ERROR, "failed", spoken.reason, spoken.reason)
    where = f"in phase {spoken.phase}" if spoken.phase else "between phases"
    reason = f"{_where(spoken.rank, spoken.host)} failed {where}: {spoken.reason}"
    return Outcome(1, "failed", reason, f"{reason}\n{spoken.traceback}".rstrip())


def _silent_outcome(run_dir: Path, death: Death, statuses: Sequence[Status]) -> Outcome:
    last = next((status for status in statuses if status.rank == death.rank), Status(death.rank, "running"))
    where = f" in phase {last.phase}" if last.phase else ""
    reason = f"{_where(death.rank, last.host)} {death.describe()}{where}"
    return Outcome(1, "failed", reason, f"{reason}\n{log_tail(run_dir, death.rank)}".rstrip())


def _where(rank: int, host: str) -> str:
    return f"rank {rank} on {host}" if host else f"rank {rank}"


def log_tail(run_dir: Path, rank: int) -> str:
    """The last lines of a rank's log."""
    file = run_dir / "logs" / f"rank_{rank}.log"
    if not file.exists():
        return ""
    lines = file.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n".join(["", f"last lines of {file}:", *lines]) if lines else ""
