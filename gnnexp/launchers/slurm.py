"""Ranks as tasks of a SLURM job, submitted through submitit; the tasks run the same worker as with other launchers.

The setup and teardown lines of the job script do more than start the tasks. Setup chooses a free port on the first node
for the rendezvous, again in every attempt. Teardown calls `cli.running.after_job`, which finds out how the ranks ended,
and requeues the job if the run can continue.
"""

from __future__ import annotations

import math
import shlex
import shutil
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gnnexp.components.packages import is_installed, missing_package
from gnnexp.components.schema import HardwareConfig
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem, RunError
from gnnexp.files.disk import subfolder
from gnnexp.files.private import make_private
from gnnexp.launchers.base import Launcher, Outcome
from gnnexp.launchers.queue.commands import plain_line, run_in_time
from gnnexp.launchers.queue.controller import Controller
from gnnexp.launchers.queue.following import POLL_S, following, interrupted
from gnnexp.launchers.queue.slurm_check import KEY, Fit, SlurmPartition, read_partitions, sinfo, wanted_partitions
from gnnexp.launchers.queue.slurm_jobs import (
    GO_ON,
    Submission,
    forget_submission,
    read_job_id,
    read_submission,
    write_submission,
)
from gnnexp.launchers.queue.slurm_task import Preparation, SlurmTask
from gnnexp.launchers.queue.words import gpus_by_type, gpus_in, megabytes_of, minutes_of
from gnnexp.record.records import write_text

if TYPE_CHECKING:
    import submitit

# The file with the run directory of each job of an array, in the folder of the job's files.
LISTED = "runs.txt"
# If sbatch prints "error", it submitted nothing. With these words its answer was lost, and the job may be in the queue.
_LOST_ANSWER = ("timed out", "zero bytes", "unexpected message")
# Parameters of sbatch with which a job does not see what sinfo lists for a partition, or may exceed its limits.
_ELSEWHERE = ("clusters", "cluster_constraint", "reservation")
_AFTER_JOB = "gnnexp.cli.running.after_job"  # above this room: named, not imported.
# The number of this job in the words of scontrol; in an array, with the number of the task.
_JOB_ID = "${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}"
# Seconds before each request to put the job back: an outage of the controller may be over by then.
_WAITS = "0 2 4 8 16 30 30 30 30 30 30 30 30"


