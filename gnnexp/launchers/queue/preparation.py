"""Runs whose data a job of its own prepares: whether it did, and why not."""

from __future__ import annotations

from pathlib import Path

from gnnexp.launchers.base import Outcome
from gnnexp.launchers.queue.answers import EndedJob
from gnnexp.record.attempts import read_attempts
from gnnexp.record.records import load_job

# The event that the data of a run could not be prepared, with `kind` and `reason`.
NOT_PREPARED = "not prepared"


def is_ready(run_dir: Path) -> bool:
    """Whether the data of the run is prepared, so that its ranks can start."""
    try:
        return load_job(run_dir).get("graph", "") is not None
    except (OSError, ValueError):  # the rank itself reports this
        return True


def unprepared_end(run_dir: Path, state: EndedJob) -> Outcome | None:
    """The outcome of a run whose job ended before its data was prepared; None if the data is prepared."""
    if is_ready(run_dir):
        return None
    last = next((line for line in reversed(read_attempts(run_dir)) if line["event"] in (NOT_PREPARED, "start")), None)
    if last is not None and last["event"] == NOT_PREPARED:
        kind, reason = str(last.get("kind", "error")), str(last.get("reason", ""))
        return Outcome(2 if kind == "mistake" else 1, "failed", reason, reason, kind)
    reason = f"the job ended before its data was prepared: {state.describe()}"
    return Outcome(
        1,
        "failed",
        reason,
        f"{reason}\nsee the logs of the preparation in {run_dir / 'slurm'}",
        "interrupted" if state.name == "CANCELLED" else "killed",
    )
