"""Ranks as tasks of a SLURM job, submitted through submitit; the tasks run the same worker as with other launchers.

The setup and teardown lines of the job script do more than start the tasks. Setup chooses a free port on the first node
for the rendezvous, again in every attempt. Teardown calls `cli.running.after_job`, which finds out how the ranks ended,
and requeues the job if the run can continue.
"""

from __future__ import annotations

import math
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gnnexp.components.packages import is_installed, missing_package
from gnnexp.components.schema import HardwareConfig
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem, RunError
from gnnexp.files.disk import subfolder
from gnnexp.files.private import make_private
from gnnexp.launchers.base import Launcher, Outcome
from gnnexp.launchers.queue.answers import Alive, EndedJob, UnknownJob
from gnnexp.launchers.queue.commands import plain_line, run_in_time
from gnnexp.launchers.queue.controller import PERIOD_S, Controller, NoAnswer
from gnnexp.launchers.queue.evidence import conclusion_of, own_end
from gnnexp.launchers.queue.job_script import preparation_parameters, python_of, submitit_parameters
from gnnexp.launchers.queue.preparation import unprepared_end
from gnnexp.launchers.queue.slurm_check import check_against_cluster, fit_of
from gnnexp.launchers.queue.slurm_jobs import (
    Submission,
    cancel_jobs,
    cancel_preparation,
    ended_with_step,
    exited,
    forget_submission,
    read_job_id,
    read_submission,
    release,
    write_submission,
)
from gnnexp.launchers.queue.slurm_task import Preparation, SlurmTask
from gnnexp.launchers.queue.words import megabytes_of, minutes_of
from gnnexp.launchers.status import Death, have_finished, judge, missed_at, read_statuses
from gnnexp.record.attempts import is_requeued
from gnnexp.record.records import write_text

if TYPE_CHECKING:
    import submitit