@dataclass(frozen=True, eq=False)
class SlurmLauncher(Launcher):
    """Submits a job of `hardware.nodes` x `hardware.workers` tasks, and follows it unless `hardware.detach`.

    Attributes:
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

    time_min: int | str = 60
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    cpus_per_task: int = 1
    gpus_per_task: int = 0
    gpus: Literal["task", "node", "gres"] = "task"
    gpu_type: str | None = None
    mem_gb: float | str | None = None
    setup: Sequence[str] = ()
    parameters: Mapping[str, Any] | None = None
    srun_args: Sequence[str] = ()
    signal_delay_s: int = 60
    max_requeues: int = 10
    python: str | None = None
    container: Literal["apptainer", "pyxis"] | None = None
    image: str | None = None
    mounts: Sequence[str] = ()
    prepare: Literal["here", "job"] = "here"
    prepare_partition: str | None = None

    @property
    def prepares(self) -> bool:
        """See `Launcher.prepares`."""
        return self.prepare == "job"

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
        return [*self.fit(hardware).problems]

    def node_bytes(self) -> int | None:
        """The memory that the job requests for each node, in bytes."""
        megabytes = None if self.mem_gb is None else megabytes_of(self.mem_gb)
        return int(megabytes * 2**20) if megabytes else None  # --mem=0 is all memory of the node

    def check(self, setting: Setting) -> list[Problem]:
        """Problems for numbers that no cluster accepts."""
        minutes = minutes_of(self.time_min) or 0.0
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
            Problem(KEY + name, getattr(self, name), allowed, f"{KEY}{name}={fix}")
            for name, holds, allowed, fix in rules
            if not holds
        ]

    def fit(self, hardware: HardwareConfig) -> Fit:
        """Compare all parameters with the nodes of the job's partitions; the job fits if it fits one of them."""
        try:
            partitions = read_partitions(sinfo())
        except (RunError, ValueError) as error:
            said = f"the cluster does not answer: {plain_line(str(error))}"
            return Fit((Problem("hardware", "slurm", said, "look at `sinfo`"),))
        parameters = self.plain_parameters
        problems, wanted = wanted_partitions(str(parameters.get("partition") or self.partition or ""), partitions)
        if not problems:
            problems = min((self._partition_problems(hardware, partition) for partition in wanted), key=len)
        unsure = any(name in parameters for name in _ELSEWHERE)
        # sinfo cannot know: a quality of service may have another time limit than the partition.
        unknown = KEY + "time_min" if self.qos is not None else None
        doubtful = [problem for problem in problems if unsure or problem.key == unknown]
        return Fit(tuple(problem for problem in problems if problem not in doubtful), tuple(doubtful))

    def _partition_problems(self, hardware: HardwareConfig, partition: SlurmPartition) -> list[Problem]:
        """What the nodes of a partition do not have."""
        cpus, gpus = hardware.workers * self.cpus_per_task, self.gpus_of_node(hardware)
        limit, minutes = partition.limit_min, minutes_of(self.time_min) or 0.0
        memory = None if self.mem_gb is None else megabytes_of(self.mem_gb)
        knows_memory = partition.mem_mb > 1  # RealMemory=1 is SLURM's default: nobody has set it
        rules = [
            (
                KEY + "time_min",
                self.time_min,
                limit is None or minutes <= limit,
                f"at most {limit} minutes",
                f"{KEY}time_min={limit}",
            ),
            (
                "hardware.nodes",
                hardware.nodes,
                hardware.nodes <= partition.nodes,
                f"has {partition.nodes} nodes",
                f"hardware.nodes={partition.nodes}",
            ),
            (
                KEY + "cpus_per_task",
                self.cpus_per_task,
                cpus <= partition.cpus,
                f"{hardware.workers} tasks per node need {cpus} cores, its nodes have {partition.cpus}",
                f"{KEY}cpus_per_task={max(1, partition.cpus // hardware.workers)}, or fewer hardware.workers",
            ),
            (
                KEY + "gpus_per_task",
                self.gpus_per_task,
                gpus <= partition.gpus,
                f"{hardware.workers} tasks per node need {gpus} GPUs, its nodes have {partition.gpus}",
                f"{KEY}gpus_per_task={partition.gpus // hardware.workers}, or fewer hardware.workers",
            ),
            (
                KEY + "mem_gb",
                self.mem_gb,
                memory is None or not knows_memory or memory <= partition.mem_mb,
                f"its nodes have {partition.mem_mb / 1024:.1f} GB",
                f"{KEY}mem_gb={partition.mem_mb // 1024}",
            ),
        ]
        problems = [
            Problem(key, value, f"partition {partition.name}: {allowed}", fix)
            for key, value, holds, allowed, fix in rules
            if not holds
        ]
        if hardware.device == "cuda" and gpus == 0:
            problems.append(
                Problem(
                    KEY + "gpus_per_task",
                    0,
                    "hardware.device=cuda needs a GPU for each rank",
                    f"{KEY}gpus_per_task=1, or GPUs in {KEY}parameters",
                )
            )
        return problems

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
                time.sleep(POLL_S)
            raise AssertionError("following ends with an outcome")
        except KeyboardInterrupt:
            if (noted := read_job_id(run_dir)) is None:
                raise
            return interrupted(run_dir, noted, controller)

    def submit(self, run_dirs: Sequence[Path], hardware: HardwareConfig) -> list[str]:
        """Put the runs into the queue, several of them as a job array. Return the jobs' numbers.

        Args:
            run_dirs: run directories with all files that the ranks need.
            hardware: the hardware profile of all runs.

        Raises:
            RunError: sbatch refuses.
        """
        for doubt in self.fit(hardware).doubts:
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
        executor = self._executor(folders[0], self._job_parameters(folders[0], hardware, token, before))
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

        executor = self._executor(folder, self._preparation_parameters(folder.name, hardware))
        try:
            return str(executor.submit(Preparation(str(folder / "slurm" / LISTED), token)).job_id)
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError, UnicodeError) as error:
            raise RunError(f"sbatch refused the job that prepares the data: {plain_line(str(error))}") from None

    def _executor(self, folder: Path, parameters: Mapping[str, Any]) -> submitit.SlurmExecutor:
        """Submits jobs whose first run directory is `folder`."""
        import submitit

        executor = submitit.SlurmExecutor(folder=folder / "slurm", python=self.python_words)
        executor.update_parameters(**parameters)
        return executor

    def script_of(self, run_dirs: Sequence[Path], hardware: HardwareConfig) -> str:
        """The job script with which these runs would be submitted, as text; several runs are a job array.

        If a job prepares the data, its script comes first.
        Only the submission's token would be another one.
        """
        folder, before = run_dirs[0].resolve(), "JOB_OF_PREPARATION" if self.prepares else None
        jobs = [self._executor(folder, self._job_parameters(folder, hardware, uuid.uuid4().hex, before))]
        if len(run_dirs) > 1:
            jobs[0].parameters["map_count"] = len(run_dirs)
        if self.prepares:
            jobs.insert(0, self._executor(folder, self._preparation_parameters(folder.name, hardware)))
        return "\n".join(job._make_submission_file_text(job._submitit_command_str, "") for job in jobs)

    @property
    def plain_parameters(self) -> dict[str, Any]:
        """The further parameters of sbatch, with underscores in their names."""
        return {str(name).replace("-", "_"): value for name, value in (self.parameters or {}).items()}

    @property
    def python_words(self) -> str:
        """The words that run Python in a task."""
        own = self.python or ("python3" if self.container else shlex.quote(sys.executable))
        if self.container != "apptainer":
            return own
        gpus = ["--nv"] if self.gpus_per_task else []
        mounts = [word for mount in self.mounts for word in ("--bind", mount)]
        return f"{shlex.join(['apptainer', 'exec', *gpus, *mounts, str(self.image)])} {own}"

    def gpus_of_node(self, hardware: HardwareConfig) -> int:
        """The GPUs that the job requests on each node, by its own options or by further parameters of sbatch."""
        asked, workers = self.plain_parameters, hardware.workers
        found = [self.gpus_per_task * workers, gpus_in(str(asked.get("gres", "")))]
        for name, times in (("gpus_per_node", 1.0), ("gpus_per_task", workers), ("gpus", 1.0 / hardware.nodes)):
            found.append(round((gpus_by_type(str(asked[name])) or 0) * times) if name in asked else 0)
        return max(found)

    def _job_parameters(
        self, folder: Path, hardware: HardwareConfig, token: str, after: str | None = None
    ) -> dict[str, Any]:
        """The parameters of submitit for a job, or for an array of jobs.

        Args:
            folder: run directory of the first job, which lists the run directory of each.
            hardware: the hardware of all runs.
            token: token of the submission.
            after: number of the job that must have succeeded before; None if there is none.
        """
        listed = shlex.quote(str(folder / "slurm" / LISTED))
        more = {**(self.parameters or {}), **({"kill-on-invalid-dep": "yes"} if after else {})}
        return {
            **self._sbatch_options(self.partition),
            **({"dependency": f"afterok:{after}"} if after else {}),
            **self._gpus(hardware),
            "job_name": f"gnnexp-{folder.name}"[:60],
            "time": self.time_min,
            "nodes": hardware.nodes,
            "ntasks_per_node": hardware.workers,
            "cpus_per_task": self.cpus_per_task,
            "signal_delay_s": self.signal_delay_s,
            "additional_parameters": more,
            "srun_args": ["--kill-on-bad-exit=1", *self._container_of_step(), *self.srun_args],
            "setup": [
                "export MASTER_ADDR=$(hostname)",  # the script runs on the first node, and so does rank 0
                *self._port(),
                # srun 22.05 to 23.11 does not inherit it from sbatch (slurm/README.md)
                f"export SRUN_CPUS_PER_TASK={self.cpus_per_task}",
                *self.setup,
            ],
            "teardown": [
                "gnnexp_code=$?",
                # For a job array, take the line of this task.
                f'gnnexp_run=$(sed -n "$((${{SLURM_ARRAY_TASK_ID:-0}} + 1))p" {listed})',
                *self._after(token),
            ],
        }

    def _preparation_parameters(self, name: str, hardware: HardwareConfig) -> dict[str, Any]:
        """The parameters of submitit for the job that prepares data: the cores and memory of a node, and no GPU."""
        more = {name: value for name, value in (self.parameters or {}).items() if not name.startswith(("gres", "gpu"))}
        return {
            **self._sbatch_options(self.prepare_partition or self.partition),
            "job_name": f"gnnexp-prepare-{name}"[:60],
            "time": self.time_min,
            "nodes": 1,
            "ntasks_per_node": 1,
            "cpus_per_task": self.cpus_per_task * hardware.workers,
            "additional_parameters": more,
            "srun_args": [*self._container_of_step(), *self.srun_args],
            "setup": list(self.setup),
        }

    def _sbatch_options(self, partition: str | None) -> dict[str, Any]:
        """The options of sbatch that both jobs have, without those that are left to the cluster."""
        chosen = {
            "partition": partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "mem": _memory(self.mem_gb),
        }
        return {name: value for name, value in chosen.items() if value is not None}

    def _gpus(self, hardware: HardwareConfig) -> dict[str, Any]:
        """The request for GPUs. By node or as a generic resource, each task sees all GPUs of its node."""
        if not (number := self.gpus_per_task):
            return {}
        kind = f"{self.gpu_type}:" if self.gpu_type else ""
        if self.gpus == "task":
            return {"gpus_per_task": f"{kind}{number}" if kind else number}
        of_node = number * hardware.workers
        if self.gpus == "gres":
            return {"gres": f"gpu:{kind}{of_node}"}
        return {"gpus_per_node": f"{kind}{of_node}" if kind else of_node}

    def _container_of_step(self) -> Sequence[str]:
        """The arguments with which srun starts tasks inside of a container (pyxis)."""
        if self.container != "pyxis":
            return []
        mounts = [f"--container-mounts={','.join(self.mounts)}"] if self.mounts else []
        return [f"--container-image={self.image}", "--container-workdir=" + str(Path.cwd()), *mounts]

    def _port(self) -> Sequence[str]:
        """Choose the port at which ranks meet. With a container there is no Python here, so the shell chooses it."""
        if self.container is None:
            return [f"export MASTER_PORT=$({self.python_words} -m gnnexp.launchers.rendezvous_port)"]
        return [
            "export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))",
            "while (exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT) 2>/dev/null; do",  # another process listens there
            "  MASTER_PORT=$((10000 + (MASTER_PORT - 10000 + 1009) % 20000))",
            "done",
        ]

    def _after(self, token: str) -> Sequence[str]:
        """Find out how the ranks ended, and put the job back into the queue if the run goes on.

        There is no scontrol in a container. The shell calls it if the program says so.
        """
        words = f'"$gnnexp_run" $gnnexp_code {self.max_requeues} {token}'
        program = f"{self.python_words} -m {_AFTER_JOB} {words}"
        if self.container is None:
            return [program]
        if self.container == "pyxis":
            program = (
                f"srun --overlap --nodes=1 --ntasks=1 --nodelist=$SLURMD_NODENAME "
                f"{shlex.join(self._container_of_step())} {program}"
            )
        return [
            f"gnnexp_after() {{ {program} $1; }}",
            "gnnexp_after outside; gnnexp_code=$?",
            f"if [ $gnnexp_code -eq {GO_ON} ]; then",
            f"  gnnexp_job={_JOB_ID}",
            f"  for gnnexp_wait in {_WAITS}; do",
            "    sleep $gnnexp_wait; scontrol requeue ${gnnexp_job:-$SLURM_JOB_ID} && exit 0",
            "  done",
            "  gnnexp_after refused; gnnexp_code=$?",
            "fi",
            "exit $gnnexp_code",
        ]


def _memory(memory: float | str | None) -> str | None:
    """Memory for sbatch, which takes whole numbers only."""
    if isinstance(memory, int | float):
        return f"{memory}GB" if isinstance(memory, int) else f"{math.ceil(1024 * memory)}M"
    return memory


def was_refused(run_dir: Path) -> bool:
    """Whether a failed submission left no job. Without an answer of sbatch, the job may be in the queue."""
    return read_submission(run_dir) is None


def prepare_folders(run_dir: Path) -> Path:
    """Make the folders for logs and for the ranks' status files, without those of an earlier attempt."""
    shutil.rmtree(run_dir / "status", ignore_errors=True)
    for folder in ("logs", "status"):
        subfolder(run_dir, folder)
    return run_dir
