"""Stores of MLflow in states that users meet: of an older or a newer MLflow, and left half made."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gnnexp.trackers import making, migrate
from gnnexp.trackers.schema import revisions


def execute(file: Path, *lines: str) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        for line in lines:
            database.execute(line)


def answers(file: Path, line: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as database:
        return list(database.execute(line))


def before_newest() -> str:
    """The revision before the newest one."""
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    script = ScriptDirectory.from_config(_get_alembic_config("")).get_revision(revisions().newest)
    assert isinstance(script.down_revision, str)
    return script.down_revision


def make_older(file: Path) -> str:
    """MLflow itself takes its latest migration back; the schema that is left."""
    from alembic import command
    from mlflow.store.db.utils import _get_alembic_config

    command.downgrade(_get_alembic_config(f"sqlite:///{file}"), "-1")
    return before_newest()


def make_half(file: Path) -> None:
    """As after a process that was killed when the latest migration had made its tables, and had not noted this."""
    execute(file, f"UPDATE alembic_version SET version_num = '{before_newest()}'")


def make_newer(file: Path) -> None:
    execute(file, "UPDATE alembic_version SET version_num = 'f00f00f00f00'")


def make_foreign(file: Path) -> None:
    """Another program, which uses alembic, too."""
    execute(
        file,
        "CREATE TABLE studies (id)",
        "CREATE TABLE alembic_version (version_num)",
        "INSERT INTO alembic_version VALUES ('v3.0.0')",
    )


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mlflow_store: Callable[[Path], str]) -> Path:
    """An empty store in the cache."""
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    (stores := tmp_path / "cache" / "stores").mkdir(parents=True)
    mlflow_store(stores)
    execute(stores / "mlflow.db", "DELETE FROM experiments")
    return (stores / "mlflow.db").rename(making.kept_empty())


@pytest.fixture
def migrated_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Migrations run in this process, which has MLflow loaded; the files that were migrated. The cache is empty."""
    done: list[Path] = []

    def migrate_here(file: Path) -> None:
        done.append(file)
        errors: list[str] = []
        monkeypatch.setattr(migrate, "print", lambda line, file: errors.append(line), raising=False)
        if migrate.main([str(file)]):
            raise making.failure(errors[-1])

    monkeypatch.setattr(making, "_migrate", migrate_here)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    return done
