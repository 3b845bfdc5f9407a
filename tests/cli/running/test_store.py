"""Commands make the tracker's store complete before they need it, repair it, or say why they cannot."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import place
from mlflow_stores import answers, cached, make_foreign, make_half, make_newer, make_older, migrated_here
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.trackers.mlflow import MlflowTracker
from gnnexp.trackers.schema import StoreState, examine

__all__ = ["cached", "migrated_here", "place"]

SMALL = ["run", "dataset=digits", "train.epochs=1", "hardware.threads=1", "model.hidden=8"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def run_of(uri: str, name: str) -> Path:
    write_job(run := Path("runs").absolute() / name, uid=name)
    job: dict[str, Any] = json.loads((run / "job.json").read_text())
    job["config"]["tracker"] = {"_target_": "gnnexp.trackers.mlflow.MlflowTracker", "uri": uri}
    (run / "job.json").write_text(json.dumps(job))
    write_epochs(run, 1)
    write_result(run)
    return run


def test_sync_repairs_a_half_made_store_and_delivers_all(
    here: Path,
    mlflow_store: Callable[[Path], str],
    cached: Path,
    migrated_here: list[Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    uri = mlflow_store(here)
    assert MlflowTracker(uri).deliver(run_of(uri, "early"))
    run_of(uri, "late")
    make_half(here / "mlflow.db")
    assert run_command(["report", "--sync"]) == 0
    said = capsys.readouterr().out
    assert "half made" in said and "mlflow.db.half-made" in said and "It held 1 runs: 1 of them" in said
    assert said.endswith("2 runs delivered\n")
    assert len(answers(here / "mlflow.db", "SELECT * FROM runs WHERE status = 'FINISHED'")) == 2
    assert run_command(["report", "--sync"]) == 0
    assert capsys.readouterr().out == "0 runs delivered\n"


def test_sync_makes_no_store_if_nothing_is_to_be_delivered(
    here: Path, mlflow_store: Callable[[Path], str], capsys: pytest.CaptureFixture[str]
) -> None:
    uri = mlflow_store(here)
    MlflowTracker(uri).deliver(run_of(uri, "early"))
    (here / "mlflow.db").unlink()
    assert run_command(["report", "--sync"]) == 0
    assert capsys.readouterr().out == "0 runs delivered\n" and not (here / "mlflow.db").exists()


@pytest.mark.parametrize("spoil", [make_newer, make_foreign, lambda file: file.write_bytes(b"text" * 999)])
def test_what_is_no_store_stops_every_command_before_it_starts(
    here: Path, mlflow_store: Callable[[Path], str], spoil: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    file = here / "mlflow.db"
    if spoil is not make_foreign:
        mlflow_store(here)
    spoil(file)
    before = file.read_bytes()
    run_of(f"sqlite:///{file}", "one")
    for command in (SMALL, ["report", "--sync"], ["ui"]):
        assert run_command(command) == 2
        assert "tracker.uri" in (said := capsys.readouterr().err) and "fix: " in said
    assert file.read_bytes() == before and sorted(path.name for path in here.iterdir()) == ["mlflow.db", "runs"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_time_limit_leaves_a_store_that_refuses_all_later_deliveries(place: Path) -> None:
    """The busy machine: the follower is ended while MLflow still starts, whatever MLflow does at that moment."""
    first = gnnexp(*SMALL, "tracker.timeout_s=0.1", "hydra.run.dir=runs/first")
    assert "makes the tables of" in first and examine(place / "mlflow.db").state is StoreState.COMPLETE
    assert gnnexp("report", "--sync") == ("0" if "tracking is away" not in first else "1") + " runs delivered\n"
    assert len(answers(place / "mlflow.db", "SELECT * FROM runs WHERE status = 'FINISHED'")) == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_launch_upgrades_an_older_store_and_repairs_a_half_made_one(
    place: Path, mlflow_store: Callable[[Path], str]
) -> None:
    mlflow_store(place)
    revision = make_older(file := place / "mlflow.db")
    said = gnnexp(*SMALL, "tracker.timeout_s=200", "hydra.run.dir=runs/first")
    assert f"kept as mlflow.db.schema-{revision}" in said and "tracking is away" not in said
    make_half(file)
    said = gnnexp(*SMALL, "tracker.timeout_s=200", "hydra.run.dir=runs/second")
    assert "mlflow.db.half-made" in said and "tracking is away" not in said
    assert gnnexp("report", "--sync") == "1 runs delivered\n", "the first one, which only the half-made store had"
    assert len(answers(file, "SELECT * FROM runs WHERE status = 'FINISHED'")) == 2


def gnnexp(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "gnnexp", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.interpreter
def test_a_store_that_mlflow_left_half_made_when_it_was_killed(place: Path) -> None:
    """As gnnexp 0.2 left it: killed at a random step of the migrations."""
    file = place / "mlflow.db"
    program = "import sys; from mlflow import MlflowClient; MlflowClient(tracking_uri=sys.argv[1]).search_experiments()"
    with subprocess.Popen([sys.executable, "-c", program, f"sqlite:///{file}"]) as maker:
        while not _has(file, "registered_models"):
            assert maker.poll() is None
        maker.kill()
    assert examine(file).state is StoreState.BEHIND
    run_of(f"sqlite:///{file}", "one")
    assert gnnexp("report", "--sync").endswith("1 runs delivered\n")
    assert examine(file).state is StoreState.COMPLETE


def _has(file: Path, table: str) -> bool:
    try:
        return file.exists() and bool(answers(file, f"SELECT 1 FROM sqlite_master WHERE name = '{table}'"))
    except sqlite3.OperationalError:  # it is being written
        return False
