"""Processes that are frozen or killed in combination: the launcher waits for none of them for ever."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from launching import HERE, gone, pids, prepare, start_driver, starters, wait_until

from gnnexp.components.schema import HardwareConfig
from gnnexp.files.pulse import Pulse, is_stopped
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.local import LocalLauncher
from gnnexp.launchers.status import Hang, Status, hanging

pytestmark = pytest.mark.timeout(120)


def launch(
    run_dir: Path, behaviours: list[str], monkeypatch: pytest.MonkeyPatch, module: str = "stub_worker"
) -> Outcome:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setattr("gnnexp.launchers.watch.GRACE_S", 0.5)
    monkeypatch.setattr("gnnexp.launchers.local._TELL_S", 0.5)
    prepare(run_dir, behaviours)
    hardware_of = HardwareConfig(**{"workers": len(behaviours), "timeout_s": 2.0})
    with closing(LocalLauncher(module)) as launcher:
        outcome = launcher.launch(run_dir, hardware_of)
    assert all(gone(pid) for pid in pids(run_dir)), "nothing of a launch is left"
    assert not starters()
    return outcome


def test_a_starter_that_is_frozen_before_it_starts_a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = launch(tmp_path, ["finish"], monkeypatch, "freezing_worker")
    assert (outcome.status, outcome.kind, outcome.may_be_repeated) == ("failed", "hang", True)
    assert "the process that starts the ranks has given no sign of life" in outcome.reason


def test_a_frozen_starter_and_a_killed_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = launch(tmp_path, ["freeze_parent_and_die", "sleep"], monkeypatch)
    assert (outcome.status, outcome.kind) == ("failed", "killed")
    assert "rank 0" in outcome.reason and "vanished in phase forward" in outcome.reason


def test_ranks_that_finish_under_a_frozen_starter_have_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launch(tmp_path, ["freeze_parent", "finish"], monkeypatch).status == "finished"


@pytest.mark.slow
def test_a_frozen_rank_under_a_frozen_starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = launch(tmp_path, ["freeze_parent", "freeze"], monkeypatch)
    assert outcome.kind == "hang" and "rank 1" in outcome.reason


@pytest.mark.parametrize("behaviour", ["freeze", "freeze_before_first_word"])
def test_a_frozen_rank_was_last_seen_somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str) -> None:
    outcome = launch(tmp_path, [behaviour], monkeypatch)
    phase = "forward" if behaviour == "freeze" else "start"
    assert outcome.kind == "hang" and outcome.reason.endswith(f"s; last seen in phase {phase}")
    assert "rank 0" in outcome.reason and "has given no sign of life for " in outcome.reason


def test_a_frozen_starter_that_is_kept_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    hardware_of = HardwareConfig(**{"workers": 1, "timeout_s": 30.0})
    with closing(LocalLauncher("stub_worker")) as launcher:
        parents = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            prepare(tmp_path / name, ["finish"])
            assert launcher.launch(tmp_path / name, hardware_of).status == "finished"
            parents.append(int((tmp_path / name / "parent").read_text()))
            os.kill(parents[-1], signal.SIGSTOP)
            assert wait_until(lambda: is_stopped(parents[-1]), 10)
    assert parents[0] != parents[1] and all(map(gone, parents))


@pytest.mark.parametrize("frozen", ["starter", "rank"])
@pytest.mark.interpreter
def test_nothing_frozen_outlives_a_killed_launcher(tmp_path: Path, frozen: str) -> None:
    """Ranks of a frozen starter would train on at the same time as those of `gnnexp resume`."""
    driver = start_driver(tmp_path, ["sleep", "sleep"])
    starter, ranks = int((tmp_path / "parent").read_text()), pids(tmp_path)
    os.kill(starter if frozen == "starter" else ranks[0], signal.SIGSTOP)
    driver.kill()
    driver.communicate(timeout=20)
    assert wait_until(lambda: all(map(gone, [starter, *ranks])), 20)


def test_a_process_that_waits_has_a_pulse_and_a_stopped_one_has_none() -> None:
    with psutil.Popen(["python3", "-c", "import time\nwhile True: time.sleep(0.02)"]) as process:
        pulse = Pulse(process.pid)
        assert wait_until(lambda: pulse.silent_s() < 0.01, 20) and not is_stopped(process.pid)
        process.suspend()
        assert wait_until(lambda: is_stopped(process.pid), 20)
        assert wait_until(lambda: pulse.silent_s() > 0.5, 20)
        process.resume()
        assert wait_until(lambda: pulse.silent_s() < 0.5, 20)
        process.kill()


def test_a_rank_that_says_nothing_and_one_that_does_nothing_are_told_apart() -> None:
    silent = Status(1, "running", time=100.0, host="here", phase="sync", since=99.9)
    assert hanging([silent], 109.0, 10.0) is None
    assert hanging([silent], 112.0, 10.0) == Hang(silent, 12.0)
    assert Hang(silent, 12.0).describe() == "rank 1 on here has given no sign of life for 12 s; last seen in phase sync"
    waits = Status(0, "failed", time=112.0, reason="timed out")
    assert hanging([replace(waits, time=106.0), silent], 106.0, 10.0) == Hang(silent, 6.0)
    assert hanging([replace(waits, time=106.0, reason="KeyError"), silent], 106.0, 10.0) is None
    stuck = Status(1, "running", time=111.0, host="here", phase="forward", since=101.0)
    found = hanging([waits, stuck], 112.0, 10.0)
    assert found == Hang(stuck) and found.describe() == (
        "rank 1 on here hangs in phase forward (nothing began or ended there for 10 s)"
    )
