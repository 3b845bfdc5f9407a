"""Compares a job's parameters with what the cluster has, before anything is submitted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnexp.components.schema import HardwareConfig
from gnnexp.components.signature import unknown
from gnnexp.errors import Problem, RunError
from gnnexp.launchers.queue.commands import plain_line, run_in_time
from gnnexp.launchers.queue.words import gpus_by_type, gpus_in, megabytes_of, minutes_of

if TYPE_CHECKING:
    from gnnexp.launchers.slurm import SlurmLauncher

_KEY = "hardware.launcher."
# Parameters of sbatch with which a job does not see what sinfo lists for a partition, or may exceed its limits.
_ELSEWHERE = ("clusters", "cluster_constraint", "reservation")


@dataclass(frozen=True)
class SlurmPartition:
    """A partition of the cluster, as SLURM uses the word.

    Attributes:
        name: name of the partition.
        default: whether it is used if the job names none.
        limit_min: longest time of a job in minutes, None without a limit.
        nodes: number of its nodes.
        cpus, mem_mb, gpus: resources of its largest node.
    """

    name: str
    default: bool
    limit_min: int | None
    nodes: int
    cpus: int
    mem_mb: int
    gpus: int


@dataclass(frozen=True)
class Fit:
    """Whether a job fits the cluster.

    Attributes:
        problems: requests that the cluster certainly does not accept.
        doubts: requests that look wrong, although sinfo cannot know.
    """

    problems: tuple[Problem, ...] = ()
    doubts: tuple[Problem, ...] = ()


def fit_of(launcher: SlurmLauncher, hardware: HardwareConfig) -> Fit:
    """Compare all parameters with the nodes of the job's partitions; the job fits if it fits one of them."""
    try:
        partitions = read_partitions(_sinfo())
    except (RunError, ValueError) as error:
        return Fit(
            (Problem("hardware", "slurm", f"the cluster does not answer: {plain_line(str(error))}", "look at `sinfo`"),)
        )
    parameters = plain_parameters(launcher)
    problems, wanted = _wanted(str(parameters.get("partition") or launcher.partition or ""), partitions)
    if not problems:
        problems = min((_check_fit(launcher, hardware, partition) for partition in wanted), key=len)
    unsure = any(name in parameters for name in _ELSEWHERE)
    doubtful = [problem for problem in problems if unsure or _is_doubtful(problem, launcher)]
    return Fit(tuple(problem for problem in problems if problem not in doubtful), tuple(doubtful))


def check_against_cluster(launcher: SlurmLauncher, hardware: HardwareConfig) -> list[Problem]:
    """Problems for all parameters that no node of the partitions can provide."""
    return [*fit_of(launcher, hardware).problems]


def _is_doubtful(problem: Problem, launcher: SlurmLauncher) -> bool:
    """Whether sinfo cannot know: a quality of service may have another time limit than the partition."""
    return problem.key == _KEY + "time_min" and launcher.qos is not None


def plain_parameters(launcher: SlurmLauncher) -> Mapping[str, object]:
    """The further parameters of sbatch, with underscores in their names."""
    return {str(name).replace("-", "_"): value for name, value in launcher.parameters.items()}


def _wanted(named: str, partitions: Sequence[SlurmPartition]) -> tuple[list[Problem], list[SlurmPartition]]:
    """The partitions that the job names, of which SLURM takes one, or the default one; and problems with the names."""
    by_name = {partition.name: partition for partition in partitions}
    names = [name.strip() for name in named.split(",") if name.strip()]
    if wrong := [name for name in names if name not in by_name]:
        return [unknown(_KEY + "partition", named, name, by_name, _KEY + "partition=") for name in wrong], []
    wanted = [by_name[name] for name in names] or [candidate for candidate in partitions if candidate.default]
    if wanted:
        return [], wanted
    others = ", ".join(sorted(by_name))
    return [
        Problem(
            _KEY + "partition",
            None,
            f"the cluster has no default: one of {others}",
            f"{_KEY}partition={others.split(',')[0]}",
        )
    ], []


def gpus_of_node(launcher: SlurmLauncher, hardware: HardwareConfig) -> int:
    """The GPUs that the job requests on each node, by its own options or by further parameters of sbatch."""
    asked, workers = plain_parameters(launcher), hardware.workers
    found = [launcher.gpus_per_task * workers, gpus_in(str(asked.get("gres", "")))]
    for name, times in (("gpus_per_node", 1.0), ("gpus_per_task", workers), ("gpus", 1.0 / hardware.nodes)):
        found.append(round((gpus_by_type(str(asked[name])) or 0) * times) if name in asked else 0)
    return max(found)


