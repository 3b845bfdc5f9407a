"""The environment variables of a rank that gnnexp did not start: the same as those of its own launchers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from gnnexp.comm.environment import Environment
from gnnexp.components.schema import HardwareConfig
from gnnexp.launchers.variables import EQUIPPED, worker_variables
from gnnexp.record.records import load_job


def equip(run_dir: Path, environment: Environment) -> None:
    """Start this process again with the variables of a worker, unless it has them.

    Libraries read them when they are loaded, and the C library when the process starts. Without them, seconds of two
    runs could not be compared. torchrun also sets OMP_NUM_THREADS=1.
    """
    if EQUIPPED not in os.environ:
        _start_again(run_dir, load_job(run_dir)["config"]["hardware"], environment)


def _start_again(run_dir: Path, fields: Mapping[str, Any], environment: Environment) -> NoReturn:
    names = ("threads", "allocator", "interface")
    hardware = HardwareConfig(
        workers=environment.local_ranks, **{name: fields[name] for name in names if name in fields}
    )
    variables = worker_variables(hardware, len(os.sched_getaffinity(0)))
    if hardware.interface is None and environment.local_ranks < environment.num_ranks:
        variables = {name: value for name, value in variables.items() if not name.endswith("_SOCKET_IFNAME")}
    os.execve(sys.executable, [sys.executable, "-m", "gnnexp.worker", str(run_dir)], os.environ | variables)
