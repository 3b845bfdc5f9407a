"""The last command of a SLURM job script: `python -m gnnexp.after_job RUN_DIR CODE MAX_REQUEUES`.

The tasks have ended, and the script still runs on the first node of the allocation. Only this process always knows
which ranks failed, and whether SLURM announced the end of the allocation: there may be no launcher that waits.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from gnnexp.errors import GnnexpError, RunError
from gnnexp.experiment.build import hardware_of, tracker_of
from gnnexp.experiment.schema import HardwareConfig
from gnnexp.files.disk import in_words
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.queue.answers import Ended
from gnnexp.launchers.queue.slurm_jobs import is_of_run, requeue
from gnnexp.launchers.slurm import outcome_of
from gnnexp.launchers.status import read_statuses, remove_unfinished_words
from gnnexp.record.attempts import JOB_OVER, note, requeues, restarts_spent
from gnnexp.record.ending import deliver, end_attempt


def main(arguments: list[str]) -> int:
    """Requeue the job, or end the attempt of the run; returns the exit code of the job."""
    run_dir, code, max_requeues, token = Path(arguments[0]), int(arguments[1]), int(arguments[2]), arguments[3:]
    if not is_of_run(run_dir, token[0] if token else ""):
        print(f"gnnexp: {run_dir} is no longer this job's, so it is left unchanged", file=sys.stderr)
        return code or 1
    config = json.loads((run_dir / "job.json").read_text(encoding="utf-8"))["config"]
    hardware, job_id = hardware_of(config), own_job_id()
    state = "COMPLETED" if code == 0 else "FAILED"
    outcome = outcome_of(run_dir, Ended(job_id, state), hardware.num_ranks)
    remove_unfinished_words(run_dir)
    cause = _goes_on(run_dir, hardware, outcome, max_requeues)
    if cause and (refusal := _put_back(run_dir, job_id, cause, outcome)) is None:
        return 0
    if cause and refusal is not None:
        said = f"{outcome.reason or 'the time of the job is over'}; it could not be put back into the queue: {refusal}"
        outcome = Outcome(1, "failed", said, said, outcome.kind or "interrupted", outcome.memory)
    if hardware.detach:  # no launcher waits for the job
        outcome = end_attempt(run_dir, outcome, job_id)
        deliver(run_dir, tracker_of(config))
    note(run_dir, JOB_OVER, job=job_id, state=state)
    return outcome.exit_code


def _put_back(run_dir: Path, job_id: str, cause: str, outcome: Outcome) -> RunError | None:
    """Put the job into the queue again; returns SLURM's error if it refuses, else None."""
    reason = outcome.reason if cause == "failure" else "the time of the job is over"
    note(run_dir, "requeue", cause=cause, reason=reason, job=job_id)
    print(f"gnnexp: {reason}: the job goes back into the queue", flush=True)
    status = run_dir / "status"
    kept = [(file, file.read_bytes()) for file in status.glob("rank_*.json")]
    for file, _ in kept:  # so that they are not read as statuses of the next attempt
        file.unlink()
    try:
        requeue(job_id)
    except RunError as refusal:
        for file, words in kept:
            file.write_bytes(words)
        print(f"gnnexp: {refusal}", file=sys.stderr, flush=True)
        return refusal
    return None


def own_job_id() -> str:
    """The id of this job; in an array, with the number of the task."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array else os.environ["SLURM_JOB_ID"]


def _goes_on(run_dir: Path, hardware: HardwareConfig, outcome: Outcome, max_requeues: int) -> str:
    """The reason to start the run again, `time` or `failure`; empty if it ends here."""
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
