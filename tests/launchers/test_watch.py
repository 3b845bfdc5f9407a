"""The watchdog ends every process whose number it was given."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from launching import wait_until

from gnnexp.files.disk import HeldFolder
from gnnexp.launchers.status import Status, read_statuses
from gnnexp.launchers.watch import Watchdog


@pytest.mark.slow
@pytest.mark.interpreter
def test_a_rank_that_was_frozen_right_after_its_fork_is_killed(tmp_path: Path) -> None:
    """It does not lead a process group of its own yet, so that a signal to its group reaches nobody."""
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    assert os.getpgid(rank.pid) != rank.pid
    os.kill(rank.pid, signal.SIGSTOP)
    (tmp_path / "status").mkdir()
    watchdog = Watchdog(HeldFolder(tmp_path), {0: rank.pid}, 1, timeout_s=0.2)
    watchdog.start()
    try:
        assert rank.wait(30) == -signal.SIGKILL and watchdog.killed == {0}
    finally:
        watchdog.close()
        rank.kill()
        rank.wait()


@pytest.mark.interpreter
def test_closing_ends_it_too(tmp_path: Path) -> None:
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    os.kill(rank.pid, signal.SIGSTOP)
    watchdog = Watchdog(HeldFolder(tmp_path), {0: rank.pid}, 1, timeout_s=600.0)
    watchdog.start()
    watchdog.close()
    assert not psutil.pid_exists(rank.pid)
    rank.wait(5)


@pytest.mark.interpreter
def test_it_goes_on_after_the_process_had_no_file_handle_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a disk did not answer: it looks again, and the frozen rank is found all the same."""
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    os.kill(rank.pid, signal.SIGSTOP)
    (tmp_path / "status").mkdir()
    looks: list[Path] = []

    def counted(run_dir: Path) -> list[Status]:
        looks.append(run_dir)
        return read_statuses(run_dir)

    monkeypatch.setattr("gnnexp.launchers.watch.read_statuses", counted)
    watchdog = Watchdog(HeldFolder(tmp_path), {0: rank.pid}, 1, timeout_s=0.2)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        watchdog.start()
        assert wait_until(lambda: len(looks) > 2 or not watchdog.is_alive(), 30)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    try:
        assert rank.wait(30) == -signal.SIGKILL and watchdog.killed == {0}
    finally:
        watchdog.close()
        rank.kill()
        rank.wait()


@pytest.mark.parametrize(
    ("wall", "steady"),
    [(100.0, 100.0), (100.0, 0.1), (-100.0, 0.1)],
    ids=["paused", "suspended, or the clock was set", "the clock was set back"],
)
def test_ranks_have_their_time_again_after_all_were_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wall: float, steady: float
) -> None:
    clock = FakeClock()
    monkeypatch.setattr("gnnexp.launchers.watch.time", clock)
    (tmp_path / "status").mkdir()
    beat(tmp_path, clock.wall)
    watchdog = Watchdog(HeldFolder(tmp_path), {}, 1, timeout_s=10.0)
    clock.passes(0.1, 0.1)
    watchdog._look()
    clock.passes(wall, steady)
    for _ in range(99):
        watchdog._look()
        assert watchdog.hung is None
        clock.passes(0.1, 0.1)
    clock.passes(1.0, 1.0)
    watchdog._look()
    assert watchdog.hung is not None, "it has had its time, and says nothing"


@pytest.mark.interpreter
def test_a_frozen_rank_is_the_cause_though_the_launcher_was_frozen_too_and_a_rank_gave_up_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher has not heard rank 0 for less than the time limit when rank 1, which waited for it, ends."""
    clock = FakeClock()
    monkeypatch.setattr("gnnexp.launchers.watch.time", clock)
    (tmp_path / "status").mkdir()
    frozen = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    gave_up = subprocess.Popen([sys.executable, "-c", ""])
    gave_up.wait(30)
    watchdog = Watchdog(HeldFolder(tmp_path), {0: frozen.pid, 1: gave_up.pid}, 2, timeout_s=10.0)
    try:
        beat(tmp_path, clock.wall)
        watchdog._look()
        clock.passes(4.0, 4.0)  # the launcher is frozen
        watchdog._look()
        (tmp_path / "status" / "rank_1.json").write_text(
            json.dumps(
                {"rank": 1, "state": "failed", "time": clock.wall, "host": "n1", "reason": "Timed out waiting 10000ms"}
            )
        )
        watchdog.vanished = {1: clock.wall}
        clock.passes(2.0, 2.0)
        watchdog._look()
        assert watchdog.hung is None, "it may only be late"
        clock.passes(2.0, 2.0)
        watchdog._look()
        clock.passes(2.0, 2.0)
        watchdog._look()
        assert watchdog.hung is not None and watchdog.hung.status.rank == 0
        assert watchdog.hung.describe().startswith("rank 0 on n1 has given no sign of life for ")
    finally:
        frozen.kill()
        frozen.wait(5)


class FakeClock:
    wall, steady = 1e9, 0.0

    def passes(self, wall: float, steady: float) -> None:
        self.wall, self.steady = self.wall + wall, self.steady + steady

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady


def beat(run_dir: Path, now: float) -> None:
    (run_dir / "status" / "rank_0.json").write_text(
        json.dumps({"rank": 0, "state": "running", "time": now, "host": "n1", "phase": "forward", "since": now})
    )
