"""A SQLite store is made complete under a lock and a temporary name, or not at all.

MLflow's migrations change the file step by step. A process that is killed meanwhile leaves a half-made store, which
MLflow can neither use nor go on with. Here they change only a copy in a hidden folder next to the store.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from gnnexp.files.cache import cache_root
from gnnexp.files.disk import file_lock, held, remove_abandoned, remove_temporary, write_bytes
from gnnexp.trackers.base import TrackingError
from gnnexp.trackers.delivery import forget
from gnnexp.trackers.schema import Schema, StoreState, connect_database, examine, problem_of, revisions

Tell = Callable[[str], None]
# Seconds that a process waits for another one that makes the same store, and for one that writes into it.
_MAKING_S, _WRITING_S = 600.0, 20.0
_WORKPLACE = re.compile(r"\.gnnexp-[0-9a-f]{16}\.store")
# What SQLite says of a migration whose first steps were done before.
_CLASH = re.compile(r"already exists|duplicate column name|no such (table|column|index)|has no column named", re.I)
_BESIDE = ("-journal", "-wal", "-shm")  # files that SQLite keeps next to a database
_HINT = "the run directories have all records; gnnexp report --sync delivers what the store lacks"


class HeldError(TrackingError):
    """Another process holds the store."""


class ClashError(Exception):
    """The migrations of the store were interrupted earlier: their next step was done already, in part."""


@dataclass(frozen=True)
class _HeldRun:
    """A run that a half-made store holds.

    Attributes:
        run_id: its name in the store.
        run_dir: the run directory on the machine that delivered it; empty for what gnnexp did not deliver.
    """

    run_id: str
    run_dir: str


def lock_of(file: Path) -> Path:
    """The lock of a store, next to the file itself: links from several folders may lead to it."""
    real = file.resolve()
    return real.with_name(f"{real.name}.lock")


def make_complete(file: Path, tell: Tell, folders: Sequence[Path] = (), patience_s: float = 0.0) -> None:
    """Afterwards `file` is a store with the tables of the installed MLflow.

    Nothing limits the time that this takes. Until it is done, `file` is as it was before.

    Args:
        file: the file of the store.
        tell: is called with each line for the user.
        folders: folders of run directories and reports. Those that only a half-made store had count as not delivered.
        patience_s: how long another process may hold the file.

    Raises:
        HeldError: another process holds it for longer.
        TrackingError: it is no store of this MLflow, or cannot become one.
        OSError: the disk refuses.
    """
    file = file.resolve()
    if not file.parent.is_dir():
        raise FileNotFoundError(f"no folder {file.parent}")
    if _examine(file, patience_s).state is StoreState.COMPLETE:
        return
    with file_lock(lock_of(file), _MAKING_S):
        schema = _examine(file, patience_s)  # another process may have made it meanwhile
        if schema.state is StoreState.ABSENT:
            _fill(file, _empty(file, tell))
        elif schema.state is StoreState.BEHIND:
            _upgrade(file, schema, tell, folders)


def _examine(file: Path, patience_s: float) -> Schema:
    schema = examine(file, patience_s)
    if schema.state is StoreState.BUSY:
        raise HeldError(f"another process holds {file}")
    if problem := problem_of(file, schema):
        raise TrackingError(f"{problem.allowed}. Fix: {problem.fix}")
    return schema


def _fill(file: Path, content: bytes) -> None:
    """Make the store where there is none. Leftovers of a removed database would be taken for a part of the new one."""
    if leftovers := [Path(f"{file}{end}") for end in _BESIDE if os.path.lexists(f"{file}{end}")]:
        aside = _free(file, "removed")
        for one in leftovers:
            one.rename(f"{aside}{one.name.removeprefix(file.name)}")
    remove_temporary(file)
    write_bytes(file, content)


def _empty(file: Path, tell: Tell) -> bytes:
    """An empty store. It is kept in the cache, because MLflow takes seconds to make one."""
    if _is_sound(kept := kept_empty()):
        return kept.read_bytes()
    tell(f"MLflow makes the tables of {file}, once (seconds)")
    with _workplace(file) as folder:
        _migrate(store := folder / "new.db")
        with closing(connect_database(store)) as database:
            database.execute("DELETE FROM experiments")  # MLflow's default one names the current folder
        content = store.read_bytes()
    with suppress(OSError):  # a cache that cannot be written only costs these seconds again
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(kept, content)
    return content


def kept_empty() -> Path:
    """The file of an empty store in the cache, which may not exist."""
    return cache_root() / "stores" / f"mlflow-{version('mlflow')}-{revisions().newest}.db"


def _is_sound(kept: Path) -> bool:
    """Whether the empty store in the cache can be used."""
    try:
        if examine(kept).state is not StoreState.COMPLETE:
            return False
        with closing(connect_database(kept)) as database:
            return list(database.execute("PRAGMA quick_check")) == [("ok",)]
    except (OSError, sqlite3.DatabaseError):
        return False


def _upgrade(file: Path, schema: Schema, tell: Tell, folders: Sequence[Path]) -> None:
    """Upgrade an older store by way of a copy. If the upgrade shows that it is half made, it is repaired instead."""
    with closing(connect_database(file, _WRITING_S)) as watch, _workplace(file) as folder:
        before = _changes(watch)
        _copy(file, old := folder / "old.db")
        shutil.copy(old, new := folder / "new.db")
        tell(
            f"{file} has the schema {schema.detail or 'none'} of an older MLflow, or is half made: a copy is upgraded "
            f"to {revisions().newest} (seconds)"
        )
        clash = None
        try:
            _migrate(new)
        except ClashError as error:
            clash = error
        else:
            if (reached := examine(new)).state is not StoreState.COMPLETE:
                raise TrackingError(f"MLflow upgraded it to {reached.detail}, not to {revisions().newest}")
        watch.execute("BEGIN IMMEDIATE")
        if _changes(watch) != before:
            raise HeldError(
                f"another program changed {file} during its upgrade. Nothing was changed here; end that "
                "program, then repeat the command"
            )
        if clash is None:
            kept = old.rename(_free(file, f"schema-{schema.detail or 'none'}"))
            words = f"{file} is upgraded; its earlier state is kept as {kept.name}"
        else:
            write_bytes(new := folder / "empty.db", _empty(file, tell))
            words = _set_aside(file, old, clash, folders)
        watch.execute("ROLLBACK")
        _copy(new, file)  # into the same file, which other processes may have opened
    tell(words)


def _set_aside(file: Path, old: Path, clash: Exception, folders: Sequence[Path]) -> str:
    """Keep a half-made store, of which `old` is a copy, and count what only it has as not delivered; in words."""
    found, aside = _held_runs(old), old.rename(_free(file, "half-made"))
    places = [Path(run.run_dir) for run in found or () if run.run_dir]
    again = forget({run.run_id for run in found or ()}, places, folders)
    return (
        f"{file} was half made ({clash}): an earlier command was interrupted while MLflow made its tables. It is "
        f"set aside as {aside.name}, and a complete store is made. {_words(found, again, aside)}"
    )


def _words(found: Sequence[_HeldRun] | None, again: int, aside: Path) -> str:
    """What happens to the runs of a half-made store."""
    if found is None:
        return f"Its runs cannot be read; {_HINT}"
    if not found:
        return f"It held no runs; {_HINT}"
    return (
        f"It held {len(found)} runs: {again} of them are in run directories or reports here, and count as not "
        f"delivered; {len(found) - again} are only in {aside.name}; {_HINT}"
    )


def _held_runs(file: Path) -> list[_HeldRun] | None:
    """The runs in a half-made store; None if its tables cannot be read."""
    try:
        with closing(connect_database(file)) as database:
            rows = database.execute(
                "SELECT runs.run_uuid, tags.value FROM runs LEFT JOIN tags "
                "ON tags.run_uuid = runs.run_uuid AND tags.key = 'run_dir'"
            )
            return [_HeldRun(str(run_id), str(place or "").partition(":")[2]) for run_id, place in rows]
    except sqlite3.DatabaseError:
        return None


def _migrate(file: Path) -> None:
    """Let MLflow make or upgrade the tables of `file`, however long it takes.

    Raises:
        ClashError: a step was done before.
        TrackingError: MLflow failed for another reason.
    """
    command = [sys.executable, "-m", "gnnexp.trackers.migrate", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return
    raise failure((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])


def failure(why: str) -> Exception:
    """The error of a migration that MLflow could not do."""
    return ClashError(why[:300]) if _CLASH.search(why) else TrackingError(f"MLflow cannot make its tables: {why[:300]}")


def _changes(database: sqlite3.Connection) -> int:
    """A number that is another one after each change by another connection."""
    return int(database.execute("PRAGMA data_version").fetchone()[0])


def _copy(source: Path, target: Path) -> None:
    """Copy a database completely or not at all, also over one that other processes have opened.

    Raises:
        HeldError: another process holds one of them for too long.
    """
    end = time.monotonic() + _WRITING_S

    def patient(status: int, remaining: int, total: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() > end:
            raise HeldError(f"another process has held {source} or {target} for more than {_WRITING_S:.0f} s")

    target.touch()
    with (
        closing(connect_database(source, _WRITING_S)) as origin,
        closing(connect_database(target, _WRITING_S)) as other,
    ):
        origin.backup(other, progress=patient)


def _free(file: Path, state: str) -> Path:
    """A name for what `file` was, which nothing has yet."""
    names = (file.with_name(f"{file.name}.{state}{number or ''}") for number in range(1_000_000))
    return next(name for name in names if not any(os.path.lexists(f"{name}{end}") for end in ("", *_BESIDE)))


@contextmanager
def _workplace(file: Path) -> Iterator[Path]:
    """A hidden folder next to `file` for unfinished databases. Those of killed processes are removed."""
    remove_abandoned(file.parent, _WORKPLACE)
    folder = file.with_name(f".gnnexp-{secrets.token_hex(8)}.store")
    try:
        with held(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
