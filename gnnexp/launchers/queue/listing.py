"""Lines of `squeue` and `sacct`: which jobs they name, and in which state."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from gnnexp.launchers.queue.answers import ENDED
from gnnexp.launchers.queue.commands import plain

# `squeue -o` and `sacct -o`, with `|` between.
SQUEUE_FORMAT = "%i|%T|%e|%r"
SACCT_FORMAT = "JobID,State,End,Reason"
_JOB = re.compile(r"(\d{1,18})(?:\+\d{1,9})?(?:_(?:(\d{1,18})|\[([^\]]*)\]))?", re.ASCII)
_TASKS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?(?::(\d{1,18}))?", re.ASCII)
_STATE = re.compile(r"([A-Z][A-Z_]{1,30})(?: by \S+)?\+?")


@dataclass(frozen=True)
class Line:
    """A job, or several tasks of an array that are in the same state.

    Attributes:
        job: number of the job, or of the array.
        tasks: of the array, as (first, last, step); None is the whole job.
        name: SLURM's word for the state.
        reason: of it.
        ended_at: when it ended, seconds since the epoch of the clock; None where nobody says.
    """

    job: int
    tasks: tuple[tuple[int, int, int], ...] | None
    name: str
    reason: str
    ended_at: float | None

    def has(self, task: int) -> bool:
        """Whether it is about this task of the array."""
        return any(first <= task <= last and (task - first) % step == 0 for first, last, step in self.tasks or ())


class Listing:
    """What was said of jobs, found by their numbers.

    Args:
        lines: of an answer.
    """

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._single: dict[tuple[int, int | None], list[Line]] = {}
        self._several: dict[int, list[Line]] = {}
        for line in lines:
            if line.tasks is None or (len(line.tasks) == 1 and line.tasks[0][0] == line.tasks[0][1]):
                task = None if line.tasks is None else line.tasks[0][0]
                self._single.setdefault((line.job, task), []).append(line)
            else:
                self._several.setdefault(line.job, []).append(line)

    def of(self, job_id: str) -> Line | None:
        """The line about a job: of several, one whose state is no end, else the last one."""
        job, _, task = job_id.partition("_")
        found = list(self._single.get((int(job), int(task) if task else None), ()))
        if task:
            found += [line for line in self._several.get(int(job), ()) if line.has(int(task))]
        return next((line for line in found if line.name not in ENDED), found[-1] if found else None)


def is_job_id(text: str) -> bool:
    """Whether it is what sbatch gives a job or a task of an array: `123`, `123_4`."""
    return re.fullmatch(r"\d{1,18}(_\d{1,18})?", text, re.ASCII) is not None


def base(job_id: str) -> str:
    """The number of a job, or of the array that a task belongs to."""
    return job_id.partition("_")[0]


def read_lines(text: str) -> tuple[list[Line], list[str]]:
    """The lines of an answer, and those that are none: where there are any, not being listed proves nothing."""
    lines: list[Line] = []
    garbage: list[str] = []
    for raw in text.splitlines():
        if not raw.strip() or raw.startswith("CLUSTER: "):  # what `-M` and SLURM_CLUSTERS add
            continue
        found = _read_line(raw)
        if found is None:
            garbage.append(plain(raw))
        else:
            lines.append(found)
    return lines, garbage


def _read_line(raw: str) -> Line | None:
    fields = raw.split("|", 3)
    if len(fields) != 4:
        return None
    job, state = _JOB.fullmatch(fields[0].strip()), _STATE.fullmatch(fields[1].strip())
    if job is None or state is None:
        return None
    tasks: tuple[tuple[int, int, int], ...] | None = None
    if job[2] is not None:
        tasks = ((int(job[2]), int(job[2]), 1),)
    elif job[3] is not None and (tasks := _tasks(job[3])) is None:
        return None
    return Line(int(job[1]), tasks, state[1], plain(fields[3]), _seconds(fields[2].strip()))


def _tasks(text: str) -> tuple[tuple[int, int, int], ...] | None:
    """Of `5-7,9,12-20:4%3`; None where it is cut (`1-3,...`) or something else."""
    found = []
    for part in text.partition("%")[0].split(","):
        match = _TASKS.fullmatch(part)
        if match is None:
            return None
        found.append((int(match[1]), int(match[2] or match[1]), max(1, int(match[3] or 1))))
    return tuple(found)


def _seconds(text: str) -> float | None:
    """Of `2026-11-24T19:05:45`, in this machine's time zone."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None
