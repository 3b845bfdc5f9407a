"""Which ranks of a run are alive, from their status files: also those that nobody watches."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from gnnexp.errors import ConfigError, Problem
from gnnexp.files.pulse import process_table
from gnnexp.launchers.queue.evidence import SILENT_S
from gnnexp.launchers.status import Status, read_statuses
from gnnexp.record.attempts import BUSY, read_attempts

# The state of a rank that ended without a last word.
GONE = "gone"
_CLOCK_S = 2.0  # psutil gives the start of a process with the error of the machine's boot time


def living(statuses: Sequence[Status]) -> list[Status]:
    """The ranks that are alive, or may be: their processes cannot be seen, and they gave a sign of life lately."""
    here, now = process_table(), time.time()
    return [
        status
        for status in statuses
        if status.state == "running"
        and (_is_process(status) if status.table == here and status.pid else now - status.time < SILENT_S)
    ]


def _is_process(status: Status) -> bool:
    """Whether the process of a rank of this machine lives; a younger process only has its number."""
    try:
        process = psutil.Process(status.pid)
        return process.create_time() <= status.time + _CLOCK_S and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def check_alone(run_dir: Path, rank: int) -> None:
    """Check that no other process of this machine is this rank: the ranks may have been started twice.

    Raises:
        ConfigError: there is such a process.
    """
    here = process_table()
    for status in read_statuses(run_dir):
        if (
            status.rank == rank
            and status.state == "running"
            and status.table == here
            and status.pid not in (0, os.getpid())
            and _is_process(status)
        ):
            raise ConfigError(
                Problem(
                    BUSY,
                    str(run_dir),
                    f"process {status.pid} is rank {rank} of this run already",
                    "wait until it has ended, or end the program that started it",
                )
            )


def check_silent(run_dir: Path) -> None:
    """Check that no rank of the run is alive.

    Raises:
        ConfigError: a rank is alive, or may be.
    """
    if not (alive := living(read_statuses(run_dir))):
        return
    first = max(alive, key=lambda status: status.time)
    where, ahead_s = f"rank {first.rank} on {first.host}", first.time - time.time()
    seen = (
        "runs"
        if first.table == process_table()
        else (f"gave a sign of life {max(0.0, -ahead_s):.0f} s ago, and its process cannot be seen from here")
    )
    fix = (
        "end the program that started the ranks, or wait until it has ended; a lost rank counts as ended after "
        f"{SILENT_S:.0f} s"
    )
    if ahead_s > SILENT_S and first.table != process_table():
        seen = f"gave a sign of life at a time that is {ahead_s:.0f} s ahead of the clock of this machine"
        fix = (
            "set the clock right; or, if the program that started the ranks has ended and a clock was set back, "
            f"remove {run_dir / 'status'}/rank_{first.rank}.json"
        )
    raise ConfigError(Problem(BUSY, str(run_dir), f"{where} {seen}", fix))


def is_recorded(run_dir: Path) -> bool:
    """Whether the end of the ranks that last worked on the run is noted."""
    last = read_attempts(run_dir)[-1:]
    return bool(last) and last[0]["event"] == "end" and last[0].get("status") != "submitted"


def ranks_of(run_dir: Path) -> list[Status]:
    """The status of every rank, in order of rank. The recorded end of the run says how a rank ended that is gone.

    After a recorded end no rank is alive, also on machines whose processes cannot be seen from here.
    """
    statuses = read_statuses(run_dir)
    over = is_recorded(run_dir)
    alive = {status.rank for status in ([] if over else living(statuses))}
    said = str(read_attempts(run_dir)[-1].get("reason") or "") if over else ""
    return [
        replace(status, state=GONE, reason=_reason(status, said))
        if status.state == "running" and status.rank not in alive
        else status
        for status in statuses
    ]


def _reason(status: Status, said: str) -> str:
    """How a rank ended that is gone: what the end of the run says of it, or that nothing is known."""
    begin = f"rank {status.rank} on {status.host} "
    return said.removeprefix(begin) if said.startswith(begin) else "it ended without a last word"
