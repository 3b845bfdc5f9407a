"""Runs whose ranks another program starts: torchrun, mpirun, srun, Kubernetes, Ray. `gnnexp prepare` makes them."""

from __future__ import annotations

import shlex
from pathlib import Path

from gnnexp.components.schema import HardwareConfig
from gnnexp.files.private import make_private
from gnnexp.launchers.base import Launcher, Outcome
from gnnexp.record.attempts import note, read_attempts

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
