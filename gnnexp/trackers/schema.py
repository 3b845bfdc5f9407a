"""What a SQLite file is as a store of MLflow: by one look, without MLflow, so that a launch costs no time.

MLflow's tables are made by migrations, which have names (revisions). The table `alembic_version` has the last one. The
installed MLflow has a file for each, so the newest one and all earlier ones are known.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from gnnexp.errors import ConfigError, Problem

_REVISION = re.compile(r"^(down_)?revision\b[^=\n]*=\s*(\([^)]*\)|.*)$", re.MULTILINE)
_NAME = re.compile(r"[\"']([^\"']+)[\"']")
# Low bytes of SQLite's codes (https://sqlite.org/rescode.html).
_HELD = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class StoreState(Enum):
    """What a file is as a store."""

    ABSENT = "no file, or a file without any table"
    COMPLETE = "the tables of the installed MLflow"
    BEHIND = "an older schema, or tables that were left half made"
    NEWER = "the schema of a newer MLflow"
    FOREIGN = "tables of another program"
    DAMAGED = "no database, or a damaged one"
    BUSY = "another process holds it"


@dataclass(frozen=True)
class Schema:
    """What a file is as a store.

    Attributes:
        state: what it is.
        detail: its revision, the names of foreign tables, or what is wrong.
    """

    state: StoreState
    detail: str = ""


@dataclass(frozen=True)
class Revisions:
    """The migrations of the installed MLflow.

    Attributes:
        newest: the last one, which a complete store has.
        all: all of them.
    """

    newest: str
    all: frozenset[str]


@cache
def revisions() -> Revisions:
    """The migrations of the installed MLflow, read from their files: importing MLflow takes a second.

    Raises:
        ConfigError: this MLflow has none, as `mlflow-skinny`.
    """
    spec = find_spec("mlflow")
    folder = Path(spec.origin if spec and spec.origin else "").parent / "store" / "db_migrations" / "versions"
    names, before = set[str](), set[str]()
    for file in folder.glob("*.py"):
        for down, value in _REVISION.findall(file.read_text(encoding="utf-8")):
            (before if down else names).update(_NAME.findall(value))
    if len(newest := names - before) != 1:
        raise ConfigError(
            Problem(
                "tracker",
                "mlflow",
                f"{folder} must have one newest migration, has {len(newest)}",
                "pip install --force-reinstall 'mlflow>=3,<4', or tracker=none",
            )
        )
    return Revisions(newest.pop(), frozenset(names))


def examine(file: Path, patience_s: float = 0.0) -> Schema:
    """What `file` is as a store. An interrupted write of another process is undone, as by all readers of SQLite.

    Args:
        file: the file of the store.
        patience_s: how long another process may hold it.

    Raises:
        OSError: the file cannot be opened.
    """
    if not os.path.lexists(file):
        return Schema(StoreState.ABSENT)
    if not file.is_file():  # not by opening it: to close a file drops the locks that this process has on it
        return Schema(StoreState.DAMAGED, "it is no regular file")
    try:
        with closing(connect_database(file, patience_s)) as database:
            return _judge(database)
    except sqlite3.DatabaseError as error:
        if (code := error.sqlite_errorcode & 0xFF) in _HELD:
            return Schema(StoreState.BUSY, str(error))
        if code in _BROKEN:
            return Schema(StoreState.DAMAGED, str(error))
        raise OSError(0, f"cannot be read: {error}", str(file)) from None


def connect_database(file: Path, patience_s: float = 0.0) -> sqlite3.Connection:
    """A connection to a database that exists, without transactions that begin by themselves."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", timeout=patience_s, isolation_level=None, uri=True)


def _judge(database: sqlite3.Connection) -> Schema:
    tables = {str(name) for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    held = (
        {str(name) for (name,) in database.execute("SELECT version_num FROM alembic_version")}
        if "alembic_version" in tables
        else set()
    )
    revision = ", ".join(sorted(held))
    if held == {revisions().newest}:
        return Schema(StoreState.COMPLETE, revision)
    if held and held <= revisions().all:
        return Schema(StoreState.BEHIND, revision)
    if _has_experiments(database, tables):
        return Schema(StoreState.NEWER if held else StoreState.BEHIND, revision)
    return Schema(
        StoreState.FOREIGN if tables - {"alembic_version"} or held else StoreState.ABSENT, ", ".join(sorted(tables))
    )


def _has_experiments(database: sqlite3.Connection, tables: set[str]) -> bool:
    """Whether it has MLflow's first table. Other programs have a table `experiments`, too, and also use alembic."""
    if "experiments" not in tables:
        return False
    columns = {str(line[1]) for line in database.execute("PRAGMA table_info(experiments)")}
    return {"artifact_location", "lifecycle_stage"} <= columns


def problem_of(file: Path, schema: Schema) -> Problem | None:
    """The problem of a store that gnnexp cannot use and does not change; None if there is none."""
    other = "tracker.uri=sqlite:///<another file>, or tracker=none"
    if schema.state is StoreState.NEWER:
        return Problem(
            "tracker.uri",
            str(file),
            f"was made by a newer MLflow (schema {schema.detail}) than the installed {version('mlflow')}",
            f"pip install --upgrade mlflow, or {other}",
        )
    if schema.state is StoreState.FOREIGN:
        return Problem(
            "tracker.uri", str(file), f"has tables of another program ({schema.detail[:100]}), not MLflow's", other
        )
    if schema.state is StoreState.DAMAGED:
        return Problem(
            "tracker.uri",
            str(file),
            f"is damaged: {schema.detail}",
            f"move it away; then `find runs reports -name delivery.json -delete` and `gnnexp report --sync` "
            f"deliver all run directories into a new one. Or: {other}",
        )
    return None
