"""Ranks as tasks of a SLURM job, submitted through submitit; the tasks run the same worker as everywhere.

What a job script does beside starting the tasks is in its setup and teardown lines: they choose a free port on the
first node for the rendezvous, anew in every attempt, and call `gnnexp.after_job`, which knows how the ranks ended and
has the job requeued where the run can go on.
"""

from __future__ import annotations

import math
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnexp.config.packages import is_installed, missing_package
from gnnexp.config.schema import HardwareConfig, run_config
from gnnexp.errors import Problem, RunError
from gnnexp.launchers.base import Launcher, Outcome
from gnnexp.launchers.slurm_check import check_against_cluster
from gnnexp.launchers.slurm_jobs import JobState, cancel, ended_with_step, exited, job_state, release, write_job_id
from gnnexp.launchers.slurm_task import Task
from gnnexp.launchers.status import Death, judge, read_statuses
from gnnexp.record.attempts import is_requeued
from gnnexp.record.records import write_text

_POLL_S = 1.0
# States that SLURM passes through when it puts a job back into the queue: final only if they stay.
_PASSING, _PASSING_S = {"NODE_FAIL", "PREEMPTED", "BOOT_FAIL"}, 15.0
# A requeued job waits two minutes by SLURM's own rule (BeginTime). It may go earlier, but not in the second in which
# its nodes revoked the credential of its earlier start: they would refuse the new one, and SLURM would fail the job.
_SETTLED_S = 3.0


