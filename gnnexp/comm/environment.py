"""The rank of this process, read from the environment variables that the launcher sets."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

# SLURM's launcher sets this variable: SIGUSR2 then announces the end of the allocation.
STOP_VARIABLE = "GNNEXP_STOP_ON_SIGUSR2"


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
    """The environment of this process; without the launcher's variables, this process is the only rank."""
    return Environment(
        rank=int(variables.get("RANK", "0")),
        num_ranks=int(variables.get("WORLD_SIZE", "1")),
        local_rank=int(variables.get("LOCAL_RANK", "0")),
        local_ranks=int(variables.get("LOCAL_WORLD_SIZE", variables.get("WORLD_SIZE", "1"))),
        host=variables.get("GNNEXP_NODE") or socket.gethostname(),
    )
