"""What a file is as a store, by one look that changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from mlflow_stores import execute, make_foreign, make_half, make_newer

from gnnexp.trackers.schema import StoreState, examine, problem_of, revisions


def test_revisions_are_those_of_mlflow() -> None:
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    script = ScriptDirectory.from_config(_get_alembic_config(""))
    assert [revisions().newest] == script.get_heads()
    assert revisions().all == {one.revision for one in script.walk_revisions()}


def test_every_file_is_one_of_them(tmp_path: Path, mlflow_store: Callable[[Path], str]) -> None:
    file = tmp_path / "mlflow.db"
    assert examine(file).state is StoreState.ABSENT and not file.exists()
    file.touch()
    assert examine(file).state is StoreState.ABSENT
    mlflow_store(tmp_path)
    before = file.read_bytes()
    assert examine(file).state is StoreState.COMPLETE and file.read_bytes() == before
    execute(file, "PRAGMA journal_mode = wal")
    assert examine(file).state is StoreState.COMPLETE
    make_half(file)
    assert examine(file).state is StoreState.BEHIND
    make_newer(file)
    found = examine(file)
    assert found.state is StoreState.NEWER
    problem = problem_of(file, found)
    assert problem and "f00f00f00f00" in problem.allowed and "--upgrade mlflow" in problem.fix
    execute(file, "DROP TABLE alembic_version")
    assert examine(file).state is StoreState.BEHIND, "MLflow before 1.0, or half made at its very first step"


def test_a_database_of_another_program(tmp_path: Path) -> None:
    make_foreign(file := tmp_path / "optuna.db")
    found = examine(file)
    assert found.state is StoreState.FOREIGN and "studies" in found.detail
    problem = problem_of(file, found)
    assert problem and "another program" in problem.allowed
    execute(other := tmp_path / "lab.db", "CREATE TABLE experiments (id, name)")
    assert examine(other).state is StoreState.FOREIGN, "its table has the name of one of MLflow's"


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 2000])
def test_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    (file := tmp_path / "mlflow.db").write_bytes(content)
    found = examine(file)
    assert found.state is StoreState.DAMAGED and file.read_bytes() == content
    problem = problem_of(file, found)
    assert problem and "is damaged" in problem.allowed and "report --sync" in problem.fix


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    assert examine(tmp_path).state is StoreState.DAMAGED


def test_a_file_that_another_process_holds(tmp_path: Path, mlflow_store: Callable[[Path], str]) -> None:
    mlflow_store(tmp_path)
    with closing(sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        assert examine(tmp_path / "mlflow.db").state is StoreState.BUSY
