"""Ranks as tasks of a SLURM job, submitted through submitit; the tasks run the same worker as with other launchers.

The setup and teardown lines of the job script do more than start the tasks. Setup chooses a free port on the first node
for the rendezvous, again in every attempt. Teardown calls `gnnexp.after_job`, which finds out how the ranks ended, and
requeues the job if the run can continue.
"""

from __future__ import annotations

import math
import shlex
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnexp.errors import Problem, RunError
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.packages import is_installed, missing_package
from gnnexp.experiment.schema import HardwareConfig
from gnnexp.files.disk import subfolder
from gnnexp.launchers.base import Launcher, Outcome
from gnnexp.launchers.queue.answers import Alive, Ended, Unknown
from gnnexp.launchers.queue.commands import plain
from gnnexp.launchers.queue.controller import PERIOD_S, Controller, NoAnswer
from gnnexp.launchers.queue.evidence import answer_of, own_end
from gnnexp.launchers.queue.slurm_check import check_against_cluster
from gnnexp.launchers.queue.slurm_jobs import (
    Submission,
    cancel,
    ended_with_step,
    exited,
    forget_submission,
    read_job_id,
    release,
    write_submission,
)
from gnnexp.launchers.queue.slurm_task import Task
from gnnexp.launchers.status import Death, have_finished, judge, read_statuses
from gnnexp.record.attempts import is_requeued
from gnnexp.record.records import write_text

# Seconds between two looks at the run directory; SLURM is asked less often (`Controller`).
_POLL_S = 1.0
# How long the job script may take for its last act after the ranks have finished.
_LAST_ACT_S = 60.0
# How long to wait for the end of a cancelled job: twice SLURM's default KillWait.
_CANCELLED_S = 60.0
# If sbatch prints "error", it submitted nothing. With these words its answer was lost, and the job may be in the queue.
_LOST_ANSWER = ("timed out", "zero bytes", "unexpected message")
# SLURM holds a requeued job for two minutes (BeginTime). The job may start earlier, but not in the second in which its
# nodes revoked the credential of its earlier start. They would refuse the new one, and SLURM would fail the job.
_SETTLED_S = 3.0


