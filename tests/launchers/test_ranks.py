"""The process that ranks are forked from: kept between launches, left when it no longer fits, never outlived."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from experiments import experiment_in
from launching import HERE, gone, pids, prepare, starters, wait_until

from gnnexp.components.schema import HardwareConfig
from gnnexp.experiment.experiment import Experiment
from gnnexp.launchers.base import Launcher, Launchers, Outcome
from gnnexp.launchers.local import LocalLauncher
from gnnexp.launchers.ranks import Ranks

NODE = {"_target_": "gnnexp.launchers.local.LocalLauncher", "worker_module": "stub_worker"}


def with_launcher(node: dict[str, str]) -> Experiment:
    return experiment_in({"hardware": {"launcher": node}})


def kept(launchers: Launchers, experiment: Experiment) -> Launcher:
    """The launcher that `launchers` keeps for these options."""
    return launchers.of(experiment.launcher, experiment.config.group("hardware.launcher").text())


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Outcome, str]]:
    """`launch(launcher, behaviours, **hardware)`: the outcome, and whose child the first rank was."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))

    def start(launcher: LocalLauncher, behaviours: list[str], **hardware: object) -> tuple[Outcome, str]:
        run_dir = tmp_path / str(time.time_ns())
        run_dir.mkdir()
        prepare(run_dir, behaviours)
        hardware_of = HardwareConfig(**{"workers": len(behaviours), "timeout_s": 30.0, **hardware})
        outcome = launcher.launch(run_dir, hardware_of)
        assert all(gone(pid) for pid in pids(run_dir))
        return outcome, (run_dir / "parent").read_text()

    return start


def test_the_same_process_serves_the_next_launch_and_one_after_a_failure(launch) -> None:
    with Launchers() as launchers:
        launcher = kept(launchers, with_launcher(NODE))
        other = with_launcher({**NODE, "worker_module": "other"})
        assert kept(launchers, with_launcher(dict(NODE))) is launcher and kept(launchers, other) is not launcher
        outcomes, parents = zip(
            *[
                launch(launcher, behaviours, threads=1)
                for behaviours in (["finish"], ["raise", "sleep"], ["finish"] * 3)
            ],
            strict=True,
        )
        assert [outcome.status for outcome in outcomes] == ["finished", "failed", "finished"]
        assert len(set(parents)) == 1
    assert gone(int(parents[0])), "closed with the launchers"


def test_another_environment_takes_another_process(launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocators and OpenMP read theirs once, when a process starts."""
    with Launchers() as launchers:
        launcher = kept(launchers, with_launcher(NODE))
        _, first = launch(launcher, ["finish"], threads=1)
        _, second = launch(launcher, ["finish"], threads=2)
        monkeypatch.setenv("GNNEXP_TEST", "1")
        _, third = launch(launcher, ["finish"], threads=2)
        assert len({first, second, third}) == 3 and gone(int(first)) and gone(int(second))


def test_ranks_run_where_the_launching_process_is_now(launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Launchers() as launchers:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            monkeypatch.chdir(tmp_path / name)
            assert launch(kept(launchers, with_launcher(NODE)), ["where"])[0].status == "finished", name
            assert (tmp_path / name / "was_here").exists()


def test_a_killed_starter_takes_its_ranks_along_and_the_next_launch_has_another(launch, tmp_path: Path) -> None:
    with Launchers() as launchers:
        launcher = kept(launchers, with_launcher(NODE))
        outcome, killed = launch(launcher, ["kill_parent", "sleep"])
        assert (outcome.status, outcome.kind, outcome.may_be_repeated) == ("failed", "killed", True)
        assert "forked from was ended" in outcome.reason
        again, parent = launch(launcher, ["finish"])
        assert again.status == "finished" and parent != killed


def test_a_starter_that_died_between_two_runs_is_replaced(launch) -> None:
    with Launchers() as launchers:
        launcher = kept(launchers, with_launcher(NODE))
        killed = launch(launcher, ["finish"])[1]
        psutil.Process(int(killed)).kill()
        assert wait_until(lambda: gone(int(killed)), 20)
        again, parent = launch(launcher, ["finish"])
        assert again.status == "finished" and parent != killed


def test_closing_ends_ranks_that_run(tmp_path: Path) -> None:
    prepare(tmp_path, ["sleep", "sleep"])
    for folder in ("logs", "status"):
        (tmp_path / folder).mkdir()
    ranks = Ranks("stub_worker", os.environ | {"PYTHONPATH": str(HERE)}, tmp_path / "logs" / "starter.log")
    ranks.start(tmp_path, 2)
    assert wait_until(lambda: ranks.listen(0.1) or len(pids(tmp_path)) == 2, 30)
    assert sorted(ranks.pids.values()) == sorted(pids(tmp_path)) and not ranks.exit_codes
    assert all(os.getpgid(pid) == pid for pid in pids(tmp_path)), "each leads its own group"
    ranks.signal(signal.SIGTERM)
    assert wait_until(lambda: ranks.listen(0.1) or len(ranks.exit_codes) == 2, 30)
    assert set(ranks.exit_codes.values()) == {-signal.SIGTERM}
    ranks.close()
    assert ranks.lost and not starters()


def test_later_ranks_have_what_rank_0_of_an_earlier_run_needed(
    launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lesson that is too long for the pipe or cannot be learned is left out; a failed run teaches nothing."""
    monkeypatch.setenv("LESSONS", "first,long,wrong,,last,failed,end")
    with Launchers() as launchers:
        launcher = kept(launchers, with_launcher({**NODE, "worker_module": "learning_worker"}))
        outcomes = [
            launch(launcher, behaviours, threads=1)[0].status
            for behaviours in (
                ["finish"],
                ["finish"] * 2,
                ["finish"],
                ["finish"],
                ["finish"],
                ["raise"],
                ["finish"] * 2,
            )
        ]
    assert outcomes == [*["finished"] * 5, "failed", "finished"]
    runs = sorted(folder for folder in tmp_path.iterdir() if folder.name.isdecimal())
    assert [(folder / "learned_0").read_text() for folder in runs] == [
        "",
        "first",
        "first",
        "first",
        "first",
        "first last",
        "first last",
    ]
    assert (runs[-1] / "learned_1").read_text() == "first last"


def test_a_rank_leaves_at_once_but_after_its_threads_and_what_they_have_written(
    launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LESSONS", "one,two")
    with Launchers() as launchers:
        launcher = kept(launchers, with_launcher({**NODE, "worker_module": "learning_worker"}))
        assert launch(launcher, ["finish"], threads=1)[0].status == "finished"
    (run,) = (folder for folder in tmp_path.iterdir() if folder.name.isdecimal())
    assert (run / "asked").read_text() == "by atexit" and (run / "joined").read_text() == "a thread"
    assert (run / "logs" / "rank_0.log").read_text().endswith("the last word")
