"""Follows a job from its submission to its end, and says how it ended."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from gnnexp.errors import RunError
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.queue.answers import Alive, EndedJob, UnknownJob
from gnnexp.launchers.queue.controller import PERIOD_S, Controller, NoAnswer
from gnnexp.launchers.queue.evidence import conclusion_of, own_end
from gnnexp.launchers.queue.preparation import unprepared_end
from gnnexp.launchers.queue.slurm_jobs import cancel_jobs, cancel_preparation, ended_with_step, exited, release
from gnnexp.launchers.status import Death, have_finished, judge, missed_at, read_statuses
from gnnexp.record.attempts import is_requeued

# Seconds between two looks at the run directory; SLURM is asked less often (`Controller`).
POLL_S = 1.0
# How long the job script may take for its last act after the ranks have finished.
_LAST_ACT_S = 60.0
# How long to wait for the end of a cancelled job: twice SLURM's default KillWait.
_CANCELLED_S = 60.0
# SLURM holds a requeued job for two minutes (BeginTime). The job may start earlier, but not in the second in which its
# nodes revoked the credential of its earlier start. They would refuse the new one, and SLURM would fail the job.
_SETTLED_S = 3.0


def following(run_dir: Path, job_id: str, num_ranks: int, controller: Controller) -> Iterator[Outcome | None]:
    """Yield the state of the job at each step: None until it has certainly ended, then its outcome."""
    held_since: float | None = None
    finished_since: float | None = None
    unknown = False
    while True:
        if have_finished(run_dir, num_ranks):  # SLURM need not be asked
            finished_since = finished_since or time.monotonic()
            if own_end(run_dir, job_id) is not None or time.monotonic() - finished_since > _LAST_ACT_S:
                yield Outcome(0, "finished")
                return
        finding = controller.find(job_id)
        answer = conclusion_of(job_id, finding, run_dir)
        if isinstance(answer, EndedJob):
            yield outcome_of(run_dir, answer, num_ranks)
            return
        # If no answer came, `Controller.news` reports that once for all jobs.
        if isinstance(answer, UnknownJob) != unknown and not isinstance(finding, NoAnswer):
            unknown = not unknown
            print(f"SLURM {answer.describe()}" + (": gnnexp waits for it" if unknown else ""), flush=True)
        held = isinstance(answer, Alive) and (answer.name, answer.reason) == ("PENDING", "BeginTime")
        # A job whose ranks have run before waits because it was requeued, not by the user's choice.
        again = held and (is_requeued(run_dir) or bool(read_statuses(run_dir)))
        held_since = (held_since or time.monotonic()) if again else None
        if held_since is not None and time.monotonic() - held_since > _SETTLED_S:
            release(job_id)
            held_since = time.monotonic() + PERIOD_S  # not again before the next answer
        yield None


def interrupted(run_dir: Path, job_id: str, controller: Controller) -> Outcome:
    """Cancel the job. If SLURM does not accept that, the job may continue, and the run directory stays its own."""
    code = 128 + signal.SIGINT
    try:
        cancel_jobs(job_id)
        cancel_preparation(run_dir)
    except RunError as error:
        return Outcome(
            code,
            "submitted",
            message=f"interrupted, but {error}: job {job_id} may go on; try again with: gnnexp cancel {run_dir}",
        )
    end = time.monotonic() + _CANCELLED_S
    while time.monotonic() < end and not isinstance(conclusion_of(job_id, controller.find(job_id), run_dir), EndedJob):
        time.sleep(POLL_S)
    said = f"interrupted; SLURM job {job_id} is cancelled"
    return Outcome(code, "interrupted", said, said, "interrupted")


def outcome_of(run_dir: Path, state: EndedJob, num_ranks: int) -> Outcome:
    """How a job ended, from the ranks' status files and, if they have none, from SLURM."""
    statuses = read_statuses(run_dir)
    if (unprepared := unprepared_end(run_dir, state)) is not None:
        return unprepared
    states = [status.state for status in statuses]
    if len(states) == num_ranks and set(states) == {"finished"}:
        return Outcome(0, "finished")
    if state.name == "CANCELLED" or "stopped" in states:
        said = f"the ranks were stopped: {state.describe()}"
        return Outcome(1, "failed", said, said, "interrupted")
    if state.name == "OUT_OF_MEMORY":
        return Outcome(1, "failed", f"SLURM ended the job: {state.describe()}", state.describe(), "out of memory")
    silent = [status for status in statuses if status.state == "running"]
    wordless = {
        rank: code
        for rank, code in exited(run_dir, state.job_id).items()
        if rank not in {status.rank for status in statuses}
    }
    if silent or wordless or "failed" in states:
        consequences = ended_with_step(run_dir, state.job_id)
        # A rank that SLURM ended is no cause: it ended after every other. A rank without a status file ended first.
        deaths = [
            Death(status.rank, None, math.inf if status.rank in consequences else missed_at(status))
            for status in silent
        ]
        deaths += [Death(rank, code, -math.inf) for rank, code in wordless.items()]
        outcome = judge(run_dir, deaths)
        return Outcome(
            outcome.exit_code,
            outcome.status,
            f"{outcome.reason} (SLURM: {state.describe()})",
            outcome.message,
            outcome.kind,
            outcome.memory,
        )
    reason = f"SLURM ended the job: {state.describe()}"
    return Outcome(1, "failed", reason, f"{reason}\nsee {run_dir / 'slurm'}", "killed")