class SlurmLauncher(Launcher):
    """Submits a job of `hardware.nodes` x `hardware.workers` tasks, and follows it unless `hardware.detach`.

    Args:
        time_min: limit of the job, in minutes; work that is not done by then continues after a requeue.
        partition, account, qos, constraint: options of sbatch; None leaves them to the cluster.
        cpus_per_task: cores of each rank.
        gpus_per_task: GPUs of each rank; 0 asks for none.
        mem_gb: memory of each node in GB; None leaves it to the cluster.
        setup: lines of the job script before the tasks start (`module load …`).
        parameters: further sbatch parameters, by name without dashes.
        srun_args: further arguments of srun.
        signal_delay_s: seconds before the limit at which the ranks are asked to write a checkpoint.
        max_requeues: how often a job that reached its time limit is put back into the queue.
        python: the command that runs Python on the nodes; None means this interpreter.
    """

    def __init__(
        self, time_min: int = 60, partition: str | None = None, account: str | None = None, qos: str | None = None,
        constraint: str | None = None, cpus_per_task: int = 1, gpus_per_task: int = 0, mem_gb: float | None = None,
        setup: Sequence[str] = (), parameters: Mapping[str, Any] | None = None, srun_args: Sequence[str] = (),
        signal_delay_s: int = 60, max_requeues: int = 10, python: str | None = None,
    ) -> None:
        self.time_min, self.partition, self.account, self.qos = time_min, partition, account, qos
        self.constraint, self.cpus_per_task, self.gpus_per_task = constraint, cpus_per_task, gpus_per_task
        self.mem_gb, self.setup, self.parameters = mem_gb, list(setup), dict(parameters or {})
        self.srun_args, self.signal_delay_s = list(srun_args), signal_delay_s
        self.max_requeues, self.python = max_requeues, python

    def check_here(self, hardware: HardwareConfig) -> list[Problem]:
        """Whether this machine has SLURM, and whether the cluster has what the job needs."""
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            return [Problem("hardware", "slurm", "sbatch and srun are not on PATH: this machine submits to no cluster",
                            "hardware=local, or log in to a node that submits")]
        if not is_installed("submitit"):
            return [missing_package("hardware", "slurm", "submitit", "hardware=local")]
        return check_against_cluster(self, hardware)

    def node_bytes(self) -> int | None:
        """The memory that the job requests for each node, in bytes."""
        return None if self.mem_gb is None else int(self.mem_gb * 1e9)

    def check(self, experiment: Experiment) -> list[Problem]:
        """Problems for numbers that no cluster accepts."""
        key = "hardware.launcher."
        rules = [
            ("time_min", self.time_min >= 1, "must be at least 1 minute", "60"),
            ("cpus_per_task", self.cpus_per_task >= 1, "must be at least 1", "1"),
            ("gpus_per_task", self.gpus_per_task >= 0, "must be 0 or more", "1"),
            ("mem_gb", self.mem_gb is None or self.mem_gb > 0, "must be positive, or null", "null"),
            ("max_requeues", self.max_requeues >= 0, "must be 0 or more", "10"),
            ("signal_delay_s", 0 < self.signal_delay_s < 60 * max(1, self.time_min), "must be shorter than the limit",
             str(min(60, 30 * max(1, self.time_min)))),
        ]
        return [Problem(key + name, getattr(self, name), allowed, f"{key}{name}={fix}")
                for name, holds, allowed, fix in rules if not holds]

    def launch(self, run_dir: Path, hardware: HardwareConfig) -> Outcome:
        """See `Launcher.launch`; with `hardware.detach` it returns as soon as the job is in the queue."""
        controller = Controller()
        try:
            (job_id,) = self.submit([run_dir], hardware)
            print(f"SLURM job {job_id}", flush=True)
            if hardware.detach:
                return Outcome(0, "submitted", message=f"submitted as SLURM job {job_id}: gnnexp status {run_dir}")
            controller.submitted([job_id])
            for outcome in following(run_dir, job_id, hardware.num_ranks, controller):
                if news := controller.news():
                    print(news, flush=True)
                if outcome is not None:
                    return outcome
                time.sleep(_POLL_S)
            raise AssertionError("following ends with an outcome")
        except KeyboardInterrupt:
            if (noted := read_job_id(run_dir)) is None:
                raise
            return _interrupted(run_dir, noted, controller)

    def submit(self, run_dirs: Sequence[Path], hardware: HardwareConfig) -> list[str]:
        """Put the runs into the queue, several of them as a job array. Return the jobs' numbers.

        Args:
            run_dirs: run directories with all files that the ranks need.
            hardware: the hardware profile of all runs.

        Raises:
            RunError: sbatch refuses.
        """
        token = uuid.uuid4().hex
        for run_dir in run_dirs:
            write_submission(run_dir, Submission(None, token))
        try:
            ids = self._sbatch(run_dirs, hardware, token)
        except RunError as error:
            said = str(error).lower()
            if "error" in said and not any(words in said for words in _LOST_ANSWER):
                for run_dir in run_dirs:
                    forget_submission(run_dir)
            raise
        for run_dir, job_id in zip(run_dirs, ids, strict=True):
            write_submission(run_dir, Submission(job_id, token))
        return ids

    def _sbatch(self, run_dirs: Sequence[Path], hardware: HardwareConfig, token: str) -> list[str]:
        import submitit

        folders = [prepare_folders(run_dir.resolve()) for run_dir in run_dirs]
        executor = submitit.SlurmExecutor(folder=folders[0] / "slurm", python=self.python)
        listed = subfolder(folders[0], "slurm") / "runs.txt"
        write_text(listed, "".join(f"{folder}\n" for folder in folders))
        executor.update_parameters(**self._parameters(folders[0].name, listed, hardware, token))
        tasks = [Task(str(folder), vars(hardware), self.cpus_per_task, token)
                 for folder in folders]
        try:
            if len(tasks) > 1:
                with executor.batch():
                    jobs = [executor.submit(task) for task in tasks]
            else:
                jobs = [executor.submit(tasks[0])]
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError, UnicodeError) as error:
            raise RunError(f"sbatch refused the job: {plain(str(error))}") from None
        return [str(job.job_id) for job in jobs]

    def _parameters(self, name: str, listed: Path, hardware: HardwareConfig, token: str) -> dict[str, Any]:
        python = self.python or shlex.quote(sys.executable)
        chosen = {
            "partition": self.partition, "account": self.account, "qos": self.qos, "constraint": self.constraint,
            "gpus_per_task": self.gpus_per_task or None, "mem": None if self.mem_gb is None else f"{self.mem_gb}GB",
        }
        return {
            **{name: value for name, value in chosen.items() if value is not None},
            "job_name": f"gnnexp-{name}"[:60], "time": self.time_min, "nodes": hardware.nodes,
            "ntasks_per_node": hardware.workers, "cpus_per_task": self.cpus_per_task,
            "signal_delay_s": self.signal_delay_s, "additional_parameters": self.parameters,
            "srun_args": ["--kill-on-bad-exit=1", *self.srun_args],
            "setup": [
                "export MASTER_ADDR=$(hostname)",  # the script runs on the first node, and so does rank 0
                f"export MASTER_PORT=$({python} -m gnnexp.launchers.rendezvous_port)",
                # srun 22.05 to 23.11 does not inherit it from sbatch (slurm/README.md)
                f"export SRUN_CPUS_PER_TASK={self.cpus_per_task}",
                *self.setup,
            ],
            "teardown": [
                "gnnexp_code=$?",
                # For a job array, take the line of this task.
                f'gnnexp_run=$(sed -n "$((${{SLURM_ARRAY_TASK_ID:-0}} + 1))p" {shlex.quote(str(listed))})',
                f'{python} -m gnnexp.after_job "$gnnexp_run" $gnnexp_code {self.max_requeues} {token}',
            ],
        }


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
        found = controller.find(job_id)
        answer = answer_of(job_id, found, run_dir)
        if isinstance(answer, Ended):
            yield outcome_of(run_dir, answer, num_ranks)
            return
        # If no answer came, `Controller.news` reports that once for all jobs.
        if isinstance(answer, Unknown) != unknown and not isinstance(found, NoAnswer):
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


