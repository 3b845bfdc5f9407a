"""The watchdog ends every process that it was told of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from gnnexp.launchers.watch import Watchdog


def test_a_rank_that_was_frozen_right_after_its_fork_is_killed(tmp_path: Path) -> None:
    """It does not lead a process group of its own yet, so that a signal to its group reaches nobody."""
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    assert os.getpgid(rank.pid) != rank.pid
    os.kill(rank.pid, signal.SIGSTOP)
    (tmp_path / "status").mkdir()
    watchdog = Watchdog(tmp_path, {0: rank.pid}, 1, timeout_s=0.2)
    watchdog.start()
    try:
        assert rank.wait(30) == -signal.SIGKILL and watchdog.killed == {0}
    finally:
        watchdog.close()
        rank.kill()
        rank.wait()


def test_closing_ends_it_too(tmp_path: Path) -> None:
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    os.kill(rank.pid, signal.SIGSTOP)
    watchdog = Watchdog(tmp_path, {0: rank.pid}, 1, timeout_s=600.0)
    watchdog.start()
    watchdog.close()
    assert not psutil.pid_exists(rank.pid)
    rank.wait(5)
