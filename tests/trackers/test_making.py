"""A store is complete or is as it was: whoever makes it, and whatever happens meanwhile."""

from __future__ import annotations

import concurrent.futures
import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from full_disk import remount, room_for, small_disk
from mlflow_stores import answers, cached, execute, make_foreign, make_half, make_newer, make_older, migrated_here
from run_folder import write_epochs, write_job, write_result

from gnnexp.trackers import making
from gnnexp.trackers.base import TrackingError
from gnnexp.trackers.delivery import ReportRecord, read_delivery
from gnnexp.trackers.making import HeldError, make_complete
from gnnexp.trackers.mlflow import MlflowTracker
from gnnexp.trackers.schema import StoreState, examine

__all__ = ["cached", "migrated_here"]


def silent(line: str) -> None:
    """Nobody reads it."""


def finished_run(folder: Path) -> Path:
    write_job(folder, uid=str(folder))
    write_epochs(folder, 2)
    write_result(folder)
    return folder


def others(folder: Path, *but: str) -> list[str]:
    """What is in a folder except the store, its lock and the cache."""
    return sorted({path.name for path in folder.iterdir()} - {"mlflow.db", "mlflow.db.lock", "cache", *but})


def test_several_makers_at_once_make_it_once(tmp_path: Path, migrated_here: list[Path]) -> None:
    file = tmp_path / "mlflow.db"
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: make_complete(file, silent), range(4)))
    assert len(migrated_here) == 1 and examine(file).state is StoreState.COMPLETE and others(tmp_path) == []
    (tmp_path / "second").mkdir()
    make_complete(tmp_path / "second" / "mlflow.db", silent)
    assert len(migrated_here) == 1, "it is a copy of the one in the cache"
    tracker = MlflowTracker(f"sqlite:///{tmp_path}/second/mlflow.db")
    assert tracker.deliver(finished_run(tmp_path / "run"))
    ((place,),) = answers(
        tmp_path / "second" / "mlflow.db", "SELECT artifact_location FROM experiments WHERE name = 'gnnexp'"
    )
    assert str(place).endswith("second/mlartifacts/gnnexp"), "of this store, not of the first"


def test_a_damaged_store_in_the_cache_is_made_again(tmp_path: Path, cached: Path, migrated_here: list[Path]) -> None:
    cached.write_bytes(cached.read_bytes()[:20_000])
    make_complete(tmp_path / "mlflow.db", silent)
    assert len(migrated_here) == 1 and examine(tmp_path / "mlflow.db").state is StoreState.COMPLETE
    assert examine(cached).state is StoreState.COMPLETE


def test_a_half_made_store_is_set_aside_and_filled_again(
    tmp_path: Path, mlflow_store: Callable[[Path], str], cached: Path, migrated_here: list[Path]
) -> None:
    uri, file = mlflow_store(tmp_path), tmp_path / "mlflow.db"
    run, gone = finished_run(tmp_path / "runs" / "first"), finished_run(tmp_path / "gone")
    report = tmp_path / "reports" / "mine"
    report.mkdir(parents=True)
    ReportRecord(
        "uid of a sweep",
        "mine",
        "digest",
        "finished",
        "note",
        [],
        {"_target_": "gnnexp.trackers.mlflow.MlflowTracker", "uri": uri},
    ).save(report)
    tracker = MlflowTracker(uri)
    assert tracker.deliver(run) and tracker.deliver(gone) and tracker.deliver_report(report)
    shutil.rmtree(gone)
    make_half(file)
    before, said = answers(file, "SELECT * FROM metrics"), list[str]()
    make_complete(file, said.append, [tmp_path / "reports"])
    assert answers(tmp_path / "mlflow.db.half-made", "SELECT * FROM metrics") == before, "no data of a user is lost"
    assert "It held 3 runs: 2 of them" in said[-1] and "1 are only in mlflow.db.half-made" in said[-1]
    assert not read_delivery(run, uri).done and not read_delivery(report, uri).digest
    assert MlflowTracker(uri).deliver(run) and MlflowTracker(uri).deliver_report(report)
    assert len(answers(file, "SELECT * FROM runs")) == 2
    make_complete(file, said.append)
    assert len([line for line in said if "half made (" in line]) == 1


def test_an_older_store_is_upgraded_and_its_earlier_state_kept(
    tmp_path: Path, mlflow_store: Callable[[Path], str], migrated_here: list[Path]
) -> None:
    uri, file, run = mlflow_store(tmp_path), tmp_path / "mlflow.db", finished_run(tmp_path / "run")
    assert MlflowTracker(uri).deliver(run)
    revision = make_older(file)
    before, said = answers(file, "SELECT * FROM metrics"), list[str]()
    with closing(sqlite3.connect(file)) as reader:  # as a dashboard that is open meanwhile
        assert reader.execute("SELECT count(*) FROM runs").fetchone() == (1,)
        make_complete(file, said.append)
        assert reader.execute("SELECT version_num FROM alembic_version").fetchone() != (revision,)
    assert examine(file).state is StoreState.COMPLETE and answers(file, "SELECT * FROM metrics") == before
    kept = tmp_path / f"mlflow.db.schema-{revision}"
    assert examine(kept).detail == revision and answers(kept, "SELECT * FROM metrics") == before
    assert kept.name in said[-1] and others(tmp_path, "mlartifacts", "run") == [kept.name]
    assert read_delivery(run, uri).done, "nothing is delivered twice"


