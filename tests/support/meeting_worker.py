"""Ranks that only meet. `behaviour.json` says what each of them does before it makes a group."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from gnnexp.comm.communicator import Communicator, connect
from gnnexp.comm.environment import Environment
from gnnexp.measure.phases import PhaseTimer
from gnnexp.record.heartbeat import Heartbeat
from gnnexp.training.rank import as_rank

HOST = torch.device("cpu")


def preload() -> None:
    """Nothing more than the imports above."""


def main() -> int:
    return as_rank(_meet)


def _meet(run_dir: Path, environment: Environment, started: list[PhaseTimer], heartbeat: Heartbeat) -> str:
    request, timer = json.loads((run_dir / "behaviour.json").read_text()), PhaseTimer()
    started.append(timer)
    heartbeat.watch(timer)
    behaviour = request["behaviours"][environment.rank]
    timeout_s = 600.0 if behaviour == "wait" else request["timeout_s"]
    with timer.activity.exchange():
        meeting = connect(environment, HOST, timeout_s, run_dir)
    comm = Communicator(environment, timer, HOST, timeout_s=timeout_s, meeting=meeting)
    comm.barrier()
    if behaviour == "sleep":
        time.sleep(600)
    if behaviour == "wait":
        comm.barrier()  # for a rank that makes a group in the meantime
    comm.clone_for_thread()
    return ""


if __name__ == "__main__":
    sys.exit(main())
