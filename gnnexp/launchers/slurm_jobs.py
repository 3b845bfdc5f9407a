"""What SLURM says of a job, and what is told to it: `squeue`, `sacct` where there is one, `scancel`, `scontrol`."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gnnexp.errors import RunError
from gnnexp.record.records import write_json

JOB_FILE = "slurm.json"
_RUNNING = {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SIGNALING",
            "STAGE_OUT", "STOPPED", "SUSPENDED", "RESIZING", "SPECIAL_EXIT"}


@dataclass(frozen=True)
class JobState:
    """A job as SLURM sees it.

    Attributes:
        job_id: of the job.
        name: SLURM's state (`RUNNING`, `COMPLETED`, `NODE_FAIL`, …); `UNKNOWN` if it has forgotten the job.
        reason: why it waits or ended, as far as SLURM says.
    """

    job_id: str
    name: str
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether it is neither waiting nor running."""
        return self.name not in _RUNNING

    def describe(self) -> str:
        """In words."""
        reason = f" ({self.reason})" if self.reason not in ("", "None") else ""
        return f"job {self.job_id} {self.name}{reason}"


def job_state(job_id: str) -> JobState:
    """The state of a job; asked of the controller first, of the accounting where the controller has forgotten it."""
    found = _ask("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T|%r")
    if found:
        name, _, reason = found.splitlines()[0].partition("|")
        return JobState(job_id, name, reason)
    found = _ask("sacct", "-n", "-X", "-P", "-j", job_id, "-o", "State,Reason")
    if found:
        name, _, reason = found.splitlines()[-1].partition("|")
        return JobState(job_id, name.split(" ")[0].rstrip("+"), reason)
    return JobState(job_id, "UNKNOWN", "neither squeue nor sacct knows it")


def cancel(job_id: str) -> None:
    """End a job: its ranks have SLURM's KillWait for a checkpoint.

    Raises:
        RunError: SLURM refuses.
    """
    done = subprocess.run(["scancel", job_id], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise RunError(f"scancel {job_id}: {done.stderr.strip()}")


def requeue(job_id: str) -> None:
    """Put the job back into the queue, to start as soon as there is room.

    Raises:
        RunError: SLURM refuses.
    """
    done = subprocess.run(["scontrol", "requeue", job_id], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise RunError(f"scontrol requeue {job_id}: {done.stderr.strip()}")


def release(job_id: str) -> None:
    """Let a job that was put back into the queue start now: SLURM holds it for two minutes otherwise."""
    _ask("scontrol", "update", f"jobid={job_id}", "StartTime=now")


def _ask(*command: str) -> str:
    """What a command prints; empty where it fails, is missing, or does not answer in time."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def write_job_id(run_dir: Path, job_id: str) -> None:
    """Note which job works on the run."""
    write_json(run_dir / JOB_FILE, {"schema": 1, "job_id": job_id})


def read_job_id(run_dir: Path) -> str | None:
    """The job that works, or last worked, on the run; None for a run that was not submitted."""
    path = run_dir / JOB_FILE
    if not path.exists():
        return None
    return str(json.loads(path.read_text(encoding="utf-8"))["job_id"])


def ended_with_step(run_dir: Path, job_id: str) -> set[int]:
    """Ranks that SLURM itself ended with the step, because another one had gone before: `srun` says which in its log.

    Such a rank often dies without a word, as the one that was killed did; when either was last heard is as old as a
    heartbeat.
    """
    said = re.findall(r"srun: error: \S+: tasks? ([\d,-]+): Terminated", _words_of_srun(run_dir, job_id))
    return {rank for ranks in said for rank in _ranks(ranks)}


def exited(run_dir: Path, job_id: str) -> dict[int, int]:
    """Exit codes of the ranks that ended by themselves, as far as `srun` tells them."""
    said = re.findall(r"srun: error: \S+: tasks? ([\d,-]+): Exited with exit code (\d+)",
                      _words_of_srun(run_dir, job_id))
    return {rank: int(code) for ranks, code in said for rank in _ranks(ranks)}


def _words_of_srun(run_dir: Path, job_id: str) -> str:
    file = run_dir / "slurm" / f"{job_id}_0_log.err"
    return file.read_text(errors="replace") if file.exists() else ""


def _ranks(text: str) -> list[int]:
    """Of `0,2-3`."""
    return [rank for part in text.split(",") for rank in _range(part)]


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)
