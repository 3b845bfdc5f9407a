"""A sweep that is killed again and again: good runs finish once, bad ones are reported, the tracker has each once."""

from __future__ import annotations

import json
import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import start
from rank_processes import ranks_of

from gnnexp.cli.main import run_command
from gnnexp.record.records import read_epochs

pytestmark = pytest.mark.timeout(900)
SMALL = [
    "model.hidden=8",
    "model.layers=1",
    "sampler.fanouts=[4]",
    "train.epochs=3",
    "train.eval_every=0",
    "hardware.threads=1",
]


def write_sweep(place: Path, good: int, bad: int, workers: int = 2) -> str:
    cases = [{"overrides": [f"seed={seed}"]} for seed in range(good)]
    cases += [{"overrides": [f"seed={seed}", "optimizer.lr=1e300"]} for seed in range(bad)]
    random.Random(1).shuffle(cases)
    file = place / "storm.yaml"
    fixed = [*SMALL, f"hardware.workers={workers}"]
    file.write_text(json.dumps({"description": "a storm", "fixed": fixed, "cases": cases}))
    return str(file)


def sweep(file: str, place: Path, *more: str) -> subprocess.Popen[str]:
    return start("sweep", file, *more, cwd=place)


def results(place: Path) -> list[dict[str, Any]]:
    """Of the runs that have ended; not by `**`, which would enter folders that a run going on is renaming."""
    return [json.loads(path.read_text()) for path in place.glob("runs/storm/*/result.json")]


def kill_after(going: subprocess.Popen[str], place: Path, ended: int) -> None:
    """SIGKILL the sweeping process when `ended` runs have their result and the next one trains."""
    while going.poll() is None:
        begun = [path for path in place.glob("runs/storm/*") if (path / "epochs.jsonl").exists()]
        if len(results(place)) >= ended and len(begun) > ended and workers(place):
            break
        time.sleep(0.02)
    assert going.poll() is None, going.communicate()[0]
    going.kill()
    going.communicate()
    end = time.monotonic() + 20
    while workers(place):
        assert time.monotonic() < end, "workers live on"
        time.sleep(0.1)


def workers(place: Path) -> list[int]:
    return [process.pid for run_dir in place.glob("runs/storm/*") for process in ranks_of(run_dir).values()]


def lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def check(place: Path, good: int, bad: int) -> None:
    found = results(place)
    assert len(found) == good + bad and len(list(place.glob("runs/storm/*"))) == good + bad
    finished = [result for result in found if result["status"] == "finished"]
    assert len(finished) == good
    for result in finished:
        assert [line["epoch"] for line in result["epochs"]] == [0, 1, 2]
    for result in found:
        if result["status"] != "finished":
            assert result["kind"] == "diverged" and "optimizer.lr" in result["reason"]
    assert not [path for path in place.glob("runs/**/.*") if path.suffix == ".tmp"]
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{place / 'mlflow.db'}")
    experiment = [client.get_experiment_by_name("gnnexp").experiment_id]
    runs = client.search_runs(experiment, "tags.kind = 'run'", max_results=100)
    assert len(runs) == good + bad
    states = [run.info.status for run in runs]
    assert states.count("FINISHED") == good and states.count("FAILED") == bad
    for run in runs:
        if run.info.status == "FINISHED":
            history = client.get_metric_history(run.info.run_id, "loss/train")
            assert sorted(metric.step for metric in history) == [0, 1, 2]
    assert {run.data.tags["sweep"] for run in runs} == {"storm"}


@pytest.mark.slow  # `make torture` kills sweeps of every size
@pytest.mark.parametrize(("good", "bad", "kills", "workers"), [(2, 1, [1], 1), (21, 3, [7, 15], 2)])
def test_a_sweep_that_is_killed_half_way(tmp_path, mlflow_store, monkeypatch, capfd, good, bad, kills, workers):
    monkeypatch.chdir(tmp_path)
    mlflow_store(tmp_path)
    file = write_sweep(tmp_path, good, bad, workers)
    for ended in kills:
        kill_after(sweep(file, tmp_path), tmp_path, ended)
    code = run_command(["sweep", file])
    output = "".join(capfd.readouterr())
    assert code == 1, output
    assert output.count("loss is nan") + output.count("loss is inf") >= bad
    check(tmp_path, good, bad)
    losses = {
        path.parent.name: [line["losses"] for line in read_epochs(path.parent)]
        for path in tmp_path.glob("runs/storm/*/result.json")
    }
    assert run_command(["sweep", file, "--dry-run"]) == 0
    again = capfd.readouterr().out
    assert f"{good} finished before, {bad} to be continued" in again, again
    assert len(losses) == good + bad


@pytest.mark.slow
def test_cases_die_with_their_sweep(tmp_path):
    """Whoever kills it begins it again: cases that went on would hold their runs, and the cores."""
    file = tmp_path / "storm.yaml"
    file.write_text(
        json.dumps(
            {
                "description": "endless",
                "axes": {"seed": [0, 1]},
                "fixed": [
                    *SMALL[:3],
                    "train.epochs=100000",
                    "train.eval_every=0",
                    "hardware.threads=1",
                    "hardware.workers=1",
                ],
            }
        )
    )
    going = sweep(str(file), tmp_path, "--jobs", "2")
    end = time.monotonic() + 120
    while len(workers(tmp_path)) < 2:
        assert time.monotonic() < end and going.poll() is None, going.communicate()[0]
        time.sleep(0.05)
    cases = psutil.Process(going.pid).children()
    starters = [process for case in cases for process in case.children() if "starter" in " ".join(process.cmdline())]
    assert len(starters) == 2 and len(cases) == 3, "two cases, and the process that forks ranks"
    going.kill()
    going.communicate()
    end = time.monotonic() + 20
    while workers(tmp_path) or any(lives(process) for process in (*cases, *starters)):
        assert time.monotonic() < end, "cases, starters or ranks live on"
        time.sleep(0.05)


@pytest.mark.slow
def test_cases_side_by_side(tmp_path):
    file = write_sweep(tmp_path, 2, 1, workers=1)
    going = sweep(file, tmp_path, "--jobs", "2")
    output, _ = going.communicate(timeout=200)
    assert going.returncode == 1, output
    check(tmp_path, 2, 1)
    assert "2 finished, 1 failed" in output
