"""What the cluster has, with which a job's parameters are compared before anything is submitted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gnnexp.components.signature import unknown
from gnnexp.errors import Problem, RunError
from gnnexp.launchers.queue.commands import run_in_time
from gnnexp.launchers.queue.words import gpus_in, minutes_of

KEY = "hardware.launcher."


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


def wanted_partitions(named: str, partitions: Sequence[SlurmPartition]) -> tuple[list[Problem], list[SlurmPartition]]:
    """The partitions that the job names, of which SLURM takes one, or the default one; and problems with the names."""
    by_name = {partition.name: partition for partition in partitions}
    names = [name.strip() for name in named.split(",") if name.strip()]
    if wrong := [name for name in names if name not in by_name]:
        return [unknown(KEY + "partition", named, name, by_name, KEY + "partition=") for name in wrong], []
    wanted = [by_name[name] for name in names] or [candidate for candidate in partitions if candidate.default]
    if wanted:
        return [], wanted
    others = ", ".join(sorted(by_name))
    return [
        Problem(
            KEY + "partition",
            None,
            f"the cluster has no default: one of {others}",
            f"{KEY}partition={others.split(',')[0]}",
        )
    ], []


def sinfo() -> str:
    """What sinfo prints, for `read_partitions`.

    Raises:
        RunError: the cluster does not answer.
    """
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
