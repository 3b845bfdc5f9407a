"""What SLURM says of all jobs of this process: one `squeue` for all of them, at most every 15 s."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from gnnexp.launchers.queue.answers import ENDED
from gnnexp.launchers.queue.commands import Reply, run
from gnnexp.launchers.queue.listing import SACCT_FORMAT, SQUEUE_FORMAT, Line, Listing, base, read_lines

# SchedMD asks programs not to poll; a queue of a day is well described by an answer of 15 s ago.
PERIOD_S = 15.0
# While nobody answers, each wait is twice the last one, up to this.
LONGEST_S = 60.0
# How squeue says, of the one job that it is asked for, that there is none.
_NO_SUCH_JOB = "Invalid job id specified"


@dataclass(frozen=True)
class Listed:
    """A job that SLURM lists.

    Attributes:
        line: what it says.
        confirmed: whether slurmctld says so or does not object; else the accounting says it while slurmctld is silent.
    """

    line: Line
    confirmed: bool


@dataclass(frozen=True)
class NotListed:
    """A job that an orderly answer does not list.

    Attributes:
        unlisted_s: since it was listed last, as seen by this process; infinite if never.
    """

    unlisted_s: float


@dataclass(frozen=True)
class NoAnswer:
    """Nothing was said of the job.

    Attributes:
        why: what came instead of an answer.
    """

    why: str


Found: TypeAlias = Listed | NotListed | NoAnswer


class Controller:
    """Asks SLURM, and keeps its last answer.

    Args:
        clock: seconds, of any origin.
        ask: runs a command.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, ask: Callable[[list[str]], Reply] = run) -> None:
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
        """Ask for these, too, from the next time on."""
        self._watched |= dict.fromkeys(job_ids)

    def forget(self, job_id: str) -> None:
        """Ask for a job no more."""
        self._watched.pop(job_id, None)

    def submitted(self, job_ids: Iterable[str]) -> None:
        """Watch jobs that SLURM has just taken: there is nothing to ask for a while."""
        for job_id in job_ids:
            self._watched[job_id] = None
            self._listed_at[job_id] = self._clock()
        self._next = max(self._next, self._clock() + PERIOD_S)

    def find(self, job_id: str) -> Found:
        """What SLURM's last answer says of a job; asks if that was long enough ago."""
        self.watch([job_id])
        if self._clock() >= self._next:
            self._refresh()
        if base(job_id) not in self._asked:
            return NoAnswer("SLURM was not yet asked for it")
        line = self._listing.of(job_id)
        if line is not None:
            return Listed(line, confirmed=True)
        line = self._accounted.of(job_id)
        if line is not None and line.name in ENDED:  # accounting may say RUNNING for ever of a job that was lost
            return Listed(line, confirmed=not self._failure)
        if self._failure:
            return NoAnswer(self._failure)
        return NotListed(self._clock() - self._listed_at.get(job_id, -math.inf))

    def news(self) -> str:
        """A line for the user whenever SLURM stops or starts to answer; empty otherwise."""
        told, self._news = self._news, ""
        return told

    def _refresh(self) -> None:
        """One `squeue` for all; one `sacct` for those that it does not list."""
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
            self._news = (f"SLURM does not answer ({self._failure}): whether jobs go on is unknown; asking again, at "
                          f"least every {LONGEST_S:.0f} s")
        elif before and not self._failure:
            self._news = "SLURM answers again"

    def _accounting(self, bases: list[str]) -> Listing:
        """What a cluster with accounting remembers of jobs that the controller has forgotten, or cannot tell."""
        if not bases:
            return Listing()
        reply = self._ask(["sacct", "-n", "-X", "-P", "-j", ",".join(bases), "-o", SACCT_FORMAT])
        return Listing() if reply.failure else Listing(read_lines(reply.text)[0])


def _orderly(reply: Reply, num_asked: int) -> tuple[list[Line], str]:
    """The lines of an answer of squeue, and why a job that it does not list may be there all the same."""
    lines, garbage = read_lines(reply.text)
    if reply.failure:
        no_such_job = num_asked == 1 and reply.failure.endswith(_NO_SUCH_JOB) and not reply.text.strip()
        return [], "" if no_such_job else reply.failure
    if reply.words:
        return lines, f"squeue: {reply.words}"
    return lines, f"squeue says {garbage[0]!r}" if garbage else ""
