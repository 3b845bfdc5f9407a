"""How a run ended: a `result.json` that agrees with the end of its ranks."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gnnexp.files.disk import one_line, put_back, refusal
from gnnexp.files.private import remove_private
from gnnexp.launchers.base import Outcome, lost_place
from gnnexp.record.attempts import nodes_of, note, read_attempts
from gnnexp.record.records import RESULT_FILE, read_epochs, summarize, write_json
from gnnexp.trackers.base import Tracker, TrackingError
from gnnexp.trackers.patience import Patience


def finalize(run_dir: Path, outcome: Outcome) -> Outcome:
    """Make `result.json` agree with how the launch ended. Rank 0 writes a result only if all went well."""
    path = run_dir / RESULT_FILE
    if outcome.status == "finished":
        if path.exists():
            return outcome
        outcome = Outcome(1, "failed", "the ranks finished without a result", "the ranks finished without a result")
    result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else _partial_result(run_dir)
    attempts = read_attempts(run_dir)
    write_json(
        path,
        {
            **result,
            "attempts": attempts,
            "nodes": nodes_of(attempts),
            "status": "failed",
            "kind": outcome.kind,
            "reason": outcome.reason,
            **outcome.memory,
        },
    )
    return outcome


def end_attempt(run_dir: Path, outcome: Outcome, job_id: str | None = None) -> Outcome:
    """Note how an attempt ended, and finalize the run. A full disk is reported; the run can be continued later."""
    job = {} if job_id is None else {"job": job_id}
    try:
        note(run_dir, "end", status=outcome.status, kind=outcome.kind, reason=outcome.reason, **job)
    except OSError as error:
        outcome = unwritten(run_dir, outcome, error)
    return finalize_or_report(run_dir, outcome)


def finalize_or_report(run_dir: Path, outcome: Outcome) -> Outcome:
    """The same as `finalize`; if the disk does not accept the result, that is the outcome. Secrets are removed."""
    remove_private(run_dir)
    try:
        return finalize(run_dir, outcome)
    except OSError as error:
        return unwritten(run_dir, outcome, error)


def unwritten(run_dir: Path, outcome: Outcome, error: OSError) -> Outcome:
    """The outcome of an attempt whose end could not be written to disk.

    Raises:
        OSError: `error`, if it has another cause.
    """
    if outcome.kind == "disk":
        return outcome
    refused = refused_by_disk(run_dir, error, outcome.reason)
    if outcome.status == "finished" and (run_dir / RESULT_FILE).exists():  # only the note of its end is missing
        print(f"gnnexp: {refused.message}", file=sys.stderr)
        return outcome
    return refused


def refused_by_disk(run_dir: Path, error: OSError, before: str = "") -> Outcome:
    """The outcome of a run whose directory cannot be written to.

    Args:
        run_dir: the run directory.
        error: error of the system.
        before: why the run had failed before, empty if it had not.

    Raises:
        OSError: `error`, if it has another cause.
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
    return {
        "schema": 1,
        "config": job["config"],
        "provenance": job["provenance"],
        "partition": job["partition"],
        "quality": job.get("quality", {}),
        "epochs": epochs,
        "summary": summarize(epochs, primary_of(epochs)),
    }


def primary_of(epochs: list[dict[str, Any]]) -> str:
    """The task's metric, from the names of recorded metrics."""
    names = (name for line in epochs for name in line["metrics"])
    return next((name.partition("/")[0] for name in names if name.endswith("/val") and name != "loss/val"), "acc")


def deliver(run_dir: Path, tracker: Tracker, patience: Patience | None = None) -> None:
    """Give a run that has ended to the tracker. If the tracker fails, `gnnexp report --sync` can deliver it later.

    Args:
        run_dir: the run directory.
        tracker: the tracker.
        patience: of a command that delivers many runs.
    """
    try:
        (patience or Patience()).ask(tracker, partial(tracker.deliver, run_dir))
    except TrackingError as error:
        print(f"gnnexp: {error}; deliver the records later with: gnnexp report --sync", file=sys.stderr)
