"""Compares a job's parameters with what the cluster has, before anything is submitted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnexp.errors import Problem, RunError
from gnnexp.experiment.schema import HardwareConfig
from gnnexp.experiment.signature import unknown
from gnnexp.launchers.queue.commands import plain, run

if TYPE_CHECKING:
    from gnnexp.launchers.slurm import SlurmLauncher

_KEY = "hardware.launcher."


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


def check_against_cluster(launcher: SlurmLauncher, hardware: HardwareConfig) -> list[Problem]:
    """Problems for all parameters that no node of the partition can provide."""
    try:
        partitions = read_partitions(_sinfo())
    except (RunError, ValueError) as error:
        return [Problem("hardware", "slurm", f"the cluster does not answer: {plain(str(error))}", "look at `sinfo`")]
    by_name = {partition.name: partition for partition in partitions}
    if launcher.partition is not None and launcher.partition not in by_name:
        return [unknown(_KEY + "partition", launcher.partition, launcher.partition, by_name, _KEY + "partition=")]
    wanted = launcher.partition or next((one.name for one in partitions if one.default), None)
    if wanted is None:
        names = ", ".join(sorted(by_name))
        return [Problem(_KEY + "partition", None, f"the cluster has no default: one of {names}",
                        f"{_KEY}partition={names.split(',')[0]}")]
    return _check_fit(launcher, hardware, by_name[wanted])


def _check_fit(launcher: SlurmLauncher, hardware: HardwareConfig, there: SlurmPartition) -> list[Problem]:
    cpus, gpus = hardware.workers * launcher.cpus_per_task, hardware.workers * launcher.gpus_per_task
    limit = there.limit_min
    rules = [
        (_KEY + "time_min", launcher.time_min, limit is None or launcher.time_min <= limit, f"at most {limit} minutes",
         f"{_KEY}time_min={limit}"),
        ("hardware.nodes", hardware.nodes, hardware.nodes <= there.nodes, f"has {there.nodes} nodes",
         f"hardware.nodes={there.nodes}"),
        (_KEY + "cpus_per_task", launcher.cpus_per_task, cpus <= there.cpus,
         f"{hardware.workers} tasks per node need {cpus} cores, its nodes have {there.cpus}",
         f"{_KEY}cpus_per_task={max(1, there.cpus // hardware.workers)}, or fewer hardware.workers"),
        (_KEY + "gpus_per_task", launcher.gpus_per_task, gpus <= there.gpus,
         f"{hardware.workers} tasks per node need {gpus} GPUs, its nodes have {there.gpus}",
         f"{_KEY}gpus_per_task={there.gpus // hardware.workers}, or fewer hardware.workers"),
        (_KEY + "mem_gb", launcher.mem_gb, launcher.mem_gb is None or launcher.mem_gb * 1000 <= there.mem_mb * 1.024,
         f"its nodes have {there.mem_mb / 1024:.1f} GB", f"{_KEY}mem_gb={there.mem_mb // 1024}"),
    ]
    problems = [Problem(key, value, f"partition {there.name}: {allowed}", fix)
                for key, value, holds, allowed, fix in rules if not holds]
    if hardware.device == "cuda" and launcher.gpus_per_task == 0:
        problems.append(Problem(_KEY + "gpus_per_task", 0, "hardware.device=cuda needs a GPU for each rank",
                                f"{_KEY}gpus_per_task=1"))
    return problems


def _sinfo() -> str:
    reply = run(["sinfo", "-h", "-a", "-o", "%P|%l|%D|%c|%m|%G"], timeout_s=30.0)
    if reply.failure:
        raise RunError(reply.failure)
    return reply.text


def read_partitions(text: str) -> list[SlurmPartition]:
    """Partitions from `sinfo -o "%P|%l|%D|%c|%m|%G"`; lines about different kinds of nodes are merged."""
    found: dict[str, SlurmPartition] = {}
    for line in text.splitlines():
        name, limit, nodes, cpus, mem, gres = line.split("|")
        one = SlurmPartition(name.rstrip("*"), name.endswith("*"), _minutes(limit), _number(nodes), _number(cpus),
                        _number(mem), sum(_number(n) for n in re.findall(r"gpu(?::[A-Za-z][\w.-]*)?:(\d+)", gres)))
        old = found.get(one.name)
        found[one.name] = one if old is None else SlurmPartition(
            one.name, one.default, one.limit_min, old.nodes + one.nodes, max(old.cpus, one.cpus),
            max(old.mem_mb, one.mem_mb), max(old.gpus, one.gpus))
    return list(found.values())


def _number(text: str) -> int:
    """A number of sinfo; `64+` means at least 64.

    Raises:
        ValueError: the text is not such a number.
    """
    if re.fullmatch(r"\d{1,15}\+?", text, re.ASCII) is None:
        raise ValueError(f"sinfo printed {text[:40]!r} in place of a number")
    return int(text.rstrip("+"))


def _minutes(text: str) -> int | None:
    """Minutes of `1-00:30:00` or `30:00`; None for `infinite`."""
    if text in ("infinite", "UNLIMITED", "n/a"):
        return None
    days, _, clock = text.rpartition("-")
    parts = [_number(part) for part in clock.split(":")]
    hours, minutes = (parts[0], parts[1]) if len(parts) == 3 else (0, parts[0])
    return (_number(days or "0") * 24 + hours) * 60 + minutes
