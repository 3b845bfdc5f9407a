"""The last lines of a SLURM job script: `python -m gnnexp.after_job RUN_DIR CODE MAX_REQUEUES`.

The tasks are over, and the script still runs on the first node of the allocation: the one place that always knows, who-
ever submitted the job and whether anybody waits for it, that ranks were told to stop, or which of them failed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from gnnexp.attempts import note, read_attempts
from gnnexp.config.build import build
from gnnexp.config.schema import HardwareConfig, run_config
from gnnexp.ending import settle
from gnnexp.errors import GnnexpError
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.slurm import outcome_of
from gnnexp.launchers.slurm_jobs import JobState, requeue
from gnnexp.launchers.status import read_statuses
from gnnexp.trackers.base import Tracker, TrackingError


def main(arguments: list[str]) -> int:
    """Decide what becomes of the run; returns the job's exit code."""
    run_dir, code, max_requeues = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    config = json.loads((run_dir / "job.json").read_text(encoding="utf-8"))["config"]
    hardware, job_id = run_config(config).hardware, os.environ["SLURM_JOB_ID"]
    outcome = outcome_of(run_dir, JobState(job_id, "COMPLETED" if code == 0 else "FAILED"), hardware.num_ranks)
    why = _goes_on(run_dir, hardware, outcome, max_requeues)
    note(run_dir, "end", status=outcome.status, kind=outcome.kind, reason=why or outcome.reason)
    if why:
        print(f"gnnexp: {why}: the job goes back into the queue", flush=True)
        requeue(job_id)
        return 0
    if hardware.detach:  # nobody follows
        outcome = settle(run_dir, outcome)
        _deliver(run_dir, build(config["tracker"], Tracker))
    return outcome.exit_code


def _goes_on(run_dir: Path, hardware: HardwareConfig, outcome: Outcome, max_requeues: int) -> str:
    """Why the run is to be started again, empty if it is not."""
    statuses = read_statuses(run_dir)
    ends = [line for line in read_attempts(run_dir) if line["event"] == "end"]
    announced = any(status.state == "stopped" and status.reason == "SIGUSR2" for status in statuses)
    if announced and sum(line["kind"] != "failed" for line in ends) < max_requeues:
        return "the time of the job is over"
    failures = sum(line["status"] == "failed" and line["kind"] != "time" for line in ends)
    if outcome.may_be_repeated and failures < hardware.max_restarts:
        return outcome.reason
    return ""


def _deliver(run_dir: Path, tracker: Tracker) -> None:
    try:
        tracker.deliver(run_dir)
    except TrackingError as error:
        print(f"gnnexp: {error}; deliver the records later with: gnnexp report --sync", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except GnnexpError as failure:
        print(f"gnnexp: {failure}", file=sys.stderr)
        sys.exit(failure.exit_code)
