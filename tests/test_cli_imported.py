"""What commands do with runs that `gnnexp import` took: they show them, and carry nothing of them out."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.cli.page import latest_tracker, tracker_node
from gnnexp.record.archive import pack_records
from gnnexp.record.importing import unpack_records
from gnnexp.record.runs import find_runs
from gnnexp.trackers.none import NoTracker

SWEEP = """
description: one run, on a rank that only pretends
fixed: [tracker=none, hardware.launcher.worker_module=pretending_worker]
axes: {seed: [0]}
report: {figures: []}
"""
EVIL = {"_target_": "gnnexp.trackers.mlflow.MlflowTracker", "uri": "http://127.0.0.1:9/"}


def prepare(monkeypatch: pytest.MonkeyPatch, cache: Path, folder: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent / 'support'}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("GNNEXP_CACHE", str(cache))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`there`, where a sweep was run, its export, and `here` with a sweep of the same name; tests get copies."""
    place = tmp_path_factory.mktemp("exported")
    for name in ("here", "there"):
        (place / name).mkdir()
        (place / name / "seeds.yaml").write_text(SWEEP)
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch, place / "cache", place / "there")
        assert run_command(["sweep", "seeds.yaml"]) == 0
        assert run_command(["export", "seeds", "--out", str(place / "gift.parquet")]) == 0
    return place


@pytest.fixture
def here(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that imports."""
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    prepare(monkeypatch, tmp_path / "cache", tmp_path / "here")
    return tmp_path / "here"


def test_a_sweep_takes_an_imported_run_only_when_it_is_told_to(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Although it was made on this very machine, with the same key."""
    assert run_command(["import", "../gift.parquet"]) == 0
    capsys.readouterr()
    assert run_command(["sweep", "seeds.yaml", "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 runs, 0 finished before, 0 to be continued" in said and "imported from gift.parquet" in said
    assert run_command(["sweep", "seeds.yaml", "--dry-run", "--accept-foreign"]) == 0
    assert "1 finished before" in capsys.readouterr().out
    assert run_command(["sweep", "seeds.yaml"]) == 0
    assert len(find_runs()) == 2
    assert run_command(["sweep", "seeds.yaml", "--dry-run"]) == 0
    assert "1 finished before" in capsys.readouterr().out, "its own run is there now"


@pytest.mark.parametrize("accept", [[], ["--accept-foreign"]])
def test_no_sweep_goes_on_with_an_imported_run(
    here: Path, capsys: pytest.CaptureFixture[str], accept: list[str]
) -> None:
    (run,) = (here.parent / "there" / "runs" / "seeds").iterdir()
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "status": "failed", "reason": "killed"}))
    pack_records(["seeds"], here.parent / "gift.parquet", here.parent / "there")
    unpack_records(here.parent / "gift.parquet")
    assert run_command(["sweep", "seeds.yaml", "--dry-run", *accept]) == 0
    assert "0 to be continued" in capsys.readouterr().out
    assert not (here / "runs" / "seeds" / run.name / "lock").exists()


def imported(folder: Path, **provenance: object) -> Path:
    """A run directory with the mark of an import."""
    run_dir = folder / "runs" / "gift" / "one"
    write_job(run_dir, imported={"file": "gift.parquet", "sha256": "0"}, **provenance)
    job = json.loads((run_dir / "job.json").read_text())
    job["config"]["tracker"] = EVIL
    (run_dir / "job.json").write_text(json.dumps(job))
    write_epochs(run_dir, 3)
    write_result(run_dir)
    return run_dir


def test_the_tracker_of_an_imported_record_is_never_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even where somebody has put one into the record later."""
    monkeypatch.chdir(tmp_path)
    own = {"_target_": "gnnexp.trackers.none.NoTracker"}
    imported(tmp_path)
    (run,) = find_runs()
    assert run.config["tracker"] == EVIL
    assert tracker_node(run.config, run.provenance, own) == own
    monkeypatch.setattr("gnnexp.cli.page.default_of", lambda _: own)
    monkeypatch.setattr("gnnexp.cli.commands.report.default_of", lambda _: own)
    assert latest_tracker([run]) is None
    built: list[str] = []
    monkeypatch.setattr("gnnexp.trackers.mlflow.MlflowTracker.__init__", lambda *_, **__: built.append("mlflow"))
    assert run_command(["report", "--sync"]) == 0
    assert "0 runs delivered" in capsys.readouterr().out and built == []


def test_own_runs_keep_their_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path / "runs" / "one")
    write_result(tmp_path / "runs" / "one")
    (run,) = find_runs()
    assert tracker_node(run.config, run.provenance, EVIL) == {"_target_": f"{NoTracker.__module__}.NoTracker"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every path that this process opens from now on."""
    paths: list[str] = []
    listening = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if listening[0] and event in ("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove"):
            paths.append(str(arguments[0]))

    sys.addaudithook(hook)
    yield paths
    listening[0] = False


def test_no_path_of_an_imported_record_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    canary = str(tmp_path / "canary")
    run_dir = Path("runs/gift/one")
    write_job(
        run_dir,
        partition=f"{canary}/partition",
        cwd=canary,
        dataset_key="x",
        argv=[canary],
        reproduce=f"gnnexp run --config-dir {canary}",
        config_dir=canary,
    )
    job = json.loads((run_dir / "job.json").read_text())
    job["config"]["dataset"]["path"] = f"{canary}/data"
    job["config"]["partitioner"] = {"_target_": "gnnexp.partitioners.stored.Stored", "path": f"{canary}/owners"}
    job["config"]["hydra"] = {"run": {"dir": f"{canary}/run"}}
    (run_dir / "job.json").write_text(json.dumps(job))
    write_epochs(run_dir, 3)
    write_result(
        run_dir,
        presampled=[{"folder": f"{canary}/presampled"}],
        profile=f"{canary}/profile",
        best={"checkpoint": f"{canary}/best"},
    )
    Path("runs/sweeps").mkdir()
    Path("runs/sweeps/gift.json").write_text(
        json.dumps(
            {"name": f"{canary}/sweep", "cases": [{"label": "a", "run_dir": str(run_dir), "status": "finished"}]}
        )
    )
    pack_records(["gift"], tmp_path / "gift.parquet")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr("gnnexp.cli.page.start_delivery", None)
    assert run_command(["import", "../gift.parquet"]) == 0
    own = {"_target_": "gnnexp.trackers.none.NoTracker"}
    monkeypatch.setattr("gnnexp.cli.page.default_of", lambda _: own)
    for command in (
        ["report", "gift"],
        ["report"],
        ["report", str(run_dir)],
        ["status", str(run_dir)],
        ["logs", str(run_dir)],
        ["export", "gift"],
        ["report", "partitioning"],
        ["report", "balance"],
    ):
        assert run_command(command) == 0, capsys.readouterr().err
    for command in (["resume", str(run_dir)], ["cancel", str(run_dir)]):
        assert run_command(command) == 2
    assert [path for path in opened if canary in path] == []
    assert not (tmp_path / "canary").exists()
