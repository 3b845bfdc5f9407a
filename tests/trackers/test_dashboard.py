"""What a user finds in MLflow: runs by tags, parameters and main figures, words and commands, a sweep's report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_folder import metrics_of, write_epochs, write_job, write_result

from gnnexp.trackers.base import TrackingError
from gnnexp.trackers.delivery import DELIVERY_FILE, ReportRecord, undelivered_reports
from gnnexp.trackers.follow import start_delivery
from gnnexp.trackers.mlflow import MlflowTracker
from gnnexp.trackers.view import VIEW_KEY

RANKS = 2
GRAPH = {"num_nodes": 1797, "num_edges": 24678}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, mlflow_store: Callable[[Path], str]) -> str:
    """A store with three runs: exact, not exact, failed."""
    folder = tmp_path_factory.mktemp("dashboard")
    uri = mlflow_store(folder)
    tracker = MlflowTracker(uri)
    for name, exact in (("exact", True), ("inexact", False), ("failed", None)):
        run = folder / name
        write_job(
            run,
            uid=name,
            sweep=None if exact else "mine",
            reproduce="gnnexp run system=dgl a='b c'",
            code_version="0.1.0+abc123-dirty",
            dataset_key="d" * 64,
            graph=GRAPH,
        )
        write_epochs(run, 3)
        (run / "figures").mkdir()
        (run / "figures" / "breakdown.png").write_bytes(b"png")
        if exact is None:
            write_result(run, "failed", "rank 1 failed: gone")
        else:
            write_result(run, paradigm={"exact": exact, "approximates": "" if exact else "rows are old"})
        tracker.deliver(run)
    return uri


@pytest.fixture
def search(store: str) -> Callable[[str], list[Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("gnnexp").experiment_id
    return lambda wanted: list(client.search_runs([experiment], wanted))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("tags.system = 'dgl'", {"exact", "inexact", "failed"}),
        ("tags.system = 'gsplit'", set()),
        ("tags.dataset = 'digits' and tags.model = 'sage'", {"exact", "inexact", "failed"}),
        ("tags.paradigm = 'data_parallel' and tags.ranks = '2'", {"exact", "inexact", "failed"}),
        ("tags.sweep = 'mine'", {"inexact", "failed"}),
        ("tags.exact = 'true'", {"exact"}),
        ("tags.exact = 'false'", {"inexact"}),
        ("tags.status = 'failed'", {"failed"}),
        ("tags.status = 'finished' and tags.kind = 'run'", {"exact", "inexact"}),
        ("params.dataset = 'digits' and params.ranks = '2' and params.seed = '0'", {"exact", "inexact", "failed"}),
        (
            "params.system = 'dgl' and params.model = 'sage' and params.paradigm = 'data_parallel'",
            {"exact", "inexact", "failed"},
        ),
        ("metrics.`main/epoch_s` < 1 and metrics.`main/test` > 0.7", {"exact", "inexact", "failed"}),
        ("dataset.name = 'digits'", {"exact", "inexact", "failed"}),
        ("attributes.status = 'FAILED'", {"failed"}),
    ],
)
def test_filters_find_runs(search: Callable[[str], list[Any]], wanted: str, found: set[str]) -> None:
    assert {run.data.tags["gnnexp.uid"] for run in search(wanted)} == found


def test_the_main_figures_are_the_reports(search: Callable[[str], list[Any]]) -> None:
    (run,) = search("tags.exact = 'true'")
    metrics = {
        name.removeprefix("main/"): value for name, value in run.data.metrics.items() if name.startswith("main/")
    }
    assert metrics == {
        "test": metrics_of(2)["acc/test"],
        "val": metrics_of(2)["acc/val"],
        "epoch_s": 0.8,
        "sent_MB": 0.001,
    }


def test_a_run_tells_its_name_and_the_command_that_makes_it_again(search: Callable[[str], list[Any]]) -> None:
    (run,) = search("tags.exact = 'false'")
    assert run.info.run_name == "dgl digits sage, 2 ranks, seed 0"
    note = run.data.tags["mlflow.note.content"]
    assert "```\ngnnexp run system=dgl a='b c'\n```" in note and "Not exact: rows are old." in note
    assert "| acc/test % | epoch s (median) | sent MB per epoch |" in note and "| 72.00 | 0.8000 | 0.001 |" in note
    assert run.data.tags["mlflow.source.git.commit"] == "abc123"
    (data,) = run.inputs.dataset_inputs
    assert data.dataset.name == "digits" and json.loads(data.dataset.profile) == GRAPH
    (failed,) = search("tags.status = 'failed'")
    assert failed.data.tags["mlflow.note.content"].startswith("**failed**: rank 1 failed: gone")


def test_figures_are_artifacts(store: str, search: Callable[[str], list[Any]]) -> None:
    from mlflow import MlflowClient

    (run,) = search("tags.exact = 'true'")
    listed = MlflowClient(tracking_uri=store).list_artifacts(run.info.run_id, "figures")
    assert [item.path for item in listed] == ["figures/breakdown.png"]


def test_the_experiment_opens_with_the_columns_that_exist(store: str, search: Callable[[str], list[Any]]) -> None:
    from mlflow import MlflowClient

    tracker = MlflowTracker(store)
    assert tracker.view("http://127.0.0.1:5000").endswith(f"&viewStateShareKey={VIEW_KEY}")
    tags = MlflowClient(tracking_uri=store).get_experiment_by_name("gnnexp").tags
    assert "tags.status" in tags["mlflow.note.content"]
    columns = json.loads(tags[f"mlflow.sharedViewState.{VIEW_KEY}"])["selectedColumns"]
    (run,) = search("tags.exact = 'false'")
    known = {
        *(f"tags.`{name}`" for name in run.data.tags),
        *(f"params.`{name}`" for name in run.data.params),
        *(f"metrics.`{name}`" for name in run.data.metrics),
    }
    unknown = set(columns) - known
    assert unknown == {
        "metrics.`main/host_MB`",
        "metrics.`main/device_MB`",
        "metrics.`main/time_to_target_s`",
        "params.`partitioner`",
        "tags.`host`",
        "tags.`gpu`",
        "tags.`cpu`",
    }, "those that these runs, without memory, target, partitioner and machine, do not record"


def test_an_experiment_of_an_earlier_version_is_described_and_its_users_words_stay(
    tmp_path: Path, mlflow_store: Callable[[Path], str]
) -> None:
    from mlflow import MlflowClient

    uri = mlflow_store(tmp_path)
    client = MlflowClient(tracking_uri=uri)
    client.create_experiment("gnnexp", tags={"mlflow.note.content": "mine", "mlflow.sharedViewState.gnnexp": "old"})
    MlflowTracker(uri).view("http://x")
    tags = client.get_experiment_by_name("gnnexp").tags
    assert tags["mlflow.note.content"] == "mine" and "selectedColumns" in tags["mlflow.sharedViewState.gnnexp"]


def write_report(folder: Path, uri: str, digest: str = "one", status: str = "finished", text: str = "first") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_text(text)
    (folder / "table.csv").write_text("a,b\n")
    tracker = {"_target_": "gnnexp.trackers.mlflow.MlflowTracker", "uri": uri}
    ReportRecord(
        f"uid of {folder}", "mine", digest, status, f"note {text}", ["report.html", "table.csv"], tracker
    ).save(folder)


def test_a_report_is_one_run_however_often_it_is_made(
    store: str, search: Callable[[str], list[Any]], tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    folder = tmp_path / "reports" / "mine"
    write_report(folder, store, status="failed")
    assert undelivered_reports(tmp_path, store) == [folder]
    assert start_delivery(folder).finish(200) is None, "by the process that delivers runs"
    assert undelivered_reports(tmp_path, store) == []
    (run,) = search("tags.gnnexp.sweep = 'mine'")
    assert run.info.status == "FAILED" and run.info.run_name == "sweep mine" and run.data.tags["kind"] == "sweep"
    before = run.info.end_time
    tracker = MlflowTracker(store)
    assert tracker.deliver_report(folder)
    assert search("tags.kind = 'sweep'")[0].info.end_time == before, "nothing to deliver, nothing delivered"

    write_report(folder, store, "two", text="second")
    (folder / DELIVERY_FILE).unlink()  # as if a process had died before it could note what it did
    assert undelivered_reports(tmp_path, store) == [folder] and tracker.deliver_report(folder)
    (again,) = search("tags.kind = 'sweep'")
    assert again.info.run_id == run.info.run_id and again.info.status == "FINISHED"
    assert again.data.tags["mlflow.note.content"] == "note second"
    client = MlflowClient(tracking_uri=store)
    assert {item.path for item in client.list_artifacts(run.info.run_id)} == {"report.html", "table.csv"}
    there = client.download_artifacts(run.info.run_id, "report.html", str(tmp_path))
    assert Path(there).read_text() == "second"
    client.delete_run(run.info.run_id)  # the store is shared by the tests of this module


def test_a_store_that_is_away_gets_the_report_later(
    store: str, search: Callable[[str], list[Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "reports" / "mine"
    away = f"sqlite:///{tmp_path / 'no' / 'folder' / 'mlflow.db'}"
    write_report(folder, away)
    with pytest.raises(TrackingError, match="no folder"):
        MlflowTracker(away).deliver_report(folder)
    assert "no folder" in str(start_delivery(folder).finish(200))
    assert undelivered_reports(tmp_path, store) == [folder], "whatever another store has"
    assert not search("tags.kind = 'sweep'")
