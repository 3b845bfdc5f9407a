"""The first code of every task of a SLURM job: the task becomes the worker of its rank."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnexp.comm.environment import STOP_VARIABLE
from gnnexp.components.schema import HardwareConfig
from gnnexp.launchers.queue.preparation import is_ready
from gnnexp.launchers.queue.slurm_jobs import is_of_run
from gnnexp.launchers.variables import worker_variables


@dataclass(frozen=True)
class SlurmTask:
    """Called by submitit in every task; it does not return. The job script sets `MASTER_ADDR` and `MASTER_PORT`.

    Attributes:
        run_dir: the run directory, on a file system that all nodes share.
        hardware: fields of the hardware profile.
        cores: number of cores of each rank.
        token: token of the submission (`gnnexp.launchers.queue.slurm_jobs.Submission`); empty in jobs of earlier
            versions.
    """

    run_dir: str
    hardware: Mapping[str, Any]
    cores: int
    token: str = ""

    def __call__(self) -> None:
        """Replace this process by `python -m gnnexp.worker`, so that the task has its exit code and signals."""
        if not is_of_run(Path(self.run_dir), self.token):
            sys.exit(f"gnnexp: this job no longer works on {self.run_dir}: the run was resumed without it")
        if not is_ready(Path(self.run_dir)):
            sys.exit(f"gnnexp: the data of {self.run_dir} could not be prepared")
        rank, ranks = os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]
        # Profiles in jobs of earlier versions may have an emulated slow rank.
        hardware = HardwareConfig(**{name: value for name, value in self.hardware.items() if name != "straggler"})
        variables = worker_variables(hardware, self.cores * hardware.workers) | {
            "RANK": rank,
            "WORLD_SIZE": ranks,
            "LOCAL_RANK": os.environ["SLURM_LOCALID"],
            "LOCAL_WORLD_SIZE": str(hardware.workers),
            "GNNEXP_NODE": os.environ.get("SLURMD_NODENAME", ""),
            STOP_VARIABLE: "1",  # SIGUSR2 announces the end of the allocation
        }
        if hardware.interface is None:  # the variables of a local run name the loopback interface
            variables = {name: value for name, value in variables.items() if not name.endswith("_SOCKET_IFNAME")}
        sys.stdout.flush()
        log = os.open(Path(self.run_dir) / "logs" / f"rank_{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.execve(sys.executable, [sys.executable, "-m", "gnnexp.worker", self.run_dir], os.environ | variables)


@dataclass(frozen=True)
class Preparation:
    """Called by submitit in the job that prepares the data of runs; it does not return.

    Attributes:
        listed: file with the run directories.
        token: token of the submission.
    """

    listed: str
    token: str

    def __call__(self) -> None:
        """Replace this process by `python -m gnnexp.cli.running.prepare_job`, which has the exit code of the job."""
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "gnnexp.cli.running.prepare_job", self.listed, self.token])
