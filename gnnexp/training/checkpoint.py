"""Checkpoints: what a run needs to go on as if nothing had happened, on disk whole or not at all.

`checkpoints/<epoch>-<step>/` holds `shared.pt` (what all ranks have alike: model, optimizer), `rank_<r>.pt` (what only
rank r knows) and `checkpoint.json` (position, ranks, size and checksum of the others). Every rank writes its file into
a folder whose name starts with a dot; when all are on disk, rank 0 renames it. `checkpoints/best` is a link to the
checkpoint of the best validation epoch (`gnnexp.training.best`), which stays as long as the link names it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import DataError, Problem
from gnnexp.files.disk import subfolder
from gnnexp.files.regular import read_json
from gnnexp.graph.storage.writer import sync
from gnnexp.record.records import write_json

logger = logging.getLogger(__name__)

FOLDER = "checkpoints"
SHARED, META = "shared.pt", "checkpoint.json"
BEST = "best"
SCHEMA = 1
_FIX = "remove this checkpoint: the run goes on from an earlier one, or from its start"


@dataclass(frozen=True, order=True)
class Position:
    """Where training goes on: everything before step `step` of epoch `epoch` is done."""

    epoch: int = 0
    step: int = 0

    @property
    def folder(self) -> str:
        """Name of the checkpoint made here; names sort as positions do."""
        return f"{self.epoch:08d}-{self.step:010d}"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk whose files were there with the right sizes when it was opened.

    Attributes:
        folder: of its files.
        position: where training goes on.
        num_ranks: that wrote it.
        files: checksum by file name.
    """

    folder: Path
    position: Position
    num_ranks: int
    files: Mapping[str, str]

    def shared(self) -> dict[str, Any]:
        """What all ranks have alike."""
        return self._read(SHARED)

    def of_rank(self, rank: int) -> dict[str, Any]:
        """What only `rank` of those that wrote it knew."""
        return self._read(_rank_file(rank))

    def verify(self) -> None:
        """Compare every file with its checksum.

        Raises:
            DataError: if one differs, or cannot be read.
        """
        for name, expected in self.files.items():
            try:
                found = _checksum(self.folder / name)
            except OSError as error:
                raise _damaged(self.folder / name, f"cannot be read: {error.strerror}") from None
            if found != expected:
                raise _damaged(self.folder / name, "differs from its checksum in " + META)

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        _check_archive(path)
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # a pickle that fits nothing fails in any way: TypeError, IndexError, …
            why = (str(error).splitlines() or [""])[0] or type(error).__name__
            raise _damaged(path, f"cannot be read: {why}") from None
        if not isinstance(found, dict):
            raise _damaged(path, "holds no mapping")
        return found


def _rank_file(rank: int) -> str:
    return f"rank_{rank}.pt"


def _damaged(path: Path, why: str) -> DataError:
    return DataError(Problem(str(path), path.name, why, _FIX))


def _check_archive(path: Path) -> None:
    """Nothing in the archive may unpack to more than the file itself: torch stores its tensors as they are."""
    try:
        with zipfile.ZipFile(path) as archive:
            packed = any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist())
            total = sum(item.file_size for item in archive.infolist())
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise _damaged(path, f"is no archive of torch: {error}") from None
    if packed or total > path.stat().st_size:
        raise _damaged(path, "is no archive of torch: its members are compressed or larger than the file")


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- reading -------------------------------------------------------------------------------------------------------
def open_checkpoint(folder: Path) -> Checkpoint:
    """Open a checkpoint; files are compared with their checksums by `verify`.

    Raises:
        DataError: it is damaged or of another version.
    """
    path = folder / META
    try:
        found: Any = read_json(path)
        position = Position(found["position"]["epoch"], found["position"]["step"])
        opened = Checkpoint(folder, position, found["num_ranks"], {n: f["sha256"] for n, f in found["files"].items()})
        sizes = {name: file["bytes"] for name, file in found["files"].items()}
        schema = found["schema"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"cannot be read: {type(error).__name__}: {error}") from None
    if schema != SCHEMA:
        raise DataError(Problem(str(path), schema, f"is of another version than {SCHEMA}", _FIX))
    numbers = (position.epoch, position.step, opened.num_ranks - 1 if isinstance(opened.num_ranks, int) else -1)
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise _damaged(path, "position and num_ranks must be numbers, 0 or more")
    if position.folder != folder.name:
        raise _damaged(path, f"belongs into a folder named {position.folder}")
    if len(sizes) != opened.num_ranks + 1 or set(sizes) != {SHARED, *map(_rank_file, range(opened.num_ranks))}:
        raise _damaged(path, f"must name {SHARED} and one file for each of {opened.num_ranks} ranks")
    for name, size in sizes.items():
        file = folder / name
        if file.is_symlink() or not file.is_file() or file.stat().st_size != size:
            raise _damaged(file, f"is missing, or not of {size} bytes")
    return opened


def checkpoint_folders(run_dir: Path) -> list[Path]:
    """Folders of the run's checkpoints, the latest first."""
    folder = run_dir / FOLDER
    items = folder.iterdir() if folder.is_dir() else ()
    found = [item for item in items if not item.name.startswith(".") and item.name != BEST]
    return sorted((item for item in found if item.is_dir() and not item.is_symlink()), reverse=True)