class SlurmLauncher(Launcher):
    """Submits a job of `hardware.nodes` x `hardware.workers` tasks, and follows it or not.

    Args:
        time_min: limit of the job, in minutes; what is not done by then goes on after a requeue.
        partition, account, qos, constraint: as sbatch takes them; None leaves them to the cluster.
        cpus_per_task: cores of each rank.
        gpus_per_task: GPUs of each rank; 0 asks for none.
        mem_gb: memory of each node in GB; None leaves it to the cluster.
        setup: lines of the job script before the tasks start (`module load …`).
        parameters: further sbatch parameters, by name without dashes.
        srun_args: further arguments of srun.
        signal_delay_s: how long before the limit the ranks are told to write a checkpoint.
        max_requeues: how often a job whose time is over is put back into the queue.
        python: the command that runs Python on the nodes; None = this interpreter.
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

    def check_here(self, config: Mapping[str, Any]) -> list[Problem]:
        """Whether there is a SLURM here, and whether it has what is asked for."""
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            return [Problem("hardware", "slurm", "sbatch and srun are not on PATH: this machine submits to no cluster",
                            "hardware=local, or log in to a node that submits")]
        if not is_installed("submitit"):
            return [missing_package("hardware", "slurm", "submitit", "hardware=local")]
        return check_against_cluster(self, run_config(config).hardware)

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Numbers that no cluster takes."""
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
        return [Problem(key + name, getattr(self, name), allowed, f"{key}{name}={mend}")
                for name, holds, allowed, mend in rules if not holds]

    def launch(self, run_dir: Path, config: Mapping[str, Any]) -> Outcome:
        """See `Launcher.launch`; with `hardware.detach` it returns when the job is in the queue."""
        hardware = run_config(config).hardware
        (job_id,) = self.submit([run_dir], config)
        print(f"SLURM job {job_id}", flush=True)
        if hardware.detach:
            return Outcome(0, "submitted", message=f"submitted as SLURM job {job_id}: gnnexp status {run_dir}")
        try:
            for outcome in self.following(run_dir, job_id, hardware.num_ranks):
                if outcome is not None:
                    return outcome
                time.sleep(_POLL_S)
            raise AssertionError("following ends with an outcome")
        except KeyboardInterrupt:
            cancel(job_id)
            wait_for_end(job_id)
            said = f"interrupted; SLURM job {job_id} is cancelled"
            return Outcome(128 + signal.SIGINT, "interrupted", said, said, "interrupted")

    def submit(self, run_dirs: Sequence[Path], config: Mapping[str, Any]) -> list[str]:
        """Put the runs into the queue, several of them as a job array; returns the jobs' ids.

        Args:
            run_dirs: with all that the ranks need.
            config: of any of them: their hardware profiles are the same.

        Raises:
            RunError: sbatch refuses.
        """
        import submitit

        hardware = run_config(config).hardware
        folders = [prepare_folders(run_dir.resolve()) for run_dir in run_dirs]
        executor = submitit.SlurmExecutor(folder=folders[0] / "slurm", python=self.python)
        listed = folders[0] / "slurm" / "runs.txt"
        write_text(listed, "".join(f"{folder}\n" for folder in folders))
        executor.update_parameters(**self._parameters(folders[0].name, listed, hardware))
        tasks = [Task(str(folder), vars(hardware) | {"straggler": None}, self.cpus_per_task) for folder in folders]
        try:
            if len(tasks) > 1:
                with executor.batch():
                    jobs = [executor.submit(task) for task in tasks]
            else:
                jobs = [executor.submit(tasks[0])]
        except submitit.core.utils.FailedJobError as error:
            raise RunError(f"sbatch refused the job: {error}") from None
        ids = [str(job.job_id) for job in jobs]
        for folder, job_id in zip(folders, ids, strict=True):
            write_job_id(folder, job_id)
        return ids

    def _parameters(self, name: str, listed: Path, hardware: HardwareConfig) -> dict[str, Any]:
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
                # Of an array, the line that is this job's.
                f'gnnexp_run=$(sed -n "$((${{SLURM_ARRAY_TASK_ID:-0}} + 1))p" {shlex.quote(str(listed))})',
                f'{python} -m gnnexp.after_job "$gnnexp_run" $gnnexp_code {self.max_requeues}',
            ],
        }

    def following(self, run_dir: Path, job_id: str, num_ranks: int) -> Iterator[Outcome | None]:
        """How the job stands, whenever asked: None until it has ended, then its outcome."""
        passing_since: float | None = None
        held_since: float | None = None
        while True:
            state = job_state(job_id)
            if state.ended:
                passing_since = passing_since or time.monotonic()
                outcome = outcome_of(run_dir, state, num_ranks)
                passing = outcome.status != "finished" and (state.name in _PASSING or is_requeued(run_dir))
                if not passing or time.monotonic() - passing_since > _PASSING_S:
                    yield outcome
                    return
            else:
                passing_since = None
                held = state.name == "PENDING" and state.reason == "BeginTime"
                held_since = (held_since or time.monotonic()) if held else None
                if held_since is not None and time.monotonic() - held_since > _SETTLED_S:
                    release(job_id)
            yield None


def prepare_folders(run_dir: Path) -> Path:
    """Room for logs and for the ranks' words, without those of an earlier attempt."""
    shutil.rmtree(run_dir / "status", ignore_errors=True)
    for folder in ("logs", "status"):
        (run_dir / folder).mkdir(exist_ok=True)
    return run_dir


def outcome_of(run_dir: Path, state: JobState, num_ranks: int) -> Outcome:
    """How a job ended, from the ranks' own words and, where they have none, from SLURM's."""
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
        # One that SLURM ended went after whatever another says of itself; one that left no word went before all others.
        deaths = [Death(status.rank, None, math.inf if status.rank in consequences else status.time)
                  for status in silent]
        deaths += [Death(rank, code, -math.inf) for rank, code in wordless.items()]
        outcome = judge(run_dir, deaths)
        return Outcome(outcome.exit_code, outcome.status, f"{outcome.reason} (SLURM: {state.describe()})",
                       outcome.message, outcome.kind, outcome.memory)
    reason = f"SLURM ended the job: {state.describe()}"
    return Outcome(1, "failed", reason, f"{reason}\nsee {run_dir / 'slurm'}", "killed")


def wait_for_end(job_id: str, timeout_s: float = 60.0) -> None:
    """Until the job is out of the queue, not for ever."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and not job_state(job_id).ended:
        time.sleep(_POLL_S)


