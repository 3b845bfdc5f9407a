"""The rank of this process, read from the environment variables of whatever started it."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from gnnexp.errors import ConfigError, Problem

# SLURM's launcher sets this variable: SIGUSR2 then announces the end of the allocation.
STOP_VARIABLE = "GNNEXP_STOP_ON_SIGUSR2"
_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
# Variables of other starters with the same meaning. srun sets those of the step: a batch script has no step of its own.
_OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
_SRUN = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")


@dataclass(frozen=True)
class Environment:
    """A process's place in the run, in the terms of torchrun.

    Attributes:
        rank: 0..num_ranks-1.
        num_ranks: processes in the run.
        local_rank: rank on this machine.
        local_ranks: ranks on this machine.
        host: this machine's name.
    """

    rank: int = 0
    num_ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1
    host: str = ""


def read_environment(variables: Mapping[str, str] = os.environ) -> Environment:
    """The environment of this process; without variables of any starter, this process is the only rank.

    The variables are torchrun's, else those of Open MPI's mpirun or of srun. None is guessed: a rank that takes all
    ranks for ranks of its machine would get too few cores and the wrong GPU.

    Raises:
        ConfigError: some variables are missing, or their values fit no rank.
    """
    values = _found(variables)
    missing = [name for name in _NAMES if values and not values.get(name)]
    if missing:
        shown = ", ".join(f"{name}={value}" for name, value in values.items() if value)
        raise ConfigError(
            [
                Problem(
                    name,
                    None,
                    f"is not set, although {shown}: a rank needs {', '.join(_NAMES)}",
                    f"set {name} for every rank, or start the ranks with torchrun",
                )
                for name in missing
            ]
        )
    rank, num_ranks, local_rank, local_ranks = (
        _number(name, values.get(name, default)) for name, default in zip(_NAMES, ("0", "1", "0", "1"), strict=True)
    )
    if not (rank < num_ranks and local_rank < local_ranks <= num_ranks):
        shown = ", ".join(f"{name}={values[name]}" for name in _NAMES)
        raise ConfigError(
            Problem(
                "RANK",
                rank,
                f"{shown}: needs RANK < WORLD_SIZE and LOCAL_RANK < LOCAL_WORLD_SIZE <= WORLD_SIZE",
                "start the ranks with torchrun, or correct these variables",
            )
        )
    return Environment(rank, num_ranks, local_rank, local_ranks, variables.get("GNNEXP_NODE") or socket.gethostname())


def rendezvous_address(variables: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Host and port at which the ranks meet.

    Raises:
        ConfigError: MASTER_ADDR or MASTER_PORT is missing or is no port.
    """
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not variables.get(name)]
    ConfigError.raise_all(
        [
            Problem(
                name,
                None,
                "is not set: the ranks cannot meet",
                f"set {name} to the host of rank 0 and a free port of it, the same for every rank",
            )
            for name in missing
        ]
    )
    return variables["MASTER_ADDR"], _number("MASTER_PORT", variables["MASTER_PORT"])


def _found(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables by torchrun's names; empty if no starter set any."""
    if "RANK" in variables or "WORLD_SIZE" in variables:
        return {name: variables.get(name, "") for name in _NAMES}
    if _OPEN_MPI[0] in variables:
        return {name: variables.get(theirs, "") for name, theirs in zip(_NAMES, _OPEN_MPI, strict=True)}
    if _SRUN[1] in variables:
        return {
            **{name: variables.get(theirs, "") for name, theirs in zip(_NAMES, _SRUN, strict=False)},
            _NAMES[3]: _tasks_here(variables),
        }
    return {}


def _tasks_here(variables: Mapping[str, str]) -> str:
    """The number of tasks on this node: the node's entry of a list such as `2(x3),1`; empty if it is not there."""
    listed = re.findall(r"(\d+)(?:\(x(\d+)\))?", variables.get("SLURM_STEP_TASKS_PER_NODE", ""))
    by_node = [tasks for tasks, times in listed for _ in range(int(times or 1))]
    node = variables.get("SLURM_NODEID", "0")
    return by_node[int(node)] if node.isdecimal() and int(node) < len(by_node) else ""


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError(Problem(name, text[:40], "must be a number, 0 or more", f"correct {name}"))
    return int(text)
