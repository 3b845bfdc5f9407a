"""MLflow: every record is delivered once, whatever dies in between, and a store that is away harms nobody."""

import concurrent.futures
import json
import multiprocessing
import os
import platform
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from meeting_client import Meeting
from run_folder import metrics_of, write_epochs, write_job, write_result

from gnnexp.errors import ConfigError
from gnnexp.trackers.base import TrackingError
from gnnexp.trackers.delivery import DELIVERY_FILE, delivering, read_delivery, reopen, undelivered
from gnnexp.trackers.mlflow import MlflowTracker


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, mlflow_store: Callable[[Path], str]) -> str:
    """One SQLite store for the module."""
    return mlflow_store(tmp_path_factory.mktemp("store"))


def client_of(uri: str):
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def history(uri: str, run_dir: Path, name: str) -> list[tuple[int, float]]:
    run_id = read_delivery(run_dir, uri).run_id
    return sorted((metric.step, metric.value) for metric in client_of(uri).get_metric_history(run_id, name))


def test_a_run_is_delivered_while_it_goes_on_and_at_its_end(tmp_path: Path, store: str) -> None:
    run = tmp_path / "run"
    write_job(run, uid=str(run))
    tracker = MlflowTracker(store)
    assert tracker.deliver(run) is False
    write_epochs(run, 2)
    assert tracker.deliver(run) is False
    write_epochs(run, 3)
    write_result(run)
    assert tracker.deliver(run) is True
    delivery = read_delivery(run, store)
    assert (delivery.epochs, delivery.done) == (3, True)
    assert history(store, run, "time/epoch_s") == [(n, metrics_of(n)["time/epoch_s"]) for n in range(3)]
    found = client_of(store).get_run(delivery.run_id)
    assert found.info.status == "FINISHED"
    assert "train.batch_size" not in found.data.params, "a null says nothing"
    assert found.data.params["model.hidden"] == "64"
    assert not any(name.startswith("tracker") for name in found.data.params)
    tags = found.data.tags
    assert (tags["system"], tags["dataset"], tags["paradigm"]) == ("dgl", "digits", "data_parallel")
    assert tags["run_dir"] == f"{platform.node()}:{run}" and tags["status"] == "finished"
    assert found.data.metrics["main/test"] == metrics_of(2)["acc/test"]
    assert not any(name.startswith("summary/") for name in found.data.metrics)
    names = {item.path for item in client_of(store).list_artifacts(delivery.run_id)}
    assert names == {"config.yaml", "result.json", "epochs.jsonl", "logs"}
    assert MlflowTracker(store).deliver(run) is True, "a second delivery changes nothing"
    assert len(history(store, run, "time/epoch_s")) == 3


@pytest.mark.parametrize("lost", ["everything", "last epoch", "end"])
def test_bookkeeping_behind_the_store_duplicates_nothing(tmp_path: Path, store: str, lost: str) -> None:
    run = tmp_path / "run"
    write_job(run, uid=str(run))
    write_epochs(run, 3)
    if lost == "end":
        write_result(run)
    MlflowTracker(store).deliver(run)
    bookkeeping = json.loads((run / DELIVERY_FILE).read_text())
    run_id = bookkeeping["run_id"]
    if lost == "everything":
        (run / DELIVERY_FILE).unlink()
    else:
        (run / DELIVERY_FILE).write_text(json.dumps(bookkeeping | {"epochs": 2, "done": False}))
    write_epochs(run, 4)
    write_result(run)
    assert MlflowTracker(store).deliver(run) is True
    assert read_delivery(run, store).run_id == run_id, "the same run in the store"
    assert [step for step, _ in history(store, run, "loss/train")] == [0, 1, 2, 3]
    found = client_of(store).search_runs(["1"], f"tags.`gnnexp.uid` = '{run}'")
    assert len(found) == 1


