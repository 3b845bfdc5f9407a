"""`gnnexp import`: makes runs from a file of another user.

Such a file is not trusted. Of every run only `result.json` is read. It must have the shape of a record, and the other
files of the run directory are made from it. The new run has no tracker and names the file that it came from
(`provenance.imported`). It can only be reported: `gnnexp resume` refuses it, and no sweep continues it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import lzma
import os
import secrets
import shutil
import tarfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import yaml

from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.files.disk import sync
from gnnexp.files.regular import SMALL_BYTES, open_regular, parse_json
from gnnexp.provenance.deprecated import TAR_XZ, tell_user
from gnnexp.record.archive import IMPORTED, as_made
from gnnexp.record.columnar import RUNS, STATES, Records
from gnnexp.record.members import Member, members
from gnnexp.record.reader import RecordFile, rows
from gnnexp.record.records import EPOCHS_FILE, JOB_FILE, RESULT_FILE, write_json, write_text
from gnnexp.record.shape import check_line, check_result, check_state

# Older versions exported all of these files; now the others are made from the result.
_FILES = (RESULT_FILE, EPOCHS_FILE, JOB_FILE, "config.yaml")
_XZ = b"\xfd7zXZ\0"
# A thousand runs take some megabytes.
_MOST_PACKED_BYTES = 1 << 30
# File systems limit a name to 255 bytes, and the folder in which a run is made has a longer name than the run.
_MOST_NAME_BYTES, _MOST_PARTS = 220, 16
# A record has 8 levels. More deeply nested values would grow many times when they are written.
_MOST_LEVELS = 16
_FIX = "get the file again, or make it again with `gnnexp export`"
# Characters that control a terminal: all control characters except tabs and new lines.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def unpack_records(file: Path, folder: Path = Path()) -> tuple[int, int]:
    """Make runs below `folder` from the records in `file`. Return how many runs are new, and how many existed.

    An existing directory stays as it is, whatever it contains. A run appears completely, by one rename. If a call is
    killed, the next call makes the runs that are missing.

    Raises:
        DataError: `file` is damaged, or contains anything except records; nothing is changed.
        ConfigError: another process is importing into this folder.
    """
    try:
        with open_regular(file) as opened:
            if (size := os.fstat(opened.fileno()).st_size) > _MOST_PACKED_BYTES:
                raise tarfile.ReadError(f"has {size:,} bytes, at most {_MOST_PACKED_BYTES:,} are read")
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
            opened.seek(0)
            with _Import(folder, {"file": _clean(file.name), "sha256": digest}) as taken:
                for member in _files(opened):
                    taken.take(member)
                return taken.finish()
    except OSError as error:
        place = str(error.filename or folder / RUNS)
        allowed = "must be readable, and the folder of the runs writable, with room for them"
        raise DataError(
            Problem(place, error.strerror, allowed, "change its rights or make room, and import the file again")
        ) from None
    except (EOFError, lzma.LZMAError, tarfile.TarError, ValueError) as error:
        raise DataError(
            Problem(
                str(file), str(error)[:200] or type(error).__name__, "must be a whole file of `gnnexp export`", _FIX
            )
        ) from None


def restore(records: Records, file: Path, folder: Path = Path()) -> tuple[int, int]:
    """Make runs below `folder` from the records that a paper's folder keeps in `file`; like `unpack_records`.

    Raises:
        ConfigError: another process is importing into this folder.
    """
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with _Import(folder, {"file": str(Path(file.parent.name, file.name)), "sha256": digest}) as taken:
        for run, result in records.results.items():
            taken.take_run(PurePosixPath(run), result)
        for name, state in records.states.items():
            taken.take_state(PurePosixPath(STATES / f"{name}.json"), state)
        return taken.finish()


class _Import:
    """An import of one archive: its runs are made in hidden folders until all of the archive has been read.

    Args:
        folder: folder that contains `runs`; it is made if it is missing.
        source: `file` and `sha256` of the archive.
    """

    def __init__(self, folder: Path, source: Mapping[str, str]) -> None:
        self._folder, self._source = folder, source
        self._seen: set[PurePosixPath] = set()
        self._runs: set[PurePosixPath] = set()
        self._ended: set[PurePosixPath] = set()
        self._made: dict[PurePosixPath, Path] = {}
        self._states: dict[PurePosixPath, Mapping[str, Any]] = {}
        self._new_folders: list[Path] = []
        self._lock = -1

    def __enter__(self) -> _Import:
        self._need(self._folder / RUNS)
        self._lock = os.open(self._folder / RUNS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ConfigError(
                Problem("import", str(self._folder / RUNS), "another import is working here", "wait until it has ended")
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        for place in self._made.values():
            shutil.rmtree(place, ignore_errors=True)
        for folder in reversed(self._new_folders):
            with suppress(OSError):  # the folder contains runs
                folder.rmdir()
        os.close(self._lock)

    def _need(self, folder: Path) -> None:
        """Make a folder if it is missing; an unused new folder is removed at the end."""
        missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
        for place in reversed(missing):
            place.mkdir()
            self._new_folders.append(place)

    def take(self, member: Member | RecordFile) -> None:
        """Read one file of the archive."""
        name = _place(member.name)
        if name in self._seen:
            raise tarfile.ReadError(f"{str(name)!r} is there twice")
        self._seen.add(name)
        if name.parent == STATES:
            self.take_state(name, _record(member, check_state))
        elif name.name == RESULT_FILE:
            self.take_run(name.parent, _record(member, _check_whole))
        else:
            self._runs.add(name.parent)

    def take_state(self, name: PurePosixPath, state: Mapping[str, Any]) -> None:
        """Keep the state of a sweep, by the name of its file."""
        self._states[name] = state

    def take_run(self, run: PurePosixPath, result: Mapping[str, Any]) -> None:
        """Make a run that has ended, unless its directory exists."""
        self._runs.add(run)
        self._ended.add(run)
        if not os.path.lexists(self._folder / run):
            self._make(run, result)

    def finish(self) -> tuple[int, int]:
        """Rename the runs to their own names, after the whole archive was checked."""
        self._check()
        new = len(self._made)
        for run, place in list(self._made.items()):
            place.rename(self._folder / run)
            sync((self._folder / run).parent)
            del self._made[run]
        for name, state in self._states.items():
            if not os.path.lexists(self._folder / name):
                self._need(self._folder / STATES)
                write_json(self._folder / name, self._own(name.stem, state))
        return new, len(self._ended) - new

    def _check(self) -> None:
        if not self._runs:
            raise tarfile.ReadError("it holds no run")
        problems = [
            Problem(
                str(run),
                f"no {RESULT_FILE}",
                "a run that has not ended is no record",
                "export the sweep again when its runs have ended",
            )
            for run in sorted(self._runs - self._ended)
        ]
        for run in sorted(self._made):
            inside = [
                above
                for above in run.parents
                if len(above.parts) > 1 and (above in self._runs or _is_run(self._folder / above))
            ]
            problems += [
                Problem(str(run), f"inside of {above}", "a run directory has no other runs in it", _FIX)
                for above in inside
            ]
        DataError.raise_all(problems)

    def _make(self, run: PurePosixPath, result: Mapping[str, Any]) -> None:
        """Make the run directory under a name with a dot, and remove leftovers of killed imports."""
        parent = self._folder / run.parent
        self._need(parent)
        for left in [entry for entry in os.scandir(parent) if entry.name.startswith(f".{run.name}.import-")]:
            shutil.rmtree(left.path, ignore_errors=True)
        place = self._made[run] = parent / f".{run.name}.import-{secrets.token_hex(4)}"
        place.mkdir()
        record = as_made(result)
        provenance = record["provenance"]
        marked = {**provenance, "uid": _uid(record), IMPORTED: {**self._source, "uid": provenance.get("uid")}}
        record["provenance"] = marked
        write_json(place / RESULT_FILE, record)
        write_json(
            place / JOB_FILE,
            {
                "schema": 1,
                "config": record["config"],
                "graph": None,
                "partition": None,
                "parts": None,
                "presample": None,
                "presampled": [],
                "quality": record.get("quality") or {},
                "provenance": marked,
            },
        )
        write_text(place / EPOCHS_FILE, "".join(json.dumps(line) + "\n" for line in record["epochs"]))
        write_text(place / "config.yaml", yaml.safe_dump(record["config"], sort_keys=False))
        sync(place)

    def _own(self, name: str, state: Mapping[str, Any]) -> dict[str, Any]:
        """The state of a sweep, whose cases name only runs of this archive."""
        ours = {str(run) for run in self._ended}
        cases = [{**case, "run_dir": case["run_dir"] if case.get("run_dir") in ours else ""} for case in state["cases"]]
        return {**state, "name": name, "cases": cases}


def _files(opened: BinaryIO) -> Iterable[Member | RecordFile]:
    """The files in an archive of this version, or of gnnexp 0.1."""
    start = opened.read(len(_XZ))
    opened.seek(0)
    if start != _XZ:
        return rows(opened)
    tell_user(TAR_XZ)
    return members(opened)


def _place(name: str) -> PurePosixPath:
    """The path of a file of the archive, below the working folder.

    Raises:
        tarfile.TarError: the name is not that of a record's file.
    """
    parts = name.split("/")
    whole = (
        1 < len(parts) <= _MOST_PARTS
        and parts[0] == RUNS.name
        and name.isprintable()
        and all(part and part[0] != "." and len(part.encode()) <= _MOST_NAME_BYTES for part in parts)
    )
    path = PurePosixPath(*parts) if whole else RUNS
    state = path.parent == STATES and path.suffix == ".json" and path.name not in _FILES
    run = path.name in _FILES and len(path.parts) > 2 and not path.is_relative_to(STATES)
    if not state and not run:
        raise tarfile.ReadError(f"{name[:80]!r} is no file of a record")
    return path


def _record(member: Member | RecordFile, check: Callable[[object], None]) -> dict[str, Any]:
    """The JSON of a member with the right shape, without control characters.

    Raises:
        tarfile.TarError: it is no such JSON.
    """
    try:
        value = _clean(parse_json(member.read(SMALL_BYTES)))
        check(value)
    except ValueError as error:
        raise tarfile.ReadError(f"{member.name[:80]}: {error}") from None
    return dict(value)


def _check_whole(result: object) -> None:
    check_result(result)
    assert isinstance(result, dict)
    for number, line in enumerate(result["epochs"]):
        check_line(line, f"epochs[{number}]")


def _clean(value: Any, levels: int = _MOST_LEVELS) -> Any:  # noqa: ANN401
    """A JSON value with a replacement for every control character.

    Raises:
        ValueError: the value is nested too deeply.
    """
    if isinstance(value, str):
        return value if value.isprintable() else value.translate(_CONTROLS)
    if isinstance(value, dict | list) and not levels:
        raise ValueError(f"more than {_MOST_LEVELS} levels")
    if isinstance(value, dict):
        return {_clean(key): _clean(item, levels - 1) for key, item in value.items()}
    return [_clean(item, levels - 1) for item in value] if isinstance(value, list) else value


def _is_run(folder: Path) -> bool:
    return any(os.path.lexists(folder / name) for name in (JOB_FILE, RESULT_FILE))


def _uid(record: Mapping[str, Any]) -> str:
    """A uid from the record's content. The uid of a run made here would let it replace that run in the store."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:32]
