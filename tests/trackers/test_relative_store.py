"""A store that is named relative to the current folder, as the configuration's own messages suggest."""

from pathlib import Path

from run_folder import write_epochs, write_job, write_result

from gnnexp.trackers.mlflow import MlflowTracker


def test_a_store_named_by_a_relative_path(tmp_path: Path, monkeypatch, mlflow_store) -> None:
    monkeypatch.chdir(tmp_path)
    mlflow_store(tmp_path)
    run = tmp_path / "run"
    write_job(run)
    write_epochs(run, 2)
    write_result(run)
    assert MlflowTracker("sqlite:///mlflow.db").deliver(run) is True
    assert list((tmp_path / "mlartifacts" / "gnnexp").glob("*/artifacts/result.json"))