def _check_fit(launcher: SlurmLauncher, hardware: HardwareConfig, partition: SlurmPartition) -> list[Problem]:
    cpus, gpus = hardware.workers * launcher.cpus_per_task, gpus_of_node(launcher, hardware)
    limit, minutes = partition.limit_min, minutes_of(launcher.time_min) or 0.0
    memory = None if launcher.mem_gb is None else megabytes_of(launcher.mem_gb)
    knows_memory = partition.mem_mb > 1  # RealMemory=1 is SLURM's default: nobody has set it
    rules = [
        (
            _KEY + "time_min",
            launcher.time_min,
            limit is None or minutes <= limit,
            f"at most {limit} minutes",
            f"{_KEY}time_min={limit}",
        ),
        (
            "hardware.nodes",
            hardware.nodes,
            hardware.nodes <= partition.nodes,
            f"has {partition.nodes} nodes",
            f"hardware.nodes={partition.nodes}",
        ),
        (
            _KEY + "cpus_per_task",
            launcher.cpus_per_task,
            cpus <= partition.cpus,
            f"{hardware.workers} tasks per node need {cpus} cores, its nodes have {partition.cpus}",
            f"{_KEY}cpus_per_task={max(1, partition.cpus // hardware.workers)}, or fewer hardware.workers",
        ),
        (
            _KEY + "gpus_per_task",
            launcher.gpus_per_task,
            gpus <= partition.gpus,
            f"{hardware.workers} tasks per node need {gpus} GPUs, its nodes have {partition.gpus}",
            f"{_KEY}gpus_per_task={partition.gpus // hardware.workers}, or fewer hardware.workers",
        ),
        (
            _KEY + "mem_gb",
            launcher.mem_gb,
            memory is None or not knows_memory or memory <= partition.mem_mb,
            f"its nodes have {partition.mem_mb / 1024:.1f} GB",
            f"{_KEY}mem_gb={partition.mem_mb // 1024}",
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
                _KEY + "gpus_per_task",
                0,
                "hardware.device=cuda needs a GPU for each rank",
                f"{_KEY}gpus_per_task=1, or GPUs in {_KEY}parameters",
            )
        )
    return problems


def _sinfo() -> str:
    reply = run_in_time(["sinfo", "-h", "-a", "-o", "%P|%l|%D|%c|%m|%G"], timeout_s=30.0)
    if reply.failure:
        raise RunError(reply.failure)
    return reply.text


def read_partitions(text: str) -> list[SlurmPartition]:
    """Partitions from `sinfo -o "%P|%l|%D|%c|%m|%G"`; lines about different kinds of nodes are merged."""
    by_name: dict[str, SlurmPartition] = {}
    for line in text.splitlines():
        name, limit, nodes, cpus, mem, gres = line.split("|")
        partition = SlurmPartition(
            name.rstrip("*"),
            name.endswith("*"),
            _limit(limit),
            _number(nodes),
            _number(cpus),
            _number(mem),
            gpus_in(gres),
        )
        old = by_name.get(partition.name)
        by_name[partition.name] = (
            partition
            if old is None
            else SlurmPartition(
                partition.name,
                partition.default,
                partition.limit_min,
                old.nodes + partition.nodes,
                max(old.cpus, partition.cpus),
                max(old.mem_mb, partition.mem_mb),
                max(old.gpus, partition.gpus),
            )
        )
    return list(by_name.values())


def _number(text: str) -> int:
    """A number of sinfo; `64+` means at least 64.

    Raises:
        ValueError: the text is not such a number.
    """
    if re.fullmatch(r"\d{1,15}\+?", text, re.ASCII) is None:
        raise ValueError(f"sinfo printed {text[:40]!r} in place of a number")
    return int(text.rstrip("+"))


def _limit(text: str) -> int | None:
    """Minutes of `1-00:30:00` or `30:00`; None for `infinite`.

    Raises:
        ValueError: the text is no time.
    """
    if text in ("infinite", "UNLIMITED", "n/a"):
        return None
    if (minutes := minutes_of(text)) is None:
        raise ValueError(f"sinfo printed {text[:40]!r} in place of a time")
    return int(minutes)
