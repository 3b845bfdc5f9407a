"""How a run ended: a `result.json` that agrees with what became of its ranks."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnexp.files.disk import one_line, put_back, refusal
from gnnexp.launchers.base import Outcome, lost_place
from gnnexp.record.attempts import nodes_of, note, read_attempts
from gnnexp.record.records import RESULT_FILE, read_epochs, summarize, write_json
from gnnexp.trackers.base import Tracker, TrackingError


def finalize(run_dir: Path, outcome: Outcome) -> Outcome:
    """Have a `result.json` that agrees with how the launch ended: rank 0 writes one only if all went well."""
    path = run_dir / RESULT_FILE
    if outcome.status == "finished":
        if path.exists():
            return outcome
        outcome = Outcome(1, "failed", "the ranks finished without a result", "the ranks finished without a result")
    result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else _partial_result(run_dir)
    attempts = read_attempts(run_dir)
    write_json(path, {**result, "attempts": attempts, "nodes": nodes_of(attempts), "status": "failed",
                      "kind": outcome.kind, "reason": outcome.reason, **outcome.memory})
    return outcome


def end_attempt(run_dir: Path, outcome: Outcome, job_id: str | None = None) -> Outcome:
    """Note how an attempt ended, and finalize the run. A disk that takes neither is named; the run can go on later."""
    job = {} if job_id is None else {"job": job_id}
    try:
        note(run_dir, "end", status=outcome.status, kind=outcome.kind, reason=outcome.reason, **job)
    except OSError as error:
        outcome = unwritten(run_dir, outcome, error)
    return finalize_or_report(run_dir, outcome)


def finalize_or_report(run_dir: Path, outcome: Outcome) -> Outcome:
    """As `finalize`; where the disk does not take it, that is the outcome."""
    try:
        return finalize(run_dir, outcome)
    except OSError as error:
        return unwritten(run_dir, outcome, error)


def unwritten(run_dir: Path, outcome: Outcome, error: OSError) -> Outcome:
    """The outcome of an attempt whose end a disk did not take.

    Raises:
        OSError: `error`, if it is of another kind.
    """
    if outcome.kind == "disk":
        return outcome
    refused = refused_by_disk(run_dir, error, outcome.reason)
    if outcome.status == "finished" and (run_dir / RESULT_FILE).exists():  # only its bookkeeping is missing
        print(f"gnnexp: {refused.message}", file=sys.stderr)
        return outcome
    return refused


def refused_by_disk(run_dir: Path, error: OSError, before: str = "") -> Outcome:
    """The outcome of a run whose directory cannot be written to.

    Args:
        run_dir: of the run.
        error: of the system.
        before: why the run had failed already, empty if it had not.

    Raises:
        OSError: `error`, if it is of another kind.
    """
    if not run_dir.is_dir():
        return lost_place(run_dir, put_back(run_dir, "gnnexp resume"))
    problem = refusal(error, f"gnnexp resume {shlex.quote(str(run_dir))}")
    if problem is None:
        raise error
    reason = f"{before}; {one_line(problem)}" if before else one_line(problem)
    return Outcome(1, "failed", reason, f"{before}\n{problem}".lstrip(), "disk")


def _partial_result(run_dir: Path) -> dict[str, Any]:
    job: Mapping[str, Any] = json.loads((run_dir / "job.json").read_text(encoding="utf-8"))
    epochs = read_epochs(run_dir)
    return {"schema": 1, "config": job["config"], "provenance": job["provenance"], "partition": job["partition"],
            "quality": job.get("quality", {}), "epochs": epochs, "summary": summarize(epochs, _primary(epochs))}


def _primary(epochs: list[dict[str, Any]]) -> str:
    """The task's metric, from what was recorded."""
    names = (name for line in epochs for name in line["metrics"])
    return next((name.partition("/")[0] for name in names if name.endswith("/val") and name != "loss/val"), "acc")


def deliver(run_dir: Path, tracker: Tracker) -> None:
    """Hand a run that has ended to the tracker; what it does not take now, `gnnexp report --sync` delivers."""
    try:
        tracker.deliver(run_dir)
    except TrackingError as error:
        print(f"gnnexp: {error}; deliver the records later with: gnnexp report --sync", file=sys.stderr)
