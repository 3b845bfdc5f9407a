"""What every task of a SLURM job does first: it becomes the worker of its rank."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnexp.comm.environment import STOP_VARIABLE
from gnnexp.experiment.schema import HardwareConfig
from gnnexp.launchers.queue.slurm_jobs import is_of_run
from gnnexp.launchers.variables import worker_variables


@dataclass(frozen=True)
class Task:
    """Called by submitit in every task; it does not return. `MASTER_ADDR` and `MASTER_PORT` are the job script's.

    Attributes:
        run_dir: the run, on a file system that all nodes share.
        hardware: fields of the hardware profile.
        cores: of each rank.
        token: of the submission (`gnnexp.launchers.queue.slurm_jobs.Submission`); empty in jobs of earlier versions.
    """

    run_dir: str
    hardware: Mapping[str, Any]
    cores: int
    token: str = ""

    def __call__(self) -> None:
        """Replace this process by `python -m gnnexp.worker`: its exit code and its signals are the worker's own."""
        if not is_of_run(Path(self.run_dir), self.token):
            sys.exit(f"gnnexp: {self.run_dir} is no longer this job's: it was resumed without it")
        rank, ranks = os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]
        # Jobs of earlier versions have an emulated slow rank.
        hardware = HardwareConfig(**{name: value for name, value in self.hardware.items() if name != "straggler"})
        variables = worker_variables(hardware, self.cores * hardware.workers) | {
            "RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": os.environ["SLURM_LOCALID"],
            "LOCAL_WORLD_SIZE": str(hardware.workers), "GNNEXP_NODE": os.environ.get("SLURMD_NODENAME", ""),
            STOP_VARIABLE: "1",  # SIGUSR2 announces the end of the allocation
        }
        if hardware.interface is None:  # those of a local run name the loopback
            variables = {name: value for name, value in variables.items() if not name.endswith("_SOCKET_IFNAME")}
        sys.stdout.flush()
        log = os.open(Path(self.run_dir) / "logs" / f"rank_{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.execve(sys.executable, [sys.executable, "-m", "gnnexp.worker", self.run_dir], os.environ | variables)
