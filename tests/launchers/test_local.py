"""The local launcher: who is blamed, what is left behind, and how signals end a run."""

import json
import os
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest
from launching import HERE, gone, pids, prepare, start_driver, wait_until

from gnnexp.components.schema import HardwareConfig
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.local import LocalLauncher


def launch(run_dir: Path, behaviours: list[str], monkeypatch: pytest.MonkeyPatch, **hardware: object) -> Outcome:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    prepare(run_dir, behaviours)
    hardware_of = HardwareConfig(**{"workers": len(behaviours), "timeout_s": 30.0, **hardware})
    with closing(LocalLauncher("stub_worker")) as launcher:
        return launcher.launch(run_dir, hardware_of)


def test_all_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(os.environ) | {"PYTHONPATH": str(HERE)}
    handlers = [signal.getsignal(item) for item in (signal.SIGTERM, signal.SIGINT)]
    outcome = launch(tmp_path, ["environment", "environment"], monkeypatch, threads=1)
    assert outcome == Outcome(0, "finished")
    assert [(tmp_path / "logs" / f"rank_{rank}.log").read_text() for rank in (0, 1)] == [
        "hello from 0\n",
        "hello from 1\n",
    ]
    seen = json.loads((tmp_path / "environment_1.json").read_text())
    assert (seen["RANK"], seen["WORLD_SIZE"], seen["MASTER_ADDR"]) == ("1", "2", "127.0.0.1")
    assert seen["OMP_NUM_THREADS"] == seen["NUMBA_NUM_THREADS"] == "1"
    assert "mmap_max=0" in seen["GLIBC_TUNABLES"] and seen["GLOO_SOCKET_IFNAME"] == "lo"
    assert dict(os.environ) == before, "the launching process keeps its own environment"
    assert [signal.getsignal(item) for item in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_allocator_system_leaves_malloc_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert launch(tmp_path, ["environment"], monkeypatch, allocator="system").exit_code == 0
    assert "GLIBC_TUNABLES" not in json.loads((tmp_path / "environment_0.json").read_text())


def test_the_earliest_failure_is_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = launch(tmp_path, ["lose_peer", "raise", "sleep"], monkeypatch)
    assert outcome.exit_code == 1
    assert "rank 1 on" in outcome.reason and "failed in phase forward: the real cause" in outcome.reason
    assert outcome.message.count("Traceback") == 1 and "closed by peer" not in outcome.message
    assert all(gone(pid) for pid in pids(tmp_path))


def test_a_killed_rank_is_named_with_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = launch(tmp_path, ["lose_peer", "kill"], monkeypatch)
    assert outcome.exit_code == 1
    assert "rank 1" in outcome.reason and "SIGKILL" in outcome.reason


def test_a_rank_that_is_killed_while_it_writes_its_word_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launch(tmp_path, ["kill_in_a_beat", "kill_in_a_beat"], monkeypatch).exit_code == 1
    assert not list((tmp_path / "status").glob(".*"))


def test_a_rank_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = launch(tmp_path, ["ignore_term", "raise"], monkeypatch)
    assert "rank 1" in outcome.reason and "the real cause" in outcome.reason
    assert all(gone(pid) for pid in pids(tmp_path))
    failed = json.loads((tmp_path / "status" / "rank_1.json").read_text())["time"]  # starting ranks is not counted
    assert time.time() - failed < 25, "the watchdog ends it"


def test_a_users_mistake_seen_by_a_rank_has_exit_code_2_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = launch(tmp_path, ["user_error", "sleep"], monkeypatch)
    assert outcome.exit_code == 2
    assert outcome.message == "sampler.fanouts=[1]: too short"


SIGNALS = pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["ctrl-c", "sigterm", "terminal closed"],
)
# Each of them waits for ten seconds.
ONE_SIGNAL = pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="ctrl-c"),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow, id="sigterm"),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow, id="terminal closed"),
    ],
)


@SIGNALS
@pytest.mark.interpreter
def test_signals_end_everything(tmp_path: Path, number: signal.Signals, code: int) -> None:
    driver = start_driver(tmp_path, ["sleep", "ignore_term"])
    driver.send_signal(number)
    while driver.poll() is None:  # somebody who does not want to wait for the second rank
        time.sleep(0.5)
        driver.send_signal(number)
    output, _ = driver.communicate(timeout=20)
    assert driver.returncode == code
    assert f"interrupted by {number.name}; the ranks were ended in the middle of a step" in output
    assert all(gone(pid) for pid in pids(tmp_path))


@ONE_SIGNAL
@pytest.mark.interpreter
def test_a_long_step_is_waited_for(tmp_path: Path, number: signal.Signals, code: int) -> None:
    driver = start_driver(tmp_path, ["long_step"])
    driver.send_signal(number)
    output, _ = driver.communicate(timeout=40)
    assert driver.returncode == code and f"interrupted by {number.name}" in output and "middle of a step" not in output
    assert "Ctrl-C again ends them now" in output
    assert json.loads((tmp_path / "status" / "rank_0.json").read_text())["state"] == "stopped"


@pytest.mark.slow
@pytest.mark.interpreter
def test_a_signal_after_the_end_takes_nothing_from_a_finished_run(tmp_path: Path) -> None:
    driver = start_driver(tmp_path, ["finish_and_linger"])
    assert wait_until((tmp_path / "result.json").exists, 20)
    driver.send_signal(signal.SIGTERM)
    output, _ = driver.communicate(timeout=30)
    assert driver.returncode == 0 and "interrupted" not in output
    assert all(gone(pid) for pid in pids(tmp_path))


@pytest.mark.parametrize("pause", [0.0, 0.3])
@pytest.mark.interpreter
def test_nobody_who_asks_again_and_again_sees_a_traceback(tmp_path: Path, pause: float) -> None:
    driver = start_driver(tmp_path, ["ignore_term", "ignore_term"])
    for _ in range(4):
        driver.send_signal(signal.SIGINT)
        time.sleep(pause)
    while driver.poll() is None:  # signals that come at the same time may count as one
        driver.send_signal(signal.SIGINT)
        time.sleep(0.5)
    output, _ = driver.communicate(timeout=20)
    assert driver.returncode == 130 and output.count("interrupted by SIGINT") == 1, output
    assert "Traceback" not in output and all(gone(pid) for pid in pids(tmp_path))


@pytest.mark.interpreter
def test_workers_die_with_a_killed_launcher(tmp_path: Path) -> None:
    driver = start_driver(tmp_path, ["sleep", "sleep"])
    driver.kill()
    driver.communicate(timeout=20)
    assert wait_until(lambda: all(gone(pid) for pid in pids(tmp_path)), 10)
