"""The known state of a job: it is alive, it has ended, or the state is unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

# Base states and flags of slurm.schedmd.com/job_state_codes.html and of squeue's manual (22.05 and later). A job in one
# of these states has an allocation, waits for one, or goes back into the queue.
ALIVE = frozenset(
    {
        "PENDING",
        "RUNNING",
        "SUSPENDED",
        "STOPPED",
        "CONFIGURING",
        "POWER_UP_NODE",
        "COMPLETING",
        "STAGE_OUT",
        "UPDATE_DB",
        "SIGNALING",
        "RESIZING",
        "EXPEDITING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
    }
)
# States after which SLURM may put a job back into the queue: they are final only if they stay.
PASSING = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})
ENDED = PASSING | {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY"}
# All other words count as unknown. These are words of later versions, REVOKED (another cluster of a federation has the
# job), and LAUNCH_FAILED and RECONFIG_FAIL (held, put back or failed).


@dataclass(frozen=True)
class _NamedState:
    """A job whose state has a name in SLURM.

    Attributes:
        job_id: number of the job.
        name: SLURM's word for the state or the end of the job; `GONE` if SLURM has forgotten the job.
        reason: why the job waits or ended, if SLURM gives a reason.
    """

    job_id: str
    name: str
    reason: str = ""

    def describe(self) -> str:
        """The state in words."""
        return f"job {self.job_id} {self.name}" + (f" ({self.reason})" if self.reason not in ("", "None") else "")


class Alive(_NamedState):
    """A job that waits, runs, or is put back into the queue."""


class EndedJob(_NamedState):
    """A job that has certainly ended."""


@dataclass(frozen=True)
class UnknownJob:
    """A job that may be alive: nothing proves that it has ended.

    Attributes:
        job_id: number of the job.
        why: what was asked, and what came in place of an answer.
    """

    job_id: str
    why: str

    def describe(self) -> str:
        """The state in words."""
        return f"job {self.job_id} unknown ({self.why})"


Answer: TypeAlias = Alive | EndedJob | UnknownJob
