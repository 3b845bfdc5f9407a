"""The job that works on a run: its number, cancelling and requeueing it, and what `srun` wrote about its end."""

from __future__ import annotations

import itertools
import os
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gnnexp.errors import DataError, Problem, RunError
from gnnexp.files.regular import open_regular, read_json
from gnnexp.launchers.queue.commands import Reply, run_in_time
from gnnexp.launchers.queue.controller import is_job_id
from gnnexp.record.attempts import BUSY
from gnnexp.record.records import write_json

SUBMISSION_FILE = "slurm.json"
# With this exit code, `cli.running.after_job` asks the job script to put the job back into the queue.
GO_ON = 85
# How long a job's script tries to requeue its job: an outage of the controller may be over by then.
_REQUEUE_S = 300.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 2.0, 30.0
# Refusals that waiting does not change (slurm_strerror of ESLURM_DISABLED, INVALID_JOB_ID, ACCESS_DENIED and others).
_REFUSALS = ("disabled", "invalid job id", "denied", "not permitted", "no requeue", "cannot be started")

# `srun` writes about its end last. A job has at most some ten thousand ranks, whose numbers have few digits.
_MOST_LOG_BYTES, _MOST_RANKS = 1 << 20, 1 << 16
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def cancel_jobs(*job_ids: str) -> None:
    """End jobs; their ranks have SLURM's KillWait to write a checkpoint.

    Raises:
        RunError: SLURM refuses or does not answer. Then it is unknown whether the jobs end.
    """
    reply = run_in_time(["scancel", *job_ids])
    if reply.failure:
        raise RunError(f"scancel {' '.join(job_ids)}: {reply.failure}")


def cancel_preparation(*run_dirs: Path) -> None:
    """End the jobs that prepare the data of these runs, if they still run: the jobs of their ranks are cancelled."""
    noted = (read_submission(run_dir) for run_dir in run_dirs)
    if jobs := {one.preparation for one in noted if one is not None and one.preparation is not None}:
        run_in_time(["scancel", *sorted(jobs)])


def requeue(job_id: str) -> None:
    """Put the job back into the queue, to start when there is room. Repeat this while SLURM does not answer.

    Raises:
        RunError: SLURM refuses, or has not answered for `_REQUEUE_S`.
    """
    end, wait = time.monotonic() + _REQUEUE_S, _FIRST_WAIT_S
    while (reply := run_in_time(["scontrol", "requeue", job_id])).failure:
        if time.monotonic() + wait > end or _is_refusal(reply):
            raise RunError(f"scontrol requeue {job_id}: {reply.failure}")
        print(f"gnnexp: {reply.failure}; asking again in {wait:.0f} s", flush=True)
        time.sleep(wait)
        wait = min(2 * wait, _LONGEST_WAIT_S)


def _is_refusal(reply: Reply) -> bool:
    return any(words in reply.failure.lower() for words in _REFUSALS)


def release(job_id: str) -> None:
    """Let a job that was put back into the queue start now. SLURM would hold it for two minutes.

    If SLURM refuses this, the job waits these two minutes.
    """
    run_in_time(["scontrol", "update", f"jobid={job_id}", "StartTime=now"])


@dataclass(frozen=True)
class Submission:
    """The note in a run directory about the SLURM job that works on the run.

    Attributes:
        job_id: number of the job; None while sbatch has not answered.
        token: identifies the submission. A job that finds another token in the note does not touch the run.
        preparation: number of the job that prepares the data of all runs of this submission; None if there is none.
    """

    job_id: str | None
    token: str
    preparation: str | None = None


def write_submission(run_dir: Path, submission: Submission) -> None:
    """Write which job works on the run."""
    write_json(run_dir / SUBMISSION_FILE, {"schema": 1, **asdict(submission)})


def read_submission(run_dir: Path) -> Submission | None:
    """The job that works, or last worked, on the run; None for a run that was not submitted.

    Raises:
        DataError: the note is damaged.
    """
    path = run_dir / SUBMISSION_FILE
    try:
        noted: Any = read_json(path)
        job_id, token, before = noted["job_id"], str(noted.get("token", "")), str(noted.get("preparation"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, str(error)) from None
    if job_id is not None and not is_job_id(str(job_id)):
        raise _damaged(path, f"job_id is {str(job_id)[:40]!r}")
    return Submission(None if job_id is None else str(job_id), token, before if is_job_id(before) else None)


def read_job_id(run_dir: Path) -> str | None:
    """The job number in `read_submission`; None if there is none."""
    submission = read_submission(run_dir)
    return None if submission is None else submission.job_id


def forget_submission(run_dir: Path) -> None:
    """Remove the note. If SLURM still starts the job, the job finds that the run is no longer its own."""
    (run_dir / SUBMISSION_FILE).unlink(missing_ok=True)


def is_of_run(run_dir: Path, token: str) -> bool:
    """Whether the job with this token should work on the run: no later job and no other launcher has taken it."""
    submission = read_submission(run_dir)
    return not token or (submission is not None and submission.token == token)


def _damaged(path: Path, why: str) -> DataError:
    # BUSY: an unknown job may work on the run, so a sweep leaves the run as it is.
    return DataError(
        Problem(
            BUSY,
            str(path),
            f"must hold the number of the SLURM job that works on this run ({why})",
            "remove the file if `squeue` shows that no job works on the run",
        )
    )


def ended_with_step(run_dir: Path, job_id: str) -> set[int]:
    """Ranks that SLURM itself ended with the step because another rank had ended before, from the log of `srun`.

    Such a rank often ends without a message, as the killed rank did. Signs of life are only as exact as a heartbeat, so
    they do not show which of the two ended first.
    """
    said = re.findall(r"srun: error: \S+: tasks? ([\d,-]+): Terminated", _words_of_srun(run_dir, job_id))
    return {rank for ranks in said for rank in _ranks(ranks)}


def exited(run_dir: Path, job_id: str) -> dict[int, int]:
    """Exit codes of the ranks that ended by themselves, if `srun` logged them."""
    said = re.findall(
        r"srun: error: \S+: tasks? ([\d,-]+): Exited with exit code (\d+)", _words_of_srun(run_dir, job_id)
    )
    return {rank: int(code) for ranks, code in said for rank in _ranks(ranks)}


def _words_of_srun(run_dir: Path, job_id: str) -> str:
    """The end of the log of `srun`; empty if there is none that can be read."""
    try:
        with open_regular(run_dir / "slurm" / f"{job_id}_0_log.err") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_LOG_BYTES))
            return file.read(_MOST_LOG_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _ranks(text: str) -> list[int]:
    """The ranks in `0,2-3`. The number of ranks is limited, in case the text is no such list."""
    ranges = (range(int(first), int(last or first) + 1) for first, last in _RANGE.findall(text))
    return list(itertools.islice(itertools.chain.from_iterable(ranges), _MOST_RANKS))
