"""Records of finished sweeps in one file: a `.tar.xz` of what their run directories say, without logs and checkpoints.

It holds `runs/sweeps/<name>.json` and, of every run that has ended, `result.json`, `epochs.jsonl`, `job.json` and
`config.yaml`, under the names they had below the working folder. Unpacked elsewhere they are runs as any others:
reports show them, sweeps skip them, the tracker takes them.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from gnnexp.errors import DataError, Problem
from gnnexp.record.records import EPOCHS_FILE, RESULT_FILE

FILES = (RESULT_FILE, EPOCHS_FILE, "job.json", "config.yaml")
STATES = PurePosixPath("runs/sweeps")
# A record is some tens of kilobytes; what unpacks to more than this was not made here.
_MOST_BYTES = 4 * 2**30
_MEND = "get the file again, or make it again with `gnnexp export`"


def pack(names: Sequence[str], file: Path, folder: Path = Path()) -> int:
    """Write the records of the sweeps `names` below `folder` to `file`, atomically; how many runs there are.

    The same records make the same bytes.

    Raises:
        DataError: a sweep has not been run here, or none of its runs has ended.
    """
    members: dict[str, Path] = {}
    problems = []
    for name in names:
        runs = _ended_runs(folder, name)
        if not runs:
            problems.append(Problem("export", name, "no run of such a sweep has ended here", f"gnnexp sweep {name}"))
        members[str(STATES / f"{name}.json")] = folder / STATES / f"{name}.json"
        members |= {str(PurePosixPath(run) / part): folder / run / part for run in runs for part in FILES
                    if (folder / run / part).exists()}
    if problems:
        raise DataError(problems)
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    with tarfile.open(temporary, "w:xz", preset=9) as archive:
        for member, path in sorted(members.items()):
            content = path.read_bytes()
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    temporary.replace(file)
    return sum(member.endswith(f"/{RESULT_FILE}") for member in members)


def unpack(file: Path, folder: Path = Path()) -> tuple[int, int]:
    """Put the records of `file` where they were, below `folder`; how many runs are new, and how many were there.

    A run directory that is there stays as it is.

    Raises:
        DataError: `file` is damaged, or has anything but records.
    """
    try:
        members = dict(_members(file))
    except (OSError, EOFError, lzma.LZMAError, tarfile.TarError, ValueError) as error:
        raise DataError(Problem(str(file), str(error)[:200] or type(error).__name__,
                                "must be a whole file of `gnnexp export`", _MEND)) from None
    runs = {name.parent for name in members if name.name == RESULT_FILE}
    known = {run for run in runs if (folder / run / RESULT_FILE).exists()}
    # A run's result last: without it there is no run, so a copy that stops half way is done again.
    for name in sorted(members, key=lambda name: (name.name == RESULT_FILE, name.parent == STATES, name)):
        if name.parent not in known and not (name.parent == STATES and (folder / name).exists()):
            _write(folder / name, members[name])
    return len(runs - known), len(known)


def _ended_runs(folder: Path, name: str) -> list[str]:
    """Run directories of a sweep, as its state names them."""
    state = folder / STATES / f"{name}.json"
    if not state.is_file():
        return []
    found = [case["run_dir"] for case in json.loads(state.read_text(encoding="utf-8"))["cases"]]
    return [run for run in dict.fromkeys(found) if run and (folder / run / RESULT_FILE).is_file()]


def _members(file: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Names and contents; a name that is not a record's is no archive of ours."""
    left = _MOST_BYTES
    with tarfile.open(file, "r:xz") as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse() or not _is_record(name):
                raise tarfile.ReadError(f"{member.name[:80]!r} is no file of a record")
            left -= member.size
            if left < 0:
                raise tarfile.ReadError(f"it unpacks to more than {_MOST_BYTES} bytes")
            content = archive.extractfile(member)
            assert content is not None
            yield name, content.read()


def _is_record(name: PurePosixPath) -> bool:
    if name.is_absolute() or ".." in name.parts or name.parts[0] != "runs":
        return False
    return name.name in FILES or (name.parent == STATES and name.suffix == ".json")


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
