"""The environment variables of an external command (docs/howto/external.md has the table)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gnnexp.comm.environment import Environment
from gnnexp.paradigms.external.files import search_path

# The place of a rank. A command that starts its own processes gets none of these variables.
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_PARTITION = "GNNEXP_PARTITION"


@dataclass(frozen=True)
class Handed:
    """What a command gets, the same on every rank except `device`.

    Attributes:
        scratch: folder of the command below the run directory.
        graph: folder of the prepared graph.
        partition: folder of the partition; None if the command does not ask for one.
        config: file of the resolved configuration.
        epochs: file to which rank 0 appends a line for each epoch.
        seed: seed of the run.
        device: `cpu`, or `cuda:0`.
        threads: threads of a rank.
        resumed: whether the command should continue from its own checkpoints.
        num_ranks: number of ranks.
        port: port at which the ranks of the command can meet.
    """

    scratch: Path
    graph: Path
    partition: Path | None
    config: Path
    epochs: Path
    seed: int
    device: str
    threads: int
    resumed: bool
    num_ranks: int
    port: int


def variables_of(
    inherited: Mapping[str, str], handed: Handed, environment: Environment, *, alone: bool
) -> dict[str, str]:
    """The environment of a command.

    Args:
        inherited: the environment of its rank.
        handed: what the command gets.
        environment: place of this rank. Only rank 0 reports epochs; lines of other ranks go to the null device.
        alone: whether the command is started once for the run.
    """
    variables = {name: value for name, value in inherited.items() if name not in (*_TORCHRUN, _PARTITION)}
    variables |= {
        "PATH": search_path(),
        "GNNEXP_SCRATCH": str(handed.scratch),
        "GNNEXP_GRAPH": str(handed.graph),
        "GNNEXP_CONFIG": str(handed.config),
        "GNNEXP_EPOCHS": os.devnull if environment.rank else str(handed.epochs),
        "GNNEXP_SEED": str(handed.seed),
        "GNNEXP_DEVICE": handed.device,
        "GNNEXP_THREADS": str(handed.threads),
        "GNNEXP_RANKS": str(handed.num_ranks),
        "GNNEXP_RESUME": str(int(handed.resumed)),
    }
    if handed.partition is not None:
        variables[_PARTITION] = str(handed.partition)
    if alone:
        return variables
    return variables | {
        "RANK": str(environment.rank),
        "WORLD_SIZE": str(environment.num_ranks),
        "LOCAL_RANK": str(environment.local_rank),
        "LOCAL_WORLD_SIZE": str(environment.local_ranks),
        "MASTER_ADDR": inherited.get("MASTER_ADDR", "127.0.0.1"),
        "MASTER_PORT": str(handed.port),
    }