def test_a_program_that_writes_during_the_upgrade_loses_nothing(
    tmp_path: Path, mlflow_store: Callable[[Path], str], migrated_here: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow_store(tmp_path)
    revision, migrate = make_older(file := tmp_path / "mlflow.db"), making._migrate

    def meanwhile(new: Path) -> None:
        execute(file, "INSERT INTO experiments (name, experiment_id) VALUES ('theirs', 77)")
        migrate(new)

    monkeypatch.setattr(making, "_migrate", meanwhile)
    with pytest.raises(HeldError, match="changed"):
        make_complete(file, silent)
    assert examine(file).detail == revision and answers(file, "SELECT name FROM experiments WHERE experiment_id = 77")
    assert others(tmp_path) == []


@pytest.mark.parametrize("spoil", [make_newer, make_foreign, lambda file: file.write_bytes(b"text" * 999)])
def test_what_is_no_store_of_this_mlflow_is_left_alone(
    tmp_path: Path, mlflow_store: Callable[[Path], str], spoil: Callable[[Path], None]
) -> None:
    file = tmp_path / "mlflow.db"
    if spoil is not make_foreign:
        mlflow_store(tmp_path)
    spoil(file)
    before = file.read_bytes()
    with pytest.raises(TrackingError, match="Fix: "):
        make_complete(file, silent)
    (problem,) = MlflowTracker(f"sqlite:///{file}").check_here()
    assert problem.key == "tracker.uri" and file.read_bytes() == before and list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_nothing(tmp_path: Path, migrated_here: list[Path]) -> None:
    with room_for(300_000), pytest.raises(TrackingError, match=r"disk|full|larger"):
        MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}").prepare(silent)
    assert others(tmp_path) == [] and not (tmp_path / "mlflow.db").exists()


def test_a_copy_from_the_cache_on_a_full_disk_leaves_nothing(tmp_path: Path, cached: Path) -> None:
    with room_for(300_000), pytest.raises(TrackingError, match="larger than files may be"):
        MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}").prepare(silent)
    assert others(tmp_path) == [] and not (tmp_path / "mlflow.db").exists()


def test_an_upgrade_on_a_full_disk_leaves_the_store_as_it_was(
    tmp_path: Path, mlflow_store: Callable[[Path], str], migrated_here: list[Path]
) -> None:
    mlflow_store(tmp_path)
    revision = make_older(file := tmp_path / "mlflow.db")
    with room_for(file.stat().st_size - 100_000), pytest.raises(TrackingError):
        MlflowTracker(f"sqlite:///{file}").prepare(silent)
    assert examine(file).detail == revision and others(tmp_path) == []


def test_a_read_only_disk_is_a_problem_before_the_launch(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        remount(disk, "ro")
        (problem,) = MlflowTracker(f"sqlite:///{disk}/mlflow.db").check_here()
        assert "may not be written to" in problem.allowed
        with pytest.raises(TrackingError, match="read-only"):
            MlflowTracker(f"sqlite:///{disk}/mlflow.db").prepare(silent)


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("gnnexp.files.disk.fcntl.flock", refuse)
    with pytest.raises(TrackingError, match="no file locks"):
        MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}").prepare(silent)
    assert not (tmp_path / "mlflow.db").exists()


def test_leftovers_of_a_removed_database_are_set_aside(tmp_path: Path, cached: Path) -> None:
    """SQLite would take them for a part of the new one."""
    for end in ("-journal", "-wal"):
        (tmp_path / f"mlflow.db{end}").write_bytes(b"earlier")
    make_complete(tmp_path / "mlflow.db", silent)
    assert others(tmp_path) == ["mlflow.db.removed-journal", "mlflow.db.removed-wal"]
    assert examine(tmp_path / "mlflow.db").state is StoreState.COMPLETE


def test_a_link_to_a_store_stays_a_link(tmp_path: Path, cached: Path) -> None:
    (tmp_path / "far").mkdir()
    (link := tmp_path / "mlflow.db").symlink_to(tmp_path / "far" / "store.db")
    make_complete(link, silent)
    assert link.is_symlink() and examine(tmp_path / "far" / "store.db").state is StoreState.COMPLETE
    assert making.lock_of(link) == tmp_path / "far" / "store.db.lock"


def test_a_held_store_is_left_to_the_delivery(tmp_path: Path, mlflow_store: Callable[[Path], str]) -> None:
    uri = mlflow_store(tmp_path)
    with closing(sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        assert MlflowTracker(uri).check_here() == [] and MlflowTracker(uri).prepare(silent) is False
        with pytest.raises(TrackingError, match="another process holds"):
            MlflowTracker(uri, timeout_s=0.1).deliver(finished_run(tmp_path / "run"))
    assert MlflowTracker(uri).prepare(silent) is True


@pytest.mark.slow
@pytest.mark.interpreter
def test_a_maker_that_is_killed_leaves_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    (place := tmp_path / "place").mkdir()
    program = (
        "import pathlib, sys; from gnnexp.trackers.making import make_complete; "
        "make_complete(pathlib.Path(sys.argv[1]), print)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(place / "mlflow.db")], start_new_session=True) as maker:
        while not any(path.stat().st_size for path in place.glob(".gnnexp-*.store/new.db")):
            assert maker.poll() is None
        os.killpg(maker.pid, signal.SIGKILL)
    (hidden,) = place.glob(".gnnexp-*.store")
    assert not (place / "mlflow.db").exists()
    os.utime(hidden, (0, 0))
    make_complete(place / "mlflow.db", silent)
    assert examine(place / "mlflow.db").state is StoreState.COMPLETE
    assert others(place) == [], "what it left is removed"
