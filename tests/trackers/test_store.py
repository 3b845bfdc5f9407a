"""Where SQLite is refused, and what a sweep's run in the store is, whoever makes it."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from meeting_client import Meeting
from mlflow_stores import make_half, make_newer
from run_folder import write_epochs, write_job, write_result

from gnnexp.trackers.delivery import ReportRecord, read_delivery
from gnnexp.trackers.mlflow import MlflowTracker
from gnnexp.trackers.store import network_file_system, network_problems, server_refusal, sqlite_file


def mounted(monkeypatch: pytest.MonkeyPatch, *mounts: tuple[str, str]) -> None:
    found = [SimpleNamespace(mountpoint=place, fstype=kind) for place, kind in mounts]
    monkeypatch.setattr(psutil, "disk_partitions", lambda *, all: found)


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "lustre", "cifs", "smb3", "beegfs", "gpfs", "ceph", "fuse.sshfs", "9p"]
)
def test_sqlite_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    mounted(monkeypatch, ("/", "ext4"), (str(tmp_path), kind), (str(tmp_path / "scratch"), "xfs"))
    uri = f"sqlite:///{tmp_path}/not/there/yet/mlflow.db"
    (problem,) = MlflowTracker(uri).check_here()
    assert problem.key == "tracker.uri" and kind in problem.allowed and "mlflow server" in problem.fix
    assert MlflowTracker("http://127.0.0.1:5000").check_here() == []
    assert network_problems(f"sqlite:///{tmp_path}/scratch/mlflow.db") == []
    monkeypatch.chdir(tmp_path)
    assert network_problems("sqlite:///mlflow.db?timeout=5") != [], "a relative path"


def test_a_link_to_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    mounted(monkeypatch, ("/", "ext4"), (str(tmp_path / "far"), "nfs4"), (str(tmp_path / "farther"), "nfs4"))
    assert network_file_system(tmp_path / "near" / "mlflow.db") == "nfs4"
    assert network_file_system(tmp_path / "fa") == ""
    mounted(monkeypatch, (str(tmp_path), "nfs4"), (str(tmp_path), "ext4"))
    assert network_file_system(tmp_path / "mlflow.db") == "", "the later mount hides the earlier one"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, mlflow_store: Callable[[Path], str]) -> str:
    return mlflow_store(tmp_path_factory.mktemp("sweeps"))


@pytest.fixture
def sweep(store: str, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A sweep of its own: a function that makes its runs, and one that finds runs in the store."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    uid = f"sweep {tmp_path}"

    def run(name: str, **provenance: object) -> Path:
        folder = tmp_path / name
        write_job(folder, uid=f"{uid} {name}", **{"sweep": "mine", "sweep_uid": uid, "label": name} | provenance)
        write_epochs(folder, 2)
        write_result(folder)
        return folder

    def tags(folder: Path) -> dict[str, str]:
        return dict(client.get_run(read_delivery(folder, store).run_id).data.tags)

    def parents() -> list[Any]:
        experiment = client.get_experiment_by_name("gnnexp").experiment_id
        return list(client.search_runs([experiment], f"tags.`gnnexp.uid` = '{uid}'"))

    yield SimpleNamespace(run=run, tags=tags, parents=parents, client=client, uid=uid)
    for one in parents():
        client.delete_run(one.info.run_id)


def report_of(
    folder: Path, uid: str, store: str, digest: str = "one", verdicts: Mapping[str, str] | None = None
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "report.html").write_text("report")
    ReportRecord(
        uid,
        "mine",
        digest,
        "finished",
        "note",
        ["report.html"],
        {"_target_": "gnnexp.trackers.mlflow.MlflowTracker", "uri": store},
        verdicts=verdicts or {},
    ).save(folder)
    return folder


def test_the_runs_of_a_sweep_are_below_its_run_which_gets_the_report(
    sweep: SimpleNamespace, store: str, tmp_path: Path
) -> None:
    first, second, other = sweep.run("a=1"), sweep.run("a=2"), sweep.run("alone", sweep=None, sweep_uid=None)
    tracker = MlflowTracker(store)
    tracker.deliver(first, end=False)
    (parent,) = sweep.parents()
    assert parent.info.status == "RUNNING" and parent.info.run_name == "sweep mine"
    assert parent.data.tags["kind"] == "sweep" and "gnnexp report mine" in parent.data.tags["mlflow.note.content"]
    for run in (first, second, other):
        assert MlflowTracker(store).deliver(run)
    assert {sweep.tags(run).get("mlflow.parentRunId") for run in (first, second)} == {parent.info.run_id}
    assert "mlflow.parentRunId" not in sweep.tags(other)
    tracker.deliver_report(report_of(tmp_path / "report", sweep.uid, store))
    (reported,) = sweep.parents()
    assert reported.info.run_id == parent.info.run_id and reported.info.status == "FINISHED"
    late = sweep.run("a=3")
    tracker.deliver(late)
    assert sweep.tags(late)["mlflow.parentRunId"] == parent.info.run_id, "also after the report"


@pytest.mark.parametrize("locked", [True, False])
def test_two_processes_that_deliver_together_have_one_parent(
    sweep: SimpleNamespace, store: str, monkeypatch: pytest.MonkeyPatch, *, locked: bool
) -> None:
    """A server cannot be locked, so both may make a run of the sweep: they agree on the same one."""
    runs, trackers = [sweep.run("a=1"), sweep.run("a=2")], [MlflowTracker(store), MlflowTracker(store)]
    barrier = threading.Barrier(2)
    for tracker in trackers:
        tracker._client = Meeting(tracker._connect(), barrier)
        if not locked:
            monkeypatch.setattr(tracker, "_alone", nullcontext)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: one[0].deliver(one[1]), zip(trackers, runs, strict=True)))
    (parent,) = sweep.parents()
    assert {sweep.tags(run)["mlflow.parentRunId"] for run in runs} == {parent.info.run_id}


def test_the_report_joins_parents_that_were_made_twice(sweep: SimpleNamespace, store: str, tmp_path: Path) -> None:
    """As after an answer of the server that was lost, and a run that was placed below the second one."""
    run, foreign = sweep.run("a=1"), sweep.run("foreign", sweep_uid="of another sweep")
    tracker = MlflowTracker(store)
    tracker.deliver(foreign)
    experiment = sweep.client.get_experiment_by_name("gnnexp").experiment_id
    double = sweep.client.create_run(experiment, start_time=10**15, tags={"gnnexp.uid": sweep.uid}).info.run_id
    tracker.deliver(run)
    assert sweep.tags(run)["mlflow.parentRunId"] == double
    before = sweep.tags(foreign)["mlflow.parentRunId"]
    first = sweep.client.create_run(experiment, start_time=1, tags={"gnnexp.uid": sweep.uid}).info.run_id
    tracker.deliver_report(report_of(tmp_path / "report", sweep.uid, store))
    assert [one.info.run_id for one in sweep.parents()] == [first]
    assert sweep.tags(run)["mlflow.parentRunId"] == first
    assert sweep.tags(foreign)["mlflow.parentRunId"] == before != first


def test_a_report_of_an_earlier_version_stays_the_same_run(sweep: SimpleNamespace, store: str, tmp_path: Path) -> None:
    folder = report_of(tmp_path / "report", sweep.uid, store)
    MlflowTracker(store).deliver_report(folder)
    old = sweep.run("old", sweep_uid=None)
    new = sweep.run("new")
    for run in (old, new):
        MlflowTracker(store).deliver(run)
    (parent,) = sweep.parents()
    assert sweep.tags(new)["mlflow.parentRunId"] == parent.info.run_id
    MlflowTracker(store).deliver_report(report_of(folder, sweep.uid, store, "two"))
    assert "mlflow.parentRunId" not in sweep.tags(old), "it keeps its place"
    assert len(sweep.parents()) == 1


def test_the_verdicts_of_a_report_are_tags_and_old_ones_go(sweep: SimpleNamespace, store: str, tmp_path: Path) -> None:
    verdicts = {
        "fastest": "dgl",
        "verdict gsplit acc/test %": "difference +0.09 (-1 to 1): undecided",
        "verdict p3 epoch s": "x",
    }
    MlflowTracker(store).deliver_report(report_of(tmp_path / "report", sweep.uid, store, "one", verdicts))
    (parent,) = sweep.parents()
    assert parent.data.tags["fastest"] == "dgl"
    assert parent.data.tags["verdict gsplit acc/test"] == "difference +0.09 (-1 to 1): undecided"
    del verdicts["verdict p3 epoch s"]
    MlflowTracker(store).deliver_report(report_of(tmp_path / "report", sweep.uid, store, "two", verdicts))
    (parent,) = sweep.parents()
    assert [key for key in parent.data.tags if key.startswith("verdict")] == ["verdict gsplit acc/test"]


def test_where_no_store_can_be_is_a_problem_before_the_launch(tmp_path: Path) -> None:
    (problem,) = MlflowTracker(f"sqlite:///{tmp_path}/gone/mlflow.db").check_here()
    assert "there is no folder" in problem.allowed and "mkdir -p" in problem.fix and list(tmp_path.iterdir()) == []
    (problem,) = MlflowTracker("sqlite:///:memory:").check_here()
    assert "memory" in problem.allowed
    assert MlflowTracker(f"sqlite+pysqlite:///{tmp_path}/mlflow.db").check_here() == []
    assert sqlite_file("sqlite+pysqlite:////disk/mlflow.db?timeout=5") == Path("/disk/mlflow.db")
    assert sqlite_file("postgresql://host/name") is None


def test_a_database_server_is_not_upgraded_but_named(tmp_path: Path, mlflow_store: Callable[[Path], str]) -> None:
    """SQLAlchemy reads every database in the same way."""
    assert server_refusal(f"sqlite:///{tmp_path / 'empty.db'}") is None, "MLflow makes its tables"
    uri = mlflow_store(tmp_path)
    assert server_refusal(uri) is None
    make_half(tmp_path / "mlflow.db")
    assert f"mlflow db upgrade {uri}" in str(server_refusal(uri))
    make_newer(tmp_path / "mlflow.db")
    assert "--upgrade mlflow" in str(server_refusal(uri))
