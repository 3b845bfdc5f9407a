"""SLURM's view of all jobs of this process: one `squeue` for all of them, at most every 15 s, and how it is read."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from gnnexp.launchers.queue.answers import ENDED
from gnnexp.launchers.queue.commands import Reply, plain_line, run_in_time

# Formats for `squeue -o` and `sacct -o`; fields are separated by `|`.
SQUEUE_FORMAT = "%i|%T|%e|%r"
SACCT_FORMAT = "JobID,State,End,Reason"
_JOB = re.compile(r"(\d{1,18})(?:\+\d{1,9})?(?:_(?:(\d{1,18})|\[([^\]]*)\]))?", re.ASCII)
_TASKS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?(?::(\d{1,18}))?", re.ASCII)
_STATE = re.compile(r"([A-Z][A-Z_]{1,30})(?: by \S+)?\+?")


@dataclass(frozen=True)
class JobLine:
    """A job, or several tasks of an array that are in the same state.

    Attributes:
        job: number of the job, or of the array.
        tasks: of the array, as (first, last, step); None is the whole job.
        name: SLURM's word for the state.
        reason: reason of the state.
        ended_at: when the job ended, in seconds since the epoch of the clock; None if not given.
    """

    job: int
    tasks: tuple[tuple[int, int, int], ...] | None
    name: str
    reason: str
    ended_at: float | None

    def has(self, task: int) -> bool:
        """Whether the line is about this task of the array."""
        return any(first <= task <= last and (task - first) % step == 0 for first, last, step in self.tasks or ())


class Listing:
    """The lines of an answer, found by job number.

    Args:
        lines: the lines of the answer.
    """

    def __init__(self, lines: Iterable[JobLine] = ()) -> None:
        self._single: dict[tuple[int, int | None], list[JobLine]] = {}
        self._several: dict[int, list[JobLine]] = {}
        for line in lines:
            if line.tasks is None or (len(line.tasks) == 1 and line.tasks[0][0] == line.tasks[0][1]):
                task = None if line.tasks is None else line.tasks[0][0]
                self._single.setdefault((line.job, task), []).append(line)
            else:
                self._several.setdefault(line.job, []).append(line)

    def of(self, job_id: str) -> JobLine | None:
        """The line about a job. Of several lines it is one whose state is no end, else the last one."""
        job, _, task = job_id.partition("_")
        found = list(self._single.get((int(job), int(task) if task else None), ()))
        if task:
            found += [line for line in self._several.get(int(job), ()) if line.has(int(task))]
        return next((line for line in found if line.name not in ENDED), found[-1] if found else None)


def is_job_id(text: str) -> bool:
    """Whether it is a number that sbatch gives to a job or to a task of an array: `123`, `123_4`."""
    return re.fullmatch(r"\d{1,18}(_\d{1,18})?", text, re.ASCII) is not None


def base(job_id: str) -> str:
    """The number of a job, or of the array that a task belongs to."""
    return job_id.partition("_")[0]


def read_lines(text: str) -> tuple[list[JobLine], list[str]]:
    """The lines of an answer, and lines that cannot be read. If there are any, a missing job proves nothing."""
    lines: list[JobLine] = []
    garbage: list[str] = []
    for raw in text.splitlines():
        if not raw.strip() or raw.startswith("CLUSTER: "):  # a line that `-M` and SLURM_CLUSTERS add
            continue
        line = _read_line(raw)
        if line is None:
            garbage.append(plain_line(raw))
        else:
            lines.append(line)
    return lines, garbage


def _read_line(raw: str) -> JobLine | None:
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
    return JobLine(int(job[1]), tasks, state[1], plain_line(fields[3]), _seconds(fields[2].strip()))


def _tasks(text: str) -> tuple[tuple[int, int, int], ...] | None:
    """The tasks in `5-7,9,12-20:4%3`; None if the text is cut (`1-3,...`) or has another form."""
    found = []
    for part in text.partition("%")[0].split(","):
        match = _TASKS.fullmatch(part)
        if match is None:
            return None
        found.append((int(match[1]), int(match[2] or match[1]), max(1, int(match[3] or 1))))
    return tuple(found)


def _seconds(text: str) -> float | None:
    """The time `2026-11-24T19:05:45`, in this machine's time zone, as seconds since the epoch; None for other texts."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


# SchedMD asks programs not to poll. For jobs that wait hours, an answer of 15 s ago is recent enough.
PERIOD_S = 15.0
# While SLURM does not answer, each wait is twice as long as the one before, up to this limit.
LONGEST_S = 60.0
# Squeue's message if it is asked for a single job that does not exist.
_NO_SUCH_JOB = "Invalid job id specified"


@dataclass(frozen=True)
class ListedJob:
    """A job that SLURM lists.

    Attributes:
        line: the line about the job.
        confirmed: whether the controller (slurmctld) agrees. If not, the line is from the accounting, and the
            controller does not answer.
    """

    line: JobLine
    confirmed: bool


