"""The job script: sbatch parameters, what it does before the ranks start, and what it does after their end."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.components.schema import HardwareConfig
from gnnexp.launchers.queue.slurm_jobs import GO_ON

if TYPE_CHECKING:
    from gnnexp.launchers.slurm import SlurmLauncher

_AFTER_JOB = "gnnexp.cli.running.after_job"  # above this room: named, not imported.
# The number of this job in the words of scontrol; in an array, with the number of the task.
_JOB_ID = "${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}"
# Seconds before each request to put the job back: an outage of the controller may be over by then.
_WAITS = "0 2 4 8 16 30 30 30 30 30 30 30 30"


def submitit_parameters(
    launcher: SlurmLauncher, name: str, listed: Path, hardware: HardwareConfig, token: str, after: str | None = None
) -> dict[str, Any]:
    """The parameters of submitit for a job, or for an array of jobs.

    Args:
        launcher: the options of the job.
        name: name of the job.
        listed: file with the run directory of each job.
        hardware: the hardware of all runs.
        token: token of the submission.
        after: number of the job that must have succeeded before; None if there is none.
    """
    chosen = {
        "partition": launcher.partition,
        "account": launcher.account,
        "qos": launcher.qos,
        "constraint": launcher.constraint,
        "mem": _memory(launcher.mem_gb),
        "dependency": after and f"afterok:{after}",
    }
    more = {**launcher.parameters, **({"kill-on-invalid-dep": "yes"} if after else {})}
    return {
        **{name: value for name, value in chosen.items() if value is not None},
        **_gpus(launcher, hardware),
        "job_name": f"gnnexp-{name}"[:60],
        "time": launcher.time_min,
        "nodes": hardware.nodes,
        "ntasks_per_node": hardware.workers,
        "cpus_per_task": launcher.cpus_per_task,
        "signal_delay_s": launcher.signal_delay_s,
        "additional_parameters": more,
        "srun_args": ["--kill-on-bad-exit=1", *_container_of_step(launcher), *launcher.srun_args],
        "setup": [
            "export MASTER_ADDR=$(hostname)",  # the script runs on the first node, and so does rank 0
            *_port(launcher),
            # srun 22.05 to 23.11 does not inherit it from sbatch (slurm/README.md)
            f"export SRUN_CPUS_PER_TASK={launcher.cpus_per_task}",
            *launcher.setup,
        ],
        "teardown": [
            "gnnexp_code=$?",
            # For a job array, take the line of this task.
            f'gnnexp_run=$(sed -n "$((${{SLURM_ARRAY_TASK_ID:-0}} + 1))p" {shlex.quote(str(listed))})',
            *_after(launcher, token),
        ],
    }


def preparation_parameters(launcher: SlurmLauncher, name: str, hardware: HardwareConfig) -> dict[str, Any]:
    """The parameters of submitit for the job that prepares data: the cores and memory of a node, and no GPU."""
    chosen = {
        "partition": launcher.prepare_partition or launcher.partition,
        "account": launcher.account,
        "qos": launcher.qos,
        "constraint": launcher.constraint,
        "mem": _memory(launcher.mem_gb),
    }
    more = {name: value for name, value in launcher.parameters.items() if not name.startswith(("gres", "gpu"))}
    return {
        **{name: value for name, value in chosen.items() if value is not None},
        "job_name": f"gnnexp-prepare-{name}"[:60],
        "time": launcher.time_min,
        "nodes": 1,
        "ntasks_per_node": 1,
        "cpus_per_task": launcher.cpus_per_task * hardware.workers,
        "additional_parameters": more,
        "srun_args": [*_container_of_step(launcher), *launcher.srun_args],
        "setup": launcher.setup,
    }


def python_of(launcher: SlurmLauncher) -> str:
    """The words that run Python in a task."""
    own = launcher.python or ("python3" if launcher.container else shlex.quote(sys.executable))
    return f"{_apptainer(launcher)} {own}" if launcher.container == "apptainer" else own


def _memory(memory: float | str | None) -> str | None:
    """Memory for sbatch, which takes whole numbers only."""
    if isinstance(memory, int | float):
        return f"{memory}GB" if isinstance(memory, int) else f"{math.ceil(1024 * memory)}M"
    return memory


def _gpus(launcher: SlurmLauncher, hardware: HardwareConfig) -> dict[str, Any]:
    """The request for GPUs. By node or as a generic resource, each task sees all GPUs of its node."""
    if not (number := launcher.gpus_per_task):
        return {}
    kind = f"{launcher.gpu_type}:" if launcher.gpu_type else ""
    if launcher.gpus == "task":
        return {"gpus_per_task": f"{kind}{number}" if kind else number}
    of_node = number * hardware.workers
    if launcher.gpus == "gres":
        return {"gres": f"gpu:{kind}{of_node}"}
    return {"gpus_per_node": f"{kind}{of_node}" if kind else of_node}


def _apptainer(launcher: SlurmLauncher) -> str:
    gpus = ["--nv"] if launcher.gpus_per_task else []
    mounts = [word for mount in launcher.mounts for word in ("--bind", mount)]
    return shlex.join(["apptainer", "exec", *gpus, *mounts, str(launcher.image)])


def _container_of_step(launcher: SlurmLauncher) -> Sequence[str]:
    """The arguments with which srun starts tasks inside of a container (pyxis)."""
    if launcher.container != "pyxis":
        return []
    mounts = [f"--container-mounts={','.join(launcher.mounts)}"] if launcher.mounts else []
    return [f"--container-image={launcher.image}", "--container-workdir=" + str(Path.cwd()), *mounts]


def _port(launcher: SlurmLauncher) -> Sequence[str]:
    """Choose the port at which ranks meet. With a container there is no Python here, so the shell chooses it."""
    if launcher.container is None:
        return [f"export MASTER_PORT=$({python_of(launcher)} -m gnnexp.launchers.rendezvous_port)"]
    return [
        "export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))",
        "while (exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT) 2>/dev/null; do",  # another process listens there
        "  MASTER_PORT=$((10000 + (MASTER_PORT - 10000 + 1009) % 20000))",
        "done",
    ]


def _after(launcher: SlurmLauncher, token: str) -> Sequence[str]:
    """Find out how the ranks ended, and put the job back into the queue if the run goes on.

    There is no scontrol in a container. The shell calls it if the program says so.
    """
    words = f'"$gnnexp_run" $gnnexp_code {launcher.max_requeues} {token}'
    program = f"{python_of(launcher)} -m {_AFTER_JOB} {words}"
    if launcher.container is None:
        return [program]
    if launcher.container == "pyxis":
        program = (
            f"srun --overlap --nodes=1 --ntasks=1 --nodelist=$SLURMD_NODENAME "
            f"{shlex.join(_container_of_step(launcher))} {program}"
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