def _sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request that makes a run is sent again, because its answer was lost: the server makes two runs."""
    from mlflow import MlflowClient

    create = MlflowClient.create_run

    def twice(*arguments: Any, **more: Any) -> object:
        create(*arguments, **more)
        return create(*arguments, **more)

    monkeypatch.setattr(MlflowClient, "create_run", twice)


def _runs_of(store: str, uid: str) -> list[Any]:
    experiment = client_of(store).get_experiment_by_name("gnnexp")
    return list(client_of(store).search_runs([experiment.experiment_id], f"tags.`gnnexp.uid` = '{uid}'"))


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_run_whose_creation_was_sent_twice_is_one_run(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch, *, forgotten: bool
) -> None:
    run = tmp_path / "run"
    write_job(run, uid=str(run))
    write_epochs(run, 2)
    _sent_twice(monkeypatch)
    MlflowTracker(store).deliver(run)
    assert len(_runs_of(store, str(run))) == 2
    if forgotten:  # its bookkeeping is lost: the run with contents is found, not the empty one
        (run / DELIVERY_FILE).unlink()
    write_epochs(run, 3)
    write_result(run)
    assert MlflowTracker(store).deliver(run) is True
    (only,) = _runs_of(store, str(run))
    assert only.info.status == "FINISHED" and only.info.run_id == read_delivery(run, store).run_id
    assert len(history(store, run, "time/epoch_s")) == 3


def test_a_failed_run_is_delivered_as_failed(tmp_path: Path, store: str) -> None:
    run = tmp_path / "run"
    write_job(run, uid=str(run))
    write_result(run, "failed", "rank 1 failed in phase load: gone")
    assert MlflowTracker(store).deliver(run) is True
    found = client_of(store).get_run(read_delivery(run, store).run_id)
    assert found.info.status == "FAILED" and "rank 1" in found.data.tags["reason"]


def test_a_store_that_is_away_is_one_error_and_the_run_can_be_delivered_later(tmp_path: Path, store: str) -> None:
    run = tmp_path / "runs" / "a"
    write_job(run, uid=str(run))
    write_epochs(run, 2)
    write_result(run)
    away = f"sqlite:///{tmp_path / 'no' / 'folder' / 'mlflow.db'}"
    with pytest.raises(TrackingError, match="no folder"):
        MlflowTracker(away).deliver(run)
    write_job(tmp_path / "runs" / ".b.new", uid="b")  # a run directory that is being made
    assert undelivered(tmp_path, store) == [run]
    assert MlflowTracker(store).deliver(run) is True
    assert undelivered(tmp_path, store) == []


def test_nothing_listens(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_job(run)
    with pytest.raises(TrackingError):
        MlflowTracker("http://127.0.0.1:9", timeout_s=3.0).deliver(run)
    assert not (run / DELIVERY_FILE).exists()


def test_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@host:5000")
    assert MlflowTracker().where() == "http://host:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.chdir(tmp_path)
    assert MlflowTracker().uri == f"sqlite:///{tmp_path}/mlflow.db"
    with pytest.raises(ConfigError, match="password"):
        MlflowTracker("http://user:secret@host:5000")


def test_two_processes_that_deliver_one_run_make_one_run_of_it(tmp_path: Path, store: str) -> None:
    run, barrier = tmp_path / "run", threading.Barrier(2)
    write_job(run, uid=str(run))
    write_epochs(run, 3)
    write_result(run)
    trackers = [MlflowTracker(store), MlflowTracker(store)]
    for tracker in trackers:
        tracker._client = Meeting(tracker._connect(), barrier)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda tracker: tracker.deliver(run), trackers)) == [True, True]
    found = client_of(store).search_runs([trackers[0]._experiment_id], f"tags.`gnnexp.uid` = '{run}'")
    assert [one.info.status for one in found] == ["FINISHED"]
    assert len(history(store, run, "loss/train")) == 3


def test_a_frozen_delivery_is_not_waited_for_for_ever(tmp_path: Path, store: str) -> None:
    run = tmp_path / "run"
    write_job(run, uid=str(run))
    write_epochs(run, 2)
    MlflowTracker(store).deliver(run)
    write_result(run)
    with delivering(run, 1.0):
        with pytest.raises(TrackingError, match=rf"process {os.getpid()} has held .*delivery\.lock"):
            MlflowTracker(store, timeout_s=0.2).deliver(run)
        with pytest.raises(ConfigError, match="end that process"):
            reopen(run, 0.2)
    assert not read_delivery(run, store).reopened
    reopen(run, 0.2)
    assert read_delivery(run, store).reopened and read_delivery(run, store).epochs == 2


def connect(uri: str) -> str:
    tracker = MlflowTracker(uri)
    tracker._connect()
    return tracker._experiment_id


@pytest.mark.slow
def test_launchers_that_start_together_share_one_new_store(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(3, mp_context=context) as pool:
        assert len(set(pool.map(connect, [uri] * 3))) == 1
