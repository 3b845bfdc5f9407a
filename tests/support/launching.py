"""What tests of launchers share: ranks that only behave (`tests/launchers/stub_worker.py`)."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

HERE = Path(__file__).parents[1] / "launchers"


def prepare(run_dir: Path, behaviours: list[str]) -> None:
    (run_dir / "behaviour.json").write_text(json.dumps(behaviours))


def pids(run_dir: Path) -> list[int]:
    # A file is empty for a moment before its number is in it.
    return [int(text) for file in run_dir.glob("pid_*") if (text := file.read_text())]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # not by `pid_exists` before: it may end between the two
        return True


def wait_until(holds: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return False


def starters() -> list[psutil.Process]:
    """Children of this process that start ranks, or have done so and were never waited for."""
    return [child for child in psutil.Process().children() if "starter" in _title(child)]


def _title(process: psutil.Process) -> str:
    """Its command line, or the name that is left of an ended one."""
    try:
        return " ".join(process.cmdline())
    except psutil.ZombieProcess:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def start_driver(run_dir: Path, behaviours: list[str]) -> subprocess.Popen[str]:
    prepare(run_dir, behaviours)
    command = [sys.executable, str(HERE / "launch_driver.py"), str(run_dir), str(len(behaviours))]
    driver = subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": str(HERE)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    running = wait_until(lambda: len(list((run_dir / "status").glob("rank_*.json"))) == len(behaviours), 60)
    assert running, "the workers did not start"
    return driver
