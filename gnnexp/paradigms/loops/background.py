"""The thread of a rank that exchanges rows while the training loop computes."""

from __future__ import annotations

from gnnexp.comm.background import Background
from gnnexp.comm.communicator import Communicator
from gnnexp.paradigms.job import Job


def background_of(job: Job) -> tuple[Background, Communicator] | None:
    """The thread that exchanges rows while the loop computes, and its communicator. All ranks call this.

    None on a GPU: NCCL lets one thread of a process launch at a time, also on different groups. Late exchanges may last
    into the next epoch, in which the loop launches its own. So the loop waits there, with the same results, and the
    record says so (`late_facts`).
    """
    if job.device.type == "cuda":
        return None

    def made() -> tuple[Background, Communicator]:
        thread = Background(job.timer, job.device)
        return thread, job.comm.clone_for_thread(job.device, thread)

    return job.once.of("background", made)
