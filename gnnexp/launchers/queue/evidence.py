"""Whether a run's job has ended: what SLURM says of it, beside what the job itself left in the run directory."""

from __future__ import annotations

import math
import time
from pathlib import Path

from gnnexp.launchers.queue.answers import ALIVE, ENDED, PASSING, Alive, Answer, Ended, Unknown
from gnnexp.launchers.queue.controller import Controller, Found, Listed, NoAnswer
from gnnexp.launchers.queue.slurm_jobs import SUBMISSION_FILE, read_submission
from gnnexp.launchers.status import read_statuses
from gnnexp.record.attempts import JOB_OVER, RANKS, is_requeued, read_attempts

# A rank is heard every 2 s; NFS may show that 60 s late (acregmax), and again as late for the folder (acdirmax).
SILENT_S = 120.0
# After its end, SLURM decides within seconds whether a job goes back into the queue.
SETTLED_S = 60.0
# What the job itself notes among the attempts.
_OF_JOB = (RANKS, "requeue", JOB_OVER)


def ask(run_dir: Path, controller: Controller | None = None) -> Answer | None:
    """How the job stands that works, or last worked, on a run; None if there is none.

    Raises:
        DataError: the note of its number is damaged.
    """
    submission = read_submission(run_dir)
    if submission is None:
        return None
    if submission.job_id is not None:
        return answer_of(submission.job_id, (controller or Controller()).find(submission.job_id), run_dir)
    # Killed while it submitted, or sbatch did not say whether it did. If the job starts after this run was resumed, it
    # finds another token and leaves (`slurm_jobs.is_of_run`); if it has started, it is heard.
    silent_s = time.time() - last_sign(run_dir)
    return None if silent_s >= SILENT_S else Unknown("without a number", "sbatch did not say whether it took it")


def answer_of(job_id: str, found: Found, run_dir: Path) -> Answer:
    """What follows from an answer of SLURM, or from its absence.

    A job has ended if SLURM says so, if its own script said so last, or if SLURM answers without listing it and nothing
    of it was heard for `SILENT_S`. Whatever else is there, or is not: nobody knows.
    """
    now = time.time()
    if isinstance(found, Listed):
        return _listed(job_id, found, run_dir, now)
    if (own := own_end(run_dir, job_id)) is not None:
        return own
    if isinstance(found, NoAnswer):
        return Unknown(job_id, found.why)
    silent_s = now - last_sign(run_dir)
    if min(silent_s, found.unlisted_s) >= SILENT_S:
        return Ended(job_id, "GONE", f"SLURM does not list it, and it was not heard for {_as_text(silent_s)}")
    heard = f"heard {silent_s:.0f} s ago" if silent_s >= 0 else "heard by a clock that is ahead of this one"
    return Unknown(job_id, f"SLURM does not list it, but it was {heard}" if silent_s < SILENT_S else
                   f"SLURM listed it until {found.unlisted_s:.0f} s ago")


def _listed(job_id: str, found: Listed, run_dir: Path, now: float) -> Answer:
    line = found.line
    if line.name in ALIVE:
        return Alive(job_id, line.name, line.reason)
    if line.name not in ENDED:
        return Unknown(job_id, f"SLURM says {line.name}, a state that gnnexp does not know")
    if line.name in PASSING or is_requeued(run_dir):
        if not found.confirmed:
            return Unknown(job_id, f"the accounting says {line.name}, and the controller may have put it back")
        if line.ended_at is None or now - line.ended_at < SETTLED_S:
            return Alive(job_id, line.name, "SLURM may put it back into the queue")
    return Ended(job_id, line.name, line.reason)


def own_end(run_dir: Path, job_id: str) -> Ended | None:
    """The end that the job's own script noted as its last act, if nothing of the job was heard since."""
    lines = [line for line in read_attempts(run_dir) if line["event"] in ("start", *_OF_JOB)]
    if not lines or lines[-1]["event"] != JOB_OVER or lines[-1].get("job") != job_id:
        return None
    if any(status.state == "running" and status.time > lines[-1]["time"] for status in read_statuses(run_dir)):
        return None
    return Ended(job_id, str(lines[-1]["state"]), "as its own script says")


def last_sign(run_dir: Path) -> float:
    """When the job was submitted, noted something, or one of its ranks was heard last.

    Seconds since the epoch of the clock; a time that is more than a day ahead is nobody's clock.
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