def latest_checkpoint(run_dir: Path) -> tuple[Checkpoint | None, list[Problem]]:
    """The latest checkpoint that is whole, compared with its checksums, and what is wrong with later ones."""
    problems: list[Problem] = []
    for folder in checkpoint_folders(run_dir):
        try:
            found = open_checkpoint(folder)
            found.verify()
        except DataError as error:
            problems += error.problems
            continue
        return found, problems
    return None, problems


# --- writing -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Written:
    """What a rank tells rank 0: its files, or why there are none."""

    files: Mapping[str, Mapping[str, Any]]
    error: str = ""


def save_checkpoint(
    run_dir: Path, comm: Communicator, position: Position, shared: Mapping[str, Any], own: Mapping[str, Any], keep: int,
    *, best: bool = False,
) -> str:
    """Write a checkpoint of all ranks; called by all of them at the same position.

    Args:
        run_dir: the run.
        comm: of all ranks.
        position: where training will go on.
        shared: what all ranks have alike; written by rank 0.
        own: what only this rank knows.
        keep: how many checkpoints stay, the latest ones; that of the best epoch stays as well.
        best: whether it holds the model of the best validation epoch.

    Returns:
        Why it could not be written, the same on every rank; empty when it was. Training can go on either way.
    """
    folder = run_dir / FOLDER / position.folder
    unfinished = folder.with_name("." + folder.name)
    contents = {_rank_file(comm.rank): own} | ({SHARED: shared} if comm.rank == 0 else {})
    written = [found for found in comm.gather_objects(_write(unfinished, contents)) if isinstance(found, _Written)]
    error = next((item.error for item in written if item.error), "")
    if comm.rank == 0:
        error = error or _finish(folder, unfinished, position, written, keep, best=best)
        if error:
            shutil.rmtree(unfinished, ignore_errors=True)
    return str(comm.gather_objects(error)[0])


def _write(folder: Path, contents: Mapping[str, Mapping[str, Any]]) -> _Written:
    files = {}
    try:
        subfolder(folder.parent.parent, FOLDER, folder.name)
        for name, content in contents.items():
            with (folder / name).open("wb") as file:
                torch.save(dict(content), file)
                file.flush()
                os.fsync(file.fileno())
            files[name] = {"bytes": (folder / name).stat().st_size, "sha256": _checksum(folder / name)}
    except (OSError, RuntimeError) as error:  # torch's writer turns a full disk into a RuntimeError
        return _Written({}, f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return _Written(files)


def _finish(
    folder: Path, unfinished: Path, position: Position, written: list[_Written], keep: int, *, best: bool
) -> str:
    files = {name: file for item in written for name, file in item.files.items()}
    try:
        write_json(unfinished / META, {
            "schema": SCHEMA, "position": asdict(position), "num_ranks": len(written), "files": files,
        })
        sync(unfinished)
        if folder.exists():  # of an earlier attempt, damaged perhaps
            _remove(folder)
        unfinished.rename(folder)
        if best:
            point_best_or_say(folder.parent.parent, position)
        sync(folder.parent)
        for old in list(_old(folder, keep)):
            _remove(old)
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def point_best(run_dir: Path, position: Position) -> None:
    """Have `checkpoints/best` name the checkpoint of `position`, which is there; by one process, atomically."""
    link = run_dir / FOLDER / BEST
    if link.is_symlink() and link.readlink() == Path(position.folder):
        return
    if link.is_dir() and not link.is_symlink():  # of a copy of the run (`link_copied_best`)
        _remove(link)
    new = link.with_name(f".{BEST}.{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(position.folder)
    new.replace(link)


def link_copied_best(run_dir: Path) -> None:
    """Have a link again where a copy of the run has a folder: `scp -r` and archives follow links. By one process."""
    copy = run_dir / FOLDER / BEST
    if copy.is_symlink() or not copy.is_dir():
        return
    try:
        found: Any = read_json(copy / META)
        position = Position(int(found["position"]["epoch"]), int(found["position"]["step"]))
        if not copy.with_name(position.folder).exists():
            copy.rename(copy.with_name(position.folder))
    except (OSError, ValueError, KeyError, TypeError):  # no checkpoint
        _remove(copy)
        return
    point_best_or_say(run_dir, position)


def point_best_or_say(run_dir: Path, position: Position) -> None:
    """As `point_best`; a file system without links takes nothing from the checkpoint, which can be gone on from."""
    try:
        point_best(run_dir, position)
    except OSError as error:
        logger.warning("no link to the checkpoint of the best epoch: %s", error)


def _old(latest: Path, keep: int) -> Iterator[Path]:
    """What is dropped when `latest` is there: of those before it all but the `keep - 1` latest and the best one."""
    link = latest.with_name(BEST)
    best = link.readlink().name if link.is_symlink() else ""
    before = [item for item in checkpoint_folders(latest.parent.parent) if item.name < latest.name]
    yield from (item for item in before[max(0, keep - 1):] if item.name != best)


def _remove(folder: Path) -> None:
    """Under a name that nobody takes for a checkpoint first: one that is half removed is never seen."""
    gone = folder.with_name("." + folder.name + ".removed")
    folder.rename(gone)
    shutil.rmtree(gone)


def remove_unfinished(run_dir: Path) -> None:
    """Drop what a killed attempt left behind; called by one process before ranks write."""
    folder = run_dir / FOLDER
    for item in folder.glob(".*") if folder.is_dir() else ():
        if item.is_symlink():
            item.unlink()
        else:
            shutil.rmtree(item, ignore_errors=True)
