"""What tests of launchers share: ranks that only behave (`tests/launchers/stub_worker.py`)."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import psutil

HERE = Path(__file__).parents[1] / "launchers"


def prepare(run_dir: Path, behaviours: list[str]) -> None:
    (run_dir / "behaviour.json").write_text(json.dumps(behaviours))


def pids(run_dir: Path) -> list[int]:
    return [int(file.read_text()) for file in run_dir.glob("pid_*")]


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
