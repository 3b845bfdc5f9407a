"""What every rank executes: `python -m gnnexp.worker RUN_DIR`, started by any launcher.

Reads `RUN_DIR/job.json`, trains, and says how it went in `RUN_DIR/status/rank_<r>.json`. Nothing here knows who started
it: the environment says which rank this is (torchrun's variables), the run directory holds everything else.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.comm.environment import Environment, read_environment
from gnnexp.errors import GnnexpError

if TYPE_CHECKING:  # heavy: torch is imported only after this process is tied to its launcher
    from gnnexp.job import Job
    from gnnexp.paradigms.base import Paradigm

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run one rank; returns the exit code: 0 finished, 2 user's mistake, 1 failed."""
    die_with_parent()
    run_dir, environment = Path(sys.argv[1]), read_environment()
    _status(run_dir, environment, "running")
    job: list[Job] = []
    try:
        _run(run_dir, environment, job)
    except BaseException as error:
        phase = job[0].timer.failed_in or "" if job else "start"
        code = error.exit_code if isinstance(error, GnnexpError) else 1
        _status(
            run_dir, environment, "failed", phase=phase, reason=f"{type(error).__name__}: {error}",
            traceback="" if isinstance(error, GnnexpError) else traceback.format_exc(), exit_code=code,
        )
        # A rank whose peers wait in a collective would hang in the process group's clean-up: leave at once.
        sys.stderr.flush()
        os._exit(code)
    _status(run_dir, environment, "finished", exit_code=0)
    return 0


def die_with_parent() -> None:
    """Ask Linux to kill this process when its launcher dies: nothing is left behind by a SIGKILLed launcher."""
    launcher = int(os.environ.get("GNNEXP_LAUNCHER_PID", os.getppid()))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it died before we asked
        os._exit(1)


def _run(run_dir: Path, environment: Environment, started: list[Job]) -> None:
    from gnnexp.assemble import Artifacts, assemble
    from gnnexp.records import EpochLog
    from gnnexp.train import train

    request = json.loads((run_dir / "job.json").read_text())
    partition, presample = (None if request.get(name) is None else Path(request[name])
                            for name in ("partition", "presample"))
    artifacts = Artifacts(Path(request["graph"]), partition, presample)
    job, paradigm = assemble(request["config"], artifacts, run_dir, environment)
    started.append(job)
    train(job, paradigm, EpochLog(run_dir, environment.rank))
    if environment.rank == 0:
        write_result(run_dir, request, job, paradigm)
    job.comm.close()


def write_result(run_dir: Path, request: Mapping[str, Any], job: Job, paradigm: Paradigm[Any]) -> None:
    """`result.json` of a finished run."""
    from gnnexp.records import RESULT_FILE, read_epochs, summarize, write_json

    epochs = read_epochs(run_dir)
    write_json(
        run_dir / RESULT_FILE,
        {
            "schema": 1,
            "config": request["config"],
            "provenance": {**request.get("provenance", {}), "chosen": {**job.facts, "draws": _draws(job)}},
            "partition": request.get("partition"),
            "presampled": request.get("presampled", []),
            "paradigm": {"exact": paradigm.exact, "approximates": paradigm.approximates},
            "notes": list(job.graph.notes),
            "epochs": epochs,
            "summary": summarize(epochs, job.task.primary_metric),
            "status": "finished",
            "reason": "",
        },
    )


def _draws(job: Job) -> str:
    """Whether the global batch of one worker is that of N."""
    if not job.sampler.exact_key:
        return "by the sampler's own generator: another number of ranks draws other neighbours"
    if job.sampler.key == "micro":
        return "by seed, epoch, batch, rank, hop and vertex: another number of ranks draws other neighbours"
    return "by seed, epoch, batch, hop and vertex: the same for any number of ranks"


def _status(run_dir: Path, environment: Environment, state: str, **more: object) -> None:
    from gnnexp.records import write_json

    write_json(
        run_dir / "status" / f"rank_{environment.rank}.json",
        {"rank": environment.rank, "host": environment.host, "pid": os.getpid(), "state": state, "time": time.time(),
         **more},
    )


if __name__ == "__main__":
    sys.exit(main())