@dataclass(frozen=True)
class UnlistedJob:
    """A job that a complete answer does not list.

    Attributes:
        unlisted_s: seconds since this process last saw the job listed; infinite if never.
    """

    unlisted_s: float


@dataclass(frozen=True)
class NoAnswer:
    """No information about a job.

    Attributes:
        why: what came in place of an answer.
    """

    why: str


Found: TypeAlias = ListedJob | UnlistedJob | NoAnswer


class Controller:
    """Asks SLURM and keeps its last answer.

    Args:
        clock: returns seconds, with any origin.
        ask: runs a command and returns its output.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, ask: Callable[[list[str]], Reply] = run_in_time
    ) -> None:
        self._clock, self._ask = clock, ask
        self._watched: dict[str, None] = {}
        self._asked: frozenset[str] = frozenset()
        self._next = -math.inf
        self._wait = PERIOD_S
        self._listing, self._accounted = Listing(), Listing()
        self._listed_at: dict[str, float] = {}
        self._failure = ""
        self._news = ""

    def watch(self, job_ids: Iterable[str]) -> None:
        """Include these jobs in the next query and in later ones."""
        self._watched |= dict.fromkeys(job_ids)

    def forget(self, job_id: str) -> None:
        """Stop asking about a job."""
        self._watched.pop(job_id, None)

    def submitted(self, job_ids: Iterable[str]) -> None:
        """Watch jobs that SLURM has just accepted. The next query waits, since there is nothing new for a while."""
        for job_id in job_ids:
            self._watched[job_id] = None
            self._listed_at[job_id] = self._clock()
        self._next = max(self._next, self._clock() + PERIOD_S)

    def find(self, job_id: str) -> Found:
        """What SLURM's last answer contains about a job. Ask again if that answer is old enough."""
        self.watch([job_id])
        if self._clock() >= self._next:
            self._refresh()
        if base(job_id) not in self._asked:
            return NoAnswer("SLURM was not asked about it yet")
        line = self._listing.of(job_id)
        if line is not None:
            return ListedJob(line, confirmed=True)
        line = self._accounted.of(job_id)
        if line is not None and line.name in ENDED:  # the accounting may list a lost job as RUNNING for ever
            return ListedJob(line, confirmed=not self._failure)
        if self._failure:
            return NoAnswer(self._failure)
        return UnlistedJob(self._clock() - self._listed_at.get(job_id, -math.inf))

    def news(self) -> str:
        """A line for the user when SLURM stops or starts to answer; empty otherwise."""
        news, self._news = self._news, ""
        return news

    def _refresh(self) -> None:
        """Run one `squeue` for all jobs, and one `sacct` for those that it does not list."""
        bases = list(dict.fromkeys(base(job_id) for job_id in self._watched))
        before = self._failure
        reply = self._ask(["squeue", "-h", "-a", "-r", "-t", "all", "-j", ",".join(bases), "-o", SQUEUE_FORMAT])
        lines, doubt = _orderly(reply, len(bases))
        self._listing = Listing(lines)
        self._asked = frozenset(bases)
        now = self._clock()
        missing = []
        for job_id in self._watched:
            if self._listing.of(job_id) is None:
                missing.append(base(job_id))
            else:
                self._listed_at[job_id] = now
        self._failure = doubt if missing else ""
        self._accounted = self._accounting(list(dict.fromkeys(missing)))
        self._wait = min(LONGEST_S, 2 * self._wait) if self._failure and before else PERIOD_S
        self._next = self._clock() + self._wait
        if self._failure and not before:
            self._news = (
                f"SLURM does not answer ({self._failure}): the state of jobs is unknown; asking again, at "
                f"least every {LONGEST_S:.0f} s"
            )
        elif before and not self._failure:
            self._news = "SLURM answers again"

    def _accounting(self, bases: list[str]) -> Listing:
        """The accounting's lines for jobs that the controller has forgotten or cannot report; empty without one."""
        if not bases:
            return Listing()
        reply = self._ask(["sacct", "-n", "-X", "-P", "-j", ",".join(bases), "-o", SACCT_FORMAT])
        return Listing() if reply.failure else Listing(read_lines(reply.text)[0])


def _orderly(reply: Reply, num_asked: int) -> tuple[list[JobLine], str]:
    """The lines of squeue's answer, and why a job may exist although squeue does not list it."""
    lines, garbage = read_lines(reply.text)
    if reply.failure:
        no_such_job = num_asked == 1 and reply.failure.endswith(_NO_SUCH_JOB) and not reply.text.strip()
        return [], "" if no_such_job else reply.failure
    if reply.words:
        return lines, f"squeue: {reply.words}"
    return lines, f"squeue printed {garbage[0]!r}" if garbage else ""