# The file with the run directory of each job of an array, in the folder of the job's files.
LISTED = "runs.txt"
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
        time_min: limit of the job, in minutes or in sbatch's words (`2:30:00`, `1-00:00:00`); work that is not done by
            then continues after a requeue.
        partition, account, qos, constraint: options of sbatch; None leaves them to the cluster. Of several partitions
            (`gpu,gpu-preempt`) SLURM takes one.
        cpus_per_task: cores of each rank.
        gpus_per_task: GPUs of each rank; 0 asks for none.
        gpus: how they are requested: `task` (--gpus-per-task: each rank sees only its own), `node` (--gpus-per-node)
            or `gres` (--gres, which every version and cluster knows). With the last two, a rank sees all GPUs of its
            node, as NCCL needs for NVLink.
        gpu_type: type of the GPUs, as the cluster names it; None is any.
        mem_gb: memory of each node in GB, or in sbatch's words (`100G`); None leaves it to the cluster.
        setup: lines of the job script before the tasks start (`module load …`).
        parameters: further sbatch parameters, by name without dashes.
        srun_args: further arguments of srun.
        signal_delay_s: seconds before the limit at which the ranks are asked to write a checkpoint.
        max_requeues: how often a job that reached its time limit is put back into the queue.
        python: the command that runs Python on the nodes; None means this interpreter, or `python3` in a container.
        container: `apptainer` or `pyxis` runs the ranks in a container that has gnnexp; None runs them without.
        image: image of the container: a file or address that apptainer or pyxis takes.
        mounts: folders of the nodes that the container sees (`/scratch`, `/scratch:/data`).
        prepare: `here` prepares the data before the submission; `job` submits another job for that.
            The ranks wait for it (`--dependency=afterok`), and this machine only reads the keys of the data's files.
        prepare_partition: partition of that job, which requests no GPU; None is the partition of the ranks.
    """

    def __init__(
        self,
        time_min: int | str = 60,
        partition: str | None = None,
        account: str | None = None,
        qos: str | None = None,
        constraint: str | None = None,
        cpus_per_task: int = 1,
        gpus_per_task: int = 0,
        gpus: Literal["task", "node", "gres"] = "task",
        gpu_type: str | None = None,
        mem_gb: float | str | None = None,
        setup: Sequence[str] = (),
        parameters: Mapping[str, Any] | None = None,
        srun_args: Sequence[str] = (),
        signal_delay_s: int = 60,
        max_requeues: int = 10,
        python: str | None = None,
        container: Literal["apptainer", "pyxis"] | None = None,
        image: str | None = None,
        mounts: Sequence[str] = (),
        prepare: Literal["here", "job"] = "here",
        prepare_partition: str | None = None,
    ) -> None:
        self.time_min, self.partition, self.account, self.qos = time_min, partition, account, qos
        self.constraint, self.cpus_per_task, self.gpus_per_task = constraint, cpus_per_task, gpus_per_task
        self.mem_gb, self.setup, self.parameters = mem_gb, list(setup), dict(parameters or {})
        self.srun_args, self.signal_delay_s = list(srun_args), signal_delay_s
        self.max_requeues, self.python = max_requeues, python
        self.gpus, self.gpu_type = gpus, gpu_type
        self.prepares, self.prepare_partition = prepare == "job", prepare_partition
        self.container, self.image, self.mounts = container, image, list(mounts)

    def check_here(self, hardware: HardwareConfig) -> list[Problem]:
        """Whether this machine has SLURM, and whether the cluster has what the job needs."""
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            return [
                Problem(
                    "hardware",
                    "slurm",
                    "sbatch and srun are not on PATH: this machine submits to no cluster",
                    "hardware=local, or log in to a node that submits",
                )
            ]
        if not is_installed("submitit"):
            return [missing_package("hardware", "slurm", "submitit", "hardware=local")]
        return check_against_cluster(self, hardware)

    def node_bytes(self) -> int | None:
        """The memory that the job requests for each node, in bytes."""
        megabytes = None if self.mem_gb is None else megabytes_of(self.mem_gb)
        return int(megabytes * 2**20) if megabytes else None  # --mem=0 is all memory of the node

    def check(self, setting: Setting) -> list[Problem]:
        """Problems for numbers that no cluster accepts."""
        key, minutes = "hardware.launcher.", minutes_of(self.time_min) or 0.0
        memory = None if self.mem_gb is None else megabytes_of(self.mem_gb)
        rules = [
            (
                "time_min",
                minutes >= 1,
                "must be at least 1 minute: minutes, or hours:minutes:seconds, or days-hours:minutes:seconds",
                "60",
            ),
            ("cpus_per_task", self.cpus_per_task >= 1, "must be at least 1", "1"),
            ("gpus_per_task", self.gpus_per_task >= 0, "must be 0 or more", "1"),
            (
                "mem_gb",
                self.mem_gb is None or (memory is not None and (memory > 0 or self.mem_gb == "0")),
                "must be positive GB, or a text such as 100G, or null",
                "null",
            ),
            (
                "image",
                self.container is None or bool(self.image),
                f"container={self.container} needs an image",
                "<the image's file or address>",
            ),
            (
                "container",
                self.container is not None or not (self.image or self.mounts),
                "image and mounts are of a container",
                "apptainer",
            ),
            ("max_requeues", self.max_requeues >= 0, "must be 0 or more", "10"),
            (
                "signal_delay_s",
                minutes < 1 or 0 < self.signal_delay_s < 60 * minutes,
                "must be shorter than the limit",
                str(int(min(60.0, 30 * max(1.0, minutes)))),
            ),
        ]
        return [
            Problem(key + name, getattr(self, name), allowed, f"{key}{name}={fix}")
            for name, holds, allowed, fix in rules
            if not holds
        ]

    def launch(self, run_dir: Path, hardware: HardwareConfig) -> Outcome:
        """See `Launcher.launch`; with `hardware.detach` it returns as soon as the job is in the queue."""
        controller = Controller()
        try:
            try:
                (job_id,) = self.submit([run_dir], hardware)
            except RunError as error:
                if not was_refused(run_dir):
                    raise
                return Outcome(1, "failed", str(error), str(error), "error")
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
        for doubt in fit_of(self, hardware).doubts:
            print(f"gnnexp: warning: {doubt}", file=sys.stderr)
        token = uuid.uuid4().hex
        for run_dir in run_dirs:
            make_private(run_dir, here=hardware.num_ranks == 1)
            write_submission(run_dir, Submission(None, token))
        try:
            ids, preparation = self._sbatch(run_dirs, hardware, token)
        except RunError as error:
            said = str(error).lower()
            if "error" in said and not any(words in said for words in _LOST_ANSWER):
                for run_dir in run_dirs:
                    forget_submission(run_dir)
            raise
        for run_dir, job_id in zip(run_dirs, ids, strict=True):
            write_submission(run_dir, Submission(job_id, token, preparation))
        return ids

    def _sbatch(self, run_dirs: Sequence[Path], hardware: HardwareConfig, token: str) -> tuple[list[str], str | None]:
        """Submit the jobs. Returns their numbers, and that of the job that prepares their data."""
        import submitit

        folders = [prepare_folders(run_dir.resolve()) for run_dir in run_dirs]
        write_text(subfolder(folders[0], "slurm") / LISTED, "".join(f"{folder}\n" for folder in folders))
        before = self._sbatch_preparation(folders[0], hardware, token) if self.prepares else None
        executor = self._executor(folders[0], hardware, token, before)
        tasks = [SlurmTask(str(folder), vars(hardware), self.cpus_per_task, token) for folder in folders]
        try:
            if len(tasks) > 1:
                with executor.batch():
                    jobs = [executor.submit(task) for task in tasks]
            else:
                jobs = [executor.submit(tasks[0])]
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError, UnicodeError) as error:
            if before is not None:
                run_in_time(["scancel", before])
            raise RunError(f"sbatch refused the job: {plain_line(str(error))}") from None
        return [str(job.job_id) for job in jobs], before

    def _sbatch_preparation(self, folder: Path, hardware: HardwareConfig, token: str) -> str:
        """Submit the job that prepares the data of all runs; returns its number."""
        import submitit

        executor, task = self._preparing(folder, hardware), Preparation(str(folder / "slurm" / LISTED), token)
        try:
            return str(executor.submit(task).job_id)
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError, UnicodeError) as error:
            raise RunError(f"sbatch refused the job that prepares the data: {plain_line(str(error))}") from None

    def _preparing(self, folder: Path, hardware: HardwareConfig) -> submitit.SlurmExecutor:
        import submitit

        executor = submitit.SlurmExecutor(folder=folder / "slurm", python=python_of(self))
        executor.update_parameters(**preparation_parameters(self, folder.name, hardware))
        return executor

    def _executor(
        self, folder: Path, hardware: HardwareConfig, token: str, before: str | None = None
    ) -> submitit.SlurmExecutor:
        """Submits jobs whose first run directory is `folder`."""
        import submitit

        executor = submitit.SlurmExecutor(folder=folder / "slurm", python=python_of(self))
        listed = folder / "slurm" / LISTED
        executor.update_parameters(**submitit_parameters(self, folder.name, listed, hardware, token, before))
        return executor

    def script_of(self, run_dirs: Sequence[Path], hardware: HardwareConfig) -> str:
        """The job script with which these runs would be submitted, as text; several runs are a job array.

        If a job prepares the data, its script comes first.
        Only the submission's token would be another one.
        """
        folder = run_dirs[0].resolve()
        executor = self._executor(folder, hardware, uuid.uuid4().hex, "JOB_OF_PREPARATION" if self.prepares else None)
        if len(run_dirs) > 1:
            executor.parameters["map_count"] = len(run_dirs)
        texts = [
            executor_of_part._make_submission_file_text(executor_of_part._submitit_command_str, "")
            for executor_of_part in ([self._preparing(folder, hardware)] if self.prepares else []) + [executor]
        ]
        return "\n".join(texts)


def was_refused(run_dir: Path) -> bool:
    """Whether a failed submission left no job. Without an answer of sbatch, the job may be in the queue."""
    return read_submission(run_dir) is None


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


def _interrupted(run_dir: Path, job_id: str, controller: Controller) -> Outcome:
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
        time.sleep(_POLL_S)
    said = f"interrupted; SLURM job {job_id} is cancelled"
    return Outcome(code, "interrupted", said, said, "interrupted")


def prepare_folders(run_dir: Path) -> Path:
    """Make the folders for logs and for the ranks' status files, without those of an earlier attempt."""
    shutil.rmtree(run_dir / "status", ignore_errors=True)
    for folder in ("logs", "status"):
        subfolder(run_dir, folder)
    return run_dir


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
