"""The ranks of a run as a user reads them: those that ended without a last word do not run, whatever they wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gnnexp.launchers.elsewhere.ends import is_recorded, living
from gnnexp.launchers.status import Status, read_statuses
from gnnexp.record.attempts import read_attempts

# The state of a rank that ended without a last word.
GONE = "gone"


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