def _interrupted(run_dir: Path, job_id: str, controller: Controller) -> Outcome:
    """Cancel the job. If SLURM does not accept that, the job may continue, and the run directory stays its own."""
    code = 128 + signal.SIGINT
    try:
        cancel(job_id)
    except RunError as error:
        return Outcome(code, "submitted", message=f"interrupted, but {error}: job {job_id} may go on; "
                                                  f"try again with: gnnexp cancel {run_dir}")
    end = time.monotonic() + _CANCELLED_S
    while time.monotonic() < end and not isinstance(answer_of(job_id, controller.find(job_id), run_dir), Ended):
        time.sleep(_POLL_S)
    said = f"interrupted; SLURM job {job_id} is cancelled"
    return Outcome(code, "interrupted", said, said, "interrupted")


def prepare_folders(run_dir: Path) -> Path:
    """Make the folders for logs and for the ranks' status files, without those of an earlier attempt."""
    shutil.rmtree(run_dir / "status", ignore_errors=True)
    for folder in ("logs", "status"):
        subfolder(run_dir, folder)
    return run_dir


def outcome_of(run_dir: Path, state: Ended, num_ranks: int) -> Outcome:
    """How a job ended, from the ranks' status files and, if they have none, from SLURM."""
    statuses = read_statuses(run_dir)
    states = [status.state for status in statuses]
    if len(states) == num_ranks and set(states) == {"finished"}:
        return Outcome(0, "finished")
    if state.name == "CANCELLED" or "stopped" in states:
        said = f"the ranks were stopped: {state.describe()}"
        return Outcome(1, "failed", said, said, "interrupted")
    if state.name == "OUT_OF_MEMORY":
        return Outcome(1, "failed", f"SLURM ended the job: {state.describe()}", state.describe(), "out of memory")
    silent = [status for status in statuses if status.state == "running"]
    wordless = {rank: code for rank, code in exited(run_dir, state.job_id).items()
                if rank not in {status.rank for status in statuses}}
    if silent or wordless or "failed" in states:
        consequences = ended_with_step(run_dir, state.job_id)
        # A rank that SLURM ended is no cause: it ended after every other. A rank without a status file ended first.
        deaths = [Death(status.rank, None, math.inf if status.rank in consequences else status.time)
                  for status in silent]
        deaths += [Death(rank, code, -math.inf) for rank, code in wordless.items()]
        outcome = judge(run_dir, deaths)
        return Outcome(outcome.exit_code, outcome.status, f"{outcome.reason} (SLURM: {state.describe()})",
                       outcome.message, outcome.kind, outcome.memory)
    reason = f"SLURM ended the job: {state.describe()}"
    return Outcome(1, "failed", reason, f"{reason}\nsee {run_dir / 'slurm'}", "killed")
