"""The last lines of a SLURM job script: `python -m gnnexp.after_job RUN_DIR CODE MAX_REQUEUES`.

The tasks are over, and the script still runs on the first node of the allocation: the one place that always knows, who-
ever submitted the job and whether anybody waits for it, that ranks were told to stop, or which of them failed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from gnnexp.config.schema import HardwareConfig, run_config
from gnnexp.disk import in_words
from gnnexp.errors import GnnexpError
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.slurm import outcome_of
from gnnexp.launchers.slurm_jobs import JobState, requeue
from gnnexp.launchers.status import read_statuses
from gnnexp.record.attempts import note, requeues, restarts_spent
from gnnexp.record.ending import deliver, end_attempt


def main(arguments: list[str]) -> int:
    """Decide what becomes of the run; returns the job's exit code."""
    run_dir, code, max_requeues = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    config = json.loads((run_dir / "job.json").read_text(encoding="utf-8"))["config"]
    hardware, job_id = run_config(config).hardware, own_job_id()
    outcome = outcome_of(run_dir, JobState(job_id, "COMPLETED" if code == 0 else "FAILED"), hardware.num_ranks)
    cause = _goes_on(run_dir, hardware, outcome, max_requeues)
    if cause:
        reason = outcome.reason if cause == "failure" else "the time of the job is over"
        note(run_dir, "requeue", cause=cause, reason=reason, job=job_id)
        print(f"gnnexp: {reason}: the job goes back into the queue", flush=True)
        for file in (run_dir / "status").glob("rank_*.json"):  # nobody shall take them for words of the next attempt
            file.unlink()
        requeue(job_id)
        return 0
    if hardware.detach:  # nobody follows
        outcome = end_attempt(run_dir, outcome, job_id)
        deliver(run_dir, config)
    return outcome.exit_code


def own_job_id() -> str:
    """Of this job; of an array, with the task's number."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array else os.environ["SLURM_JOB_ID"]


def _goes_on(run_dir: Path, hardware: HardwareConfig, outcome: Outcome, max_requeues: int) -> str:
    """Why the run is to be started again, `time` or `failure`; empty if it is not."""
    if any(status.state == "stopped" and status.reason == "SIGUSR2" for status in read_statuses(run_dir)):
        return "time" if requeues(run_dir, "time") < max_requeues else ""
    return "failure" if outcome.may_be_repeated and restarts_spent(run_dir) < hardware.max_restarts else ""


if __name__ == "__main__":
    try:
        with in_words():
            sys.exit(main(sys.argv[1:]))
    except GnnexpError as failure:
        print(f"gnnexp: {failure}", file=sys.stderr)
        sys.exit(failure.exit_code)
