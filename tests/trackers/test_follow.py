"""Delivery during a run: it ends with the run, with the launcher, or on request."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from run_folder import write_epochs, write_job, write_result
from unkillable import unkillable

from gnnexp.errors import Refusal
from gnnexp.trackers.base import Tracker, TrackingError
from gnnexp.trackers.follow import Followers, deliver_until_closed, start_delivery

__all__ = ["unkillable"]


class Recorder(Tracker):
    """Closes the launcher's end of the pipe in the second delivery."""

    def __init__(self, write_end: int, away: bool = False) -> None:
        self.ends: list[bool] = []
        self.write_end = write_end
        self.away = away

    def deliver(self, run_dir: Path, *, end: bool = True) -> bool:
        self.ends.append(end)
        if len(self.ends) == 2:
            os.close(self.write_end)
        if self.away:
            raise TrackingError("away")
        return end


@pytest.fixture
def pipe() -> Iterator[tuple[IO[bytes], int]]:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as standing:
        yield standing, write_end


def test_delivers_until_the_launcher_is_done(
    tmp_path: Path, pipe: tuple[IO[bytes], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnexp.trackers.follow._PERIOD_S", 0.01)
    recorder = Recorder(pipe[1])
    deliver_until_closed(recorder, tmp_path, pipe[0])
    assert recorder.ends == [False, False, True]


def test_a_store_that_is_away_is_asked_again_until_the_end(
    tmp_path: Path, pipe: tuple[IO[bytes], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnexp.trackers.follow._PERIOD_S", 0.01)
    recorder = Recorder(pipe[1], away=True)
    with pytest.raises(TrackingError):
        deliver_until_closed(recorder, tmp_path, pipe[0])
    assert recorder.ends == [False, False, True]


def test_the_delivering_process_ends_when_its_launcher_dies(tmp_path: Path) -> None:
    write_job(tmp_path)
    follower = start_delivery(tmp_path)
    assert follower.process.stdin is not None
    follower.process.stdin.close()  # what the system does for a process that is killed
    assert follower.process.wait(30) == 0


def test_the_process_delivers_or_says_why_not(tmp_path: Path) -> None:
    write_job(tmp_path)
    write_epochs(tmp_path, 1)
    write_result(tmp_path)
    assert start_delivery(tmp_path).finish(60) is None
    job = json.loads((tmp_path / "job.json").read_text())
    job["config"]["tracker"] = {
        "_target_": "gnnexp.trackers.mlflow.MlflowTracker",
        "uri": "sqlite:////no/folder/mlflow.db",
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert "no folder" in str(start_delivery(tmp_path).finish(60))


def test_one_process_delivers_one_run_after_another(tmp_path: Path) -> None:
    followers, processes = Followers(), []
    for number, uri in enumerate(("", "sqlite:////no/folder/mlflow.db", "")):
        write_job(run := tmp_path / str(number), uid=str(number))
        write_result(run)
        if uri:
            job = json.loads((run / "job.json").read_text())
            job["config"]["tracker"] = {"_target_": "gnnexp.trackers.mlflow.MlflowTracker", "uri": uri}
            (run / "job.json").write_text(json.dumps(job))
        follower = followers.follow(run)
        reason = follower.finish(60)
        logged = (run / "logs" / "tracking.log").read_text()
        assert ("no folder" in str(reason), "no folder" in logged) == (bool(uri), bool(uri)), reason
        processes.append(follower.process)
    assert processes[0] is processes[1] is processes[2]
    followers.close()
    assert processes[0].poll() == 0


def test_a_process_whose_delivery_was_not_finished_gets_no_other_run(tmp_path: Path) -> None:
    followers = Followers()
    for name in ("first", "second"):
        write_job(tmp_path / name)
    left = followers.follow(tmp_path / "first")
    other = followers.follow(tmp_path / "second")
    assert left.process is not other.process and other.finish(60) is None
    left.process.kill()
    assert left.finish(60) == Refusal("the delivering process died")
    followers.close()
    assert other.process.poll() == 0


def test_a_store_that_never_answers_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # an earlier test of this process may have set less
    write_job(tmp_path)
    write_result(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        job = json.loads((tmp_path / "job.json").read_text())
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        job["config"]["tracker"] = {"_target_": "gnnexp.trackers.mlflow.MlflowTracker", "uri": uri}
        (tmp_path / "job.json").write_text(json.dumps(job))
        follower = start_delivery(tmp_path)
        assert "did not answer" in str(follower.finish(3.0))
    assert follower.process.poll() is not None


def test_a_process_that_not_even_sigkill_ends_does_not_hold_it_up(
    tmp_path: Path, unkillable: list[subprocess.Popen[Any]]
) -> None:
    write_job(tmp_path)
    follower = start_delivery(tmp_path)
    follower.process.send_signal(signal.SIGSTOP)
    assert "did not answer" in str(follower.finish(0.2))
    assert unkillable == [follower.process]
