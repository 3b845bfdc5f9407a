"""Delivery beside a run: it ends with the run, with the launcher, or when it is told to."""

import json
import os
import socket
from pathlib import Path

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.trackers.base import Tracker, TrackingError
from gnnexp.trackers.follow import deliver_until_over, follow


class Recorder(Tracker):
    """Ends the run after the second delivery."""

    def __init__(self, away: bool = False) -> None:
        self.calls = 0
        self.away = away

    def deliver(self, run_dir: Path) -> bool:
        self.calls += 1
        over = (run_dir / "result.json").exists()
        if self.calls == 2:
            write_result(run_dir)
        if self.away:
            raise TrackingError("away")
        return over


def test_delivers_until_the_result_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnexp.trackers.follow._PERIOD_S", 0.01)
    write_job(tmp_path)
    recorder = Recorder()
    deliver_until_over(recorder, tmp_path, os.getppid())
    assert recorder.calls == 3


def test_a_store_that_is_away_is_asked_again_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnexp.trackers.follow._PERIOD_S", 0.01)
    write_job(tmp_path)
    recorder = Recorder(away=True)
    with pytest.raises(TrackingError):
        deliver_until_over(recorder, tmp_path, os.getppid())
    assert recorder.calls == 3


def test_ends_when_the_launcher_is_gone(tmp_path: Path) -> None:
    write_job(tmp_path)
    recorder = Recorder()
    deliver_until_over(recorder, tmp_path, launcher_pid=-1)
    assert recorder.calls == 1


def test_the_process_delivers_or_says_why_not(tmp_path: Path) -> None:
    write_job(tmp_path)
    write_epochs(tmp_path, 1)
    write_result(tmp_path)
    assert follow(tmp_path).finish(60) == ""
    job = json.loads((tmp_path / "job.json").read_text())
    job["config"]["tracker"] = {
        "_target_": "gnnexp.trackers.mlflow.MlflowTracker", "uri": "sqlite:////no/folder/mlflow.db"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert "no folder" in follow(tmp_path).finish(60)


def test_a_store_that_never_answers_does_not_hold_up_the_end(tmp_path: Path) -> None:
    write_job(tmp_path)
    write_result(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        job = json.loads((tmp_path / "job.json").read_text())
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        job["config"]["tracker"] = {"_target_": "gnnexp.trackers.mlflow.MlflowTracker", "uri": uri}
        (tmp_path / "job.json").write_text(json.dumps(job))
        follower = follow(tmp_path)
        assert "did not answer" in follower.finish(3.0)
    assert follower.process.poll() is not None
