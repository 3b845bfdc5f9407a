"""The last command of a SLURM job script, after its tasks.

    python -m gnnexp.cli.running.after_job RUN_DIR CODE MAX_REQUEUES TOKEN [HOW]

In a container there is no scontrol. Then HOW is `outside`: the exit code `GO_ON` asks the script to put the job back.
If SLURM refuses that, the script calls this command again, and HOW is `refused`.

The tasks have ended, and the script still runs on the first node of the allocation. Only this process always knows
which ranks failed, and whether SLURM announced the end of the allocation: there may be no launcher that waits.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gnnexp.components.schema import HardwareConfig
from gnnexp.errors import GnnexpError, RunError
from gnnexp.experiment.build import hardware_of_processes, tracker_of
from gnnexp.files.disk import in_words
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.queue.answers import EndedJob
from gnnexp.launchers.queue.following import outcome_of
from gnnexp.launchers.queue.slurm_jobs import GO_ON, is_of_run, requeue
from gnnexp.launchers.status import read_statuses, remove_unfinished_words
from gnnexp.record.attempts import JOB_OVER, note, requeues, restarts_spent
from gnnexp.record.ending import deliver, end_attempt

# Name of the status of a rank while SLURM is asked to put its job back.
_BEFORE = ".before"


def main(arguments: Sequence[str]) -> int:
    """Requeue the job, or end the attempt of the run; returns the exit code of the job."""
    run_dir, code, max_requeues, *rest = Path(arguments[0]), int(arguments[1]), int(arguments[2]), *arguments[3:]
    token, how = (*map(str, rest), "", "")[:2]
    if not is_of_run(run_dir, token):
        print(f"gnnexp: {run_dir} is no longer this job's, so it is left unchanged", file=sys.stderr)
        return code or 1
    if how == "refused":
        _bring_back(run_dir)
    config = json.loads((run_dir / "job.json").read_text(encoding="utf-8"))["config"]
    hardware, job_id = hardware_of_processes(config), own_job_id()
    state = "COMPLETED" if code == 0 else "FAILED"
    outcome = outcome_of(run_dir, EndedJob(job_id, state), hardware.num_ranks)
    remove_unfinished_words(run_dir)
    cause, refusal = _goes_on(run_dir, hardware, outcome, max_requeues), None
    if how == "refused":
        cause, refusal = cause or "failure", RunError(f"scontrol requeue {job_id} failed: see the job's log")
    elif cause:
        _set_aside(run_dir, job_id, cause, outcome)
        if how == "outside":
            return GO_ON
        if (refusal := _put_back(run_dir, job_id)) is None:
            return 0
    if cause and refusal is not None:
        said = f"{outcome.reason or 'the time of the job is over'}; it could not be put back into the queue: {refusal}"
        outcome = Outcome(1, "failed", said, said, outcome.kind or "interrupted", outcome.memory)
    if hardware.detach:  # no launcher waits for the job
        outcome = end_attempt(run_dir, outcome, job_id)
        deliver(run_dir, tracker_of(config))
    note(run_dir, JOB_OVER, job=job_id, state=state)
    return outcome.exit_code


def _set_aside(run_dir: Path, job_id: str, cause: str, outcome: Outcome) -> None:
    """Note that the job goes back into the queue, and keep these statuses from the next attempt."""
    reason = outcome.reason if cause == "failure" else "the time of the job is over"
    note(run_dir, "requeue", cause=cause, reason=reason, job=job_id)
    print(f"gnnexp: {reason}: the job goes back into the queue", flush=True)
    for file in (run_dir / "status").glob(f"rank_*{_BEFORE}"):
        file.unlink()
    for file in (run_dir / "status").glob("rank_*.json"):
        file.replace(file.with_suffix(_BEFORE))


def _bring_back(run_dir: Path) -> None:
    for file in (run_dir / "status").glob(f"rank_*{_BEFORE}"):
        file.replace(file.with_suffix(".json"))


def _put_back(run_dir: Path, job_id: str) -> RunError | None:
    """Put the job into the queue again; returns SLURM's error if it refuses, else None."""
    try:
        requeue(job_id)
    except RunError as refusal:
        _bring_back(run_dir)
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
