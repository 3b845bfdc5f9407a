"""SIGKILL on a SLURM cluster: a rank, a step's daemon, or the process that follows the job; then resume.

Needs a real SLURM of two nodes (`tests/slurm/cluster.py start`), found by `SLURM_CONF`; else it is counted as not run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from torture.campaigns.kills import recorded
from torture.setups import Setup
from torture.storm import DELIVERY_S, Command, Storm

_EPOCHS = 12
# 2 nodes x 2 ranks; slow enough to be caught in the middle, with the same losses.
_THERE = (
    "hardware=slurm_cpu",
    "hardware.nodes=2",
    "hardware.workers=2",
    "hardware.launcher.time_min=10",
    "hardware.launcher.signal_delay_s=20",
    "hardware.throttle=1e6",
)
_JOB_S = 300.0


def cluster_is_up() -> bool:
    """Whether a controller answers."""
    if shutil.which("scontrol") is None or not os.environ.get("SLURM_CONF"):
        return False
    done = subprocess.run(["scontrol", "ping"], check=False, capture_output=True, text=True, timeout=30)
    return done.returncode == 0 and "UP" in done.stdout


def run(storm: Storm) -> None:
    """One job, killed one to three times, and resumed until it has finished; compared with a run on this machine."""
    if not cluster_is_up():
        storm.numbers["slurm_not_run"] += 1
        return
    setup = Setup(storm.random.choice(["dgl", "gsplit", "p3"]), workers=4, epochs=_EPOCHS)
    storm.undisturbed(setup)
    storm.put_store()
    there = [line for line in setup.overrides if not line.startswith("hardware.workers")]
    command = storm.start("run", *there, *_THERE, "hydra.run.dir=run")
    left = storm.random.choice([1, 2, 3])
    for _ in range(8):
        while left > 0 and command.poll() is None:
            left -= _strike(storm, command)
        code = storm.done(command, _JOB_S)
        _until_the_job_has_ended(storm)
        if code == 0:
            break
        again = (
            ["resume", "run"]
            if (storm.folder / "run" / "job.json").exists()
            else ["run", *there, *_THERE, "hydra.run.dir=run"]
        )
        command = storm.start(*again)
    else:
        storm.problems.append(f"not finished: {storm.commands[-1].said()[-600:]}")
        return
    storm.expect_quiet(DELIVERY_S)
    if left_over := _processes(_job(storm)):
        storm.problems.append(f"processes of the job live on: {left_over}")
    storm.check_store([storm.folder / "run"])
    storm.compare(storm.folder / "run", setup)
    storm.numbers["kills_compared"] += storm.numbers["kills"]


def _strike(storm: Storm, command: Command) -> bool:
    """Kill a rank, a step's daemon, or the follower of the job, after some more epochs."""
    run_dir = storm.folder / "run"
    who, before, more = (
        storm.random.choice(["rank", "rank", "stepd", "command"]),
        recorded(run_dir),
        storm.random.randrange(5),
    )
    if not storm.until(lambda: recorded(run_dir) > before + more, command, _JOB_S):
        return False
    if who == "command":
        return storm.send(signal.SIGKILL, "command", command)
    found = _processes(_job(storm)) if who == "rank" else _daemons(_job(storm))
    if not found:
        return False
    with suppress(ProcessLookupError):
        os.kill(storm.random.choice(found), signal.SIGKILL)
        storm.history.append(f"SIGKILL {who}")
        storm.numbers["kills"] += 1
        storm.numbers[f"kills_slurm_{who}"] += 1
        return True
    return False


def _job(storm: Storm) -> str:
    file = storm.folder / "run" / "slurm.json"
    return str(json.loads(file.read_text())["job_id"]) if file.exists() else ""


def _processes(job: str) -> list[int]:
    """Ranks of the job: whoever has its number in the environment and runs the worker."""
    return [
        pid
        for pid, line, variables in _all()
        if b"gnnexp.worker" in line and f"SLURM_JOB_ID={job}".encode() in variables.split(b"\0")
    ]


def _daemons(job: str) -> list[int]:
    """Step daemons of the job."""
    return [pid for pid, line, _ in _all() if line.startswith(f"slurmstepd: [{job}.".encode())]


def _all() -> list[tuple[int, bytes, bytes]]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found.append((int(process.name), (process / "cmdline").read_bytes(), (process / "environ").read_bytes()))
    return found


def _until_the_job_has_ended(storm: Storm) -> None:
    """A job goes on without its follower: it ends by itself, then the run can be resumed."""
    job, end = _job(storm), time.monotonic() + _JOB_S
    while job and time.monotonic() < end:
        queue = subprocess.run(
            ["squeue", "-h", "-j", job, "-t", "PD,R,CG,CF,RQ"], check=False, capture_output=True, text=True
        )
        if not queue.stdout.strip():
            return
        time.sleep(0.5)
