"""A SLURM that is not there: commands that say what a test wants, and a clock that tests turn."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gnnexp.launchers.queue.commands import Reply

DOWN = "squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
NO_SUCH_JOB = "squeue: slurm_load_jobs error: Invalid job id specified"
NO_ACCOUNTING = Reply("", "", "sacct: Slurm accounting storage is disabled")


class FakeSlurm:
    """Answers as the test last set, and notes every question; `now` is its clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.squeue: Reply | Callable[[], Reply] = Reply("", "", DOWN)
        self.sacct = NO_ACCOUNTING
        self.asked: list[tuple[float, list[str]]] = []

    def clock(self) -> float:
        return self.now

    def ask(self, command: Sequence[str]) -> Reply:
        self.asked.append((self.now, list(command)))
        if command[0] == "sacct":
            return self.sacct
        return self.squeue() if callable(self.squeue) else self.squeue

    def times(self) -> list[float]:
        """When squeue was called."""
        return [when for when, command in self.asked if command[0] == "squeue"]


def lists(*jobs: str) -> Reply:
    """An answer of squeue: `4711|RUNNING|N/A|None` a job."""
    return Reply("".join(f"{job}\n" for job in jobs), "", "")


def at(seconds_ago: float) -> str:
    """A time as squeue prints it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - seconds_ago))


def make_run(
    run_dir: Path,
    job_id: str | None = "4711",
    silent_s: float = 0.0,
    state: str = "running",
    ranks: int = 1,
    phase: str = "fb",
) -> Path:
    """A run that a job works on, whose ranks were heard `silent_s` seconds ago."""
    (run_dir / "status").mkdir(parents=True, exist_ok=True)
    heard = time.time() - silent_s
    files = {
        f"status/rank_{rank}.json": {"rank": rank, "host": "n1", "state": state, "time": heard, "phase": phase}
        for rank in range(ranks)
    }
    files["slurm.json"] = {"schema": 1, "job_id": job_id, "token": "t"}
    for name, content in files.items():
        (run_dir / name).write_text(json.dumps(content))
        os.utime(run_dir / name, (heard, heard))
    return run_dir


def install(folder: Path, name: str, script: str) -> None:
    """A command of that name, as a shell script."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
