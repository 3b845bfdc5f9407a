"""Runs whose ranks another program starts: torchrun, mpirun, srun, Kubernetes, Ray. `gnnexp prepare` makes them."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from gnnexp.comm.environment import Environment
from gnnexp.components.schema import HardwareConfig
from gnnexp.files.private import make_private
from gnnexp.launchers.base import Launcher, Outcome
from gnnexp.launchers.living import is_recorded, living
from gnnexp.launchers.status import Death, judge, missed_at, read_statuses
from gnnexp.launchers.variables import EQUIPPED, worker_variables
from gnnexp.record.attempts import note, read_attempts
from gnnexp.record.records import load_job

# The event that a run was prepared, and that another program starts its ranks from now on.
PREPARED = "prepared"


class PreparedLauncher(Launcher):
    """Starts nothing. The run directory is complete, and the user starts the ranks on any machines."""

    def node_bytes(self) -> int | None:
        """Unknown: the ranks run on other machines."""
        return None

    def launch(self, run_dir: Path, hardware: HardwareConfig) -> Outcome:
        """Note that the run is prepared, and say how its ranks are started."""
        return Outcome(0, "submitted", message=hand_over(run_dir, hardware))


def hand_over(run_dir: Path, hardware: HardwareConfig) -> str:
    """Note that another program starts the ranks from now on. Returns what the user can do, as text."""
    make_private(run_dir, here=hardware.nodes == 1)
    note(run_dir, PREPARED, ranks=hardware.num_ranks)
    where = "" if hardware.nodes == 1 else f" on each of {hardware.nodes} nodes"
    return (
        f"prepared; start its ranks{where} with: {start_command(run_dir, hardware)}\n"
        f"then: gnnexp finalize {shlex.quote(str(run_dir))}"
    )


def start_command(run_dir: Path, hardware: HardwareConfig) -> str:
    """The shell command of torchrun; with several nodes, each node sets the variables that the command names."""
    meeting = (
        ["--standalone"]
        if hardware.nodes == 1
        else [
            "--nnodes",
            str(hardware.nodes),
            "--node-rank",
            "$NODE_RANK",
            "--master-addr",
            "$MASTER_ADDR",
            "--master-port",
            "$MASTER_PORT",
        ]
    )
    return " ".join(
        [
            "torchrun",
            *meeting,
            "--nproc-per-node",
            str(hardware.workers),
            "-m",
            "gnnexp.worker",
            shlex.quote(str(run_dir.resolve())),
        ]
    )


def is_prepared(run_dir: Path) -> bool:
    """Whether another program starts, or started, the ranks of the run: `gnnexp` itself has not done so since."""
    events = [line["event"] for line in read_attempts(run_dir) if line["event"] in ("start", PREPARED)]
    return events[-1:] == [PREPARED]


def equip(run_dir: Path, environment: Environment) -> None:
    """Start this process, a rank that gnnexp did not start, again with the variables of a worker, unless it has them.

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


def end_of_ranks(run_dir: Path, num_ranks: int) -> Outcome:
    """The outcome of a run of which no rank is alive and at least one has started."""
    statuses = read_statuses(run_dir)
    states = {status.rank: status.state for status in statuses}
    if len(states) == num_ranks and set(states.values()) == {"finished"}:
        return Outcome(0, "finished")
    if "stopped" in states.values() and "failed" not in states.values():
        said = "the ranks were stopped"
        return Outcome(1, "failed", said, said, "interrupted")
    deaths = [Death(status.rank, None, missed_at(status)) for status in statuses if status.state == "running"]
    missing = [Death(rank, None, math.inf, started=False) for rank in range(num_ranks) if rank not in states]
    return judge(run_dir, [*deaths, *missing])


def standing(run_dir: Path) -> str:
    """The state of a prepared run in words; empty if its end is recorded."""
    statuses = read_statuses(run_dir)
    if living(statuses):
        return "running"
    if is_recorded(run_dir):
        return ""
    return f"ended (gnnexp finalize {run_dir})" if statuses else "prepared (its ranks have not started)"
