"""Decides whether a run's job has ended, from SLURM's answer and from what the job left in the run directory."""

from __future__ import annotations

import math
import time
from pathlib import Path

from gnnexp.launchers.queue.answers import ALIVE, ENDED, PASSING, Alive, Answer, EndedJob, UnknownJob
from gnnexp.launchers.queue.controller import Controller, Found, ListedJob, NoAnswer
from gnnexp.launchers.queue.slurm_jobs import SUBMISSION_FILE, read_submission
from gnnexp.launchers.status import read_statuses
from gnnexp.record.attempts import JOB_OVER, RANKS, is_requeued, read_attempts

# A rank writes a sign of life every 2 s. NFS may show it 60 s late (acregmax), and the folder as late again (acdirmax).
SILENT_S = 120.0
# After a job's end, SLURM decides within seconds whether the job goes back into the queue.
SETTLED_S = 60.0
# Events that the job itself notes among the attempts.
_OF_JOB = (RANKS, "requeue", JOB_OVER)


def job_state_of(run_dir: Path, controller: Controller | None = None) -> Answer | None:
    """The state of the job that works, or last worked, on a run; None if there is none.

    Raises:
        DataError: the file with the job's number is damaged.
    """
    submission = read_submission(run_dir)
    if submission is None:
        return None
    if submission.job_id is not None:
        return conclusion_of(submission.job_id, (controller or Controller()).find(submission.job_id), run_dir)
    # The launcher was killed during the submission, or sbatch did not report whether it submitted. A job that starts
    # after this run was resumed finds another token and ends (`slurm_jobs.is_of_run`). Started jobs give signs of life.
    silent_s = time.time() - last_sign(run_dir)
    return None if silent_s >= SILENT_S else UnknownJob("without a number", "sbatch did not report a submission")


def conclusion_of(job_id: str, finding: Found, run_dir: Path) -> Answer:
    """What follows from SLURM's answer about a job, or from a missing answer.

    A job has ended if SLURM says so, or if the last note of its own script says so. It has also ended if SLURM answers
    without listing it and it gave no sign of life for `SILENT_S`. In all other cases its state is unknown.
    """
    now = time.time()
    if isinstance(finding, ListedJob):
        return _listed(job_id, finding, run_dir, now)
    if (own := own_end(run_dir, job_id)) is not None:
        return own
    if isinstance(finding, NoAnswer):
        return UnknownJob(job_id, finding.why)
    silent_s = now - last_sign(run_dir)
    if min(silent_s, finding.unlisted_s) >= SILENT_S:
        return EndedJob(job_id, "GONE", f"SLURM does not list it, and it gave no sign of life for {_as_text(silent_s)}")
    heard = f"gave a sign of life {silent_s:.0f} s ago" if silent_s >= 0 else "has a clock that is ahead of this one"
    return UnknownJob(
        job_id,
        f"SLURM does not list it, but it {heard}"
        if silent_s < SILENT_S
        else f"SLURM listed it until {finding.unlisted_s:.0f} s ago",
    )


def _listed(job_id: str, listed: ListedJob, run_dir: Path, now: float) -> Answer:
    line = listed.line
    if line.name in ALIVE:
        return Alive(job_id, line.name, line.reason)
    if line.name not in ENDED:
        return UnknownJob(job_id, f"SLURM reports {line.name}, a state that gnnexp does not know")
    if line.name in PASSING or is_requeued(run_dir):
        if not listed.confirmed:
            return UnknownJob(job_id, f"the accounting reports {line.name}, but the controller may have put it back")
        if line.ended_at is None or now - line.ended_at < SETTLED_S:
            return Alive(job_id, line.name, "SLURM may put it back into the queue")
    return EndedJob(job_id, line.name, line.reason)


def own_end(run_dir: Path, job_id: str) -> EndedJob | None:
    """The end that the job's own script noted last, if the job gave no sign of life since."""
    lines = [line for line in read_attempts(run_dir) if line["event"] in ("start", *_OF_JOB)]
    if not lines or lines[-1]["event"] != JOB_OVER or lines[-1].get("job") != job_id:
        return None
    if any(status.state == "running" and status.time > lines[-1]["time"] for status in read_statuses(run_dir)):
        return None
    return EndedJob(job_id, str(lines[-1]["state"]), "as its own script says")


def last_sign(run_dir: Path) -> float:
    """When the job was submitted, noted something, or a rank of it last gave a sign of life; the latest of these.

    The time is in seconds since the epoch of the clock. A time more than a day ahead is ignored.
    """
    files = [run_dir / SUBMISSION_FILE, *(run_dir / "status").glob("rank_*.json")]
    times = [line["time"] for line in read_attempts(run_dir) if line["event"] in _OF_JOB]
    times += [status.time for status in read_statuses(run_dir) if isinstance(status.time, int | float)]
    latest = time.time() + 86400.0
    return max((when for when in [*(_changed(file) for file in files), *times] if when < latest), default=-math.inf)


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return -math.inf


def _as_text(seconds: float) -> str:
    return "a long time" if seconds == math.inf else f"{seconds / 60:.0f} minutes"
