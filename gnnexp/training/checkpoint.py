"""Checkpoints: the state that a run needs to resume exactly. A checkpoint is on disk completely or not at all.

A checkpoint is a folder `checkpoints/<epoch>-<step>/`. Its file `shared.pt` holds the state that is the same on all
ranks: model and optimizer. `rank_<r>.pt` holds the state of rank r only. `checkpoint.json` holds the position, the
number of ranks, and size and checksum of the other files.

Every rank writes its files into a folder whose name starts with a dot. When all files are on disk, rank 0 renames the
folder. `checkpoints/best` is a link to the checkpoint of the best validation epoch (`gnnexp.training.best`). This
checkpoint is kept as long as the link names it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.errors import DataError, Problem
from gnnexp.files.disk import subfolder, sync
from gnnexp.files.regular import read_json
from gnnexp.record.records import write_json

if TYPE_CHECKING:  # `gnnexp status` counts checkpoints without torch
    from gnnexp.comm.communicator import Communicator

logger = logging.getLogger(__name__)

FOLDER = "checkpoints"
SHARED, META = "shared.pt", "checkpoint.json"
BEST = "best"
SCHEMA = 1
_FIX = "remove this checkpoint: the run then resumes from an earlier one, or from its start"


@dataclass(frozen=True, order=True)
class Position:
    """Where training resumes: all steps before step `step` of epoch `epoch` are done."""

    epoch: int = 0
    step: int = 0

    @property
    def folder(self) -> str:
        """Folder name of a checkpoint at this position. Names sort in the order of positions."""
        return f"{self.epoch:08d}-{self.step:010d}"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk. All files existed with the right sizes when it was opened.

    Attributes:
        folder: folder of the files.
        position: where training resumes.
        num_ranks: number of ranks that wrote the checkpoint.
        files: checksum by file name.
    """

    folder: Path
    position: Position
    num_ranks: int
    files: Mapping[str, str]

    def shared(self) -> dict[str, Any]:
        """State that is the same on all ranks."""
        return self._read(SHARED)

    def of_rank(self, rank: int) -> dict[str, Any]:
        """State of `rank` only, one of the ranks that wrote the checkpoint."""
        return self._read(_rank_file(rank))

    def verify(self) -> None:
        """Compare every file with its checksum.

        Raises:
            DataError: a file differs from its checksum, or cannot be read.
        """
        for name, expected in self.files.items():
            try:
                actual = _checksum(self.folder / name)
            except OSError as error:
                raise _damaged(self.folder / name, f"cannot be read: {error.strerror}") from None
            if actual != expected:
                raise _damaged(self.folder / name, "differs from its checksum in " + META)

    def _read(self, name: str) -> dict[str, Any]:
        import torch

        from gnnexp.training.state_file import check_state_file

        path = self.folder / name
        try:
            check_state_file(path)
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged pickle can raise any exception: TypeError, IndexError, …
            why = (str(error).splitlines() or [""])[0] or type(error).__name__
            raise _damaged(path, f"cannot be read: {why}") from None
        if not isinstance(state, dict):
            raise _damaged(path, "does not hold a mapping")
        return state


def _rank_file(rank: int) -> str:
    return f"rank_{rank}.pt"


def _damaged(path: Path, why: str) -> DataError:
    return DataError(Problem(str(path), path.name, why, _FIX))


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- reading -------------------------------------------------------------------------------------------------------
def open_checkpoint(folder: Path) -> Checkpoint:
    """Open a checkpoint. Only `verify` compares files with their checksums.

    Raises:
        DataError: the checkpoint is damaged, or an incompatible version wrote it.
    """
    path = folder / META
    try:
        meta: Any = read_json(path)
        position = Position(meta["position"]["epoch"], meta["position"]["step"])
        opened = Checkpoint(folder, position, meta["num_ranks"], {n: f["sha256"] for n, f in meta["files"].items()})
        sizes = {name: file["bytes"] for name, file in meta["files"].items()}
        schema = meta["schema"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"cannot be read: {type(error).__name__}: {error}") from None
    if schema != SCHEMA:
        raise DataError(Problem(str(path), schema, f"must be version {SCHEMA}", _FIX))
    numbers = (position.epoch, position.step, opened.num_ranks - 1 if isinstance(opened.num_ranks, int) else -1)
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise _damaged(path, "position and num_ranks must be numbers, 0 or more")
    if position.folder != folder.name:
        raise _damaged(path, f"must be in a folder named {position.folder}")
    if len(sizes) != opened.num_ranks + 1 or set(sizes) != {SHARED, *map(_rank_file, range(opened.num_ranks))}:
        raise _damaged(path, f"must name {SHARED} and one file for each of {opened.num_ranks} ranks")
    for name, size in sizes.items():
        file = folder / name
        if file.is_symlink() or not file.is_file() or file.stat().st_size != size:
            raise _damaged(file, f"is missing, or does not have {size} bytes")
    return opened


def checkpoint_folders(run_dir: Path) -> list[Path]:
    """Folders of the run's checkpoints, latest first."""
    folder = run_dir / FOLDER
    items = folder.iterdir() if folder.is_dir() else ()
    found = [item for item in items if not item.name.startswith(".") and item.name != BEST]
    return sorted((item for item in found if item.is_dir() and not item.is_symlink()), reverse=True)


def latest_checkpoint(run_dir: Path) -> tuple[Checkpoint | None, list[Problem]]:
    """The latest checkpoint that is complete and matches its checksums, and the problems of later checkpoints."""
    problems: list[Problem] = []
    for folder in checkpoint_folders(run_dir):
        try:
            checkpoint = open_checkpoint(folder)
            checkpoint.verify()
        except DataError as error:
            problems += error.problems
            continue
        return checkpoint, problems
    return None, problems


# --- writing -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Written:
    """A rank's report to rank 0: the files that it wrote, or the error."""

    files: Mapping[str, Mapping[str, Any]]
    error: str = ""


def save_checkpoint(
    run_dir: Path,
    comm: Communicator,
    position: Position,
    shared: Mapping[str, Any],
    own: Mapping[str, Any],
    keep: int,
    *,
    best: bool = False,
) -> str:
    """Write a checkpoint of all ranks. All ranks call this at the same position.

    Args:
        run_dir: directory of the run.
        comm: communicator of all ranks.
        position: where a resumed run continues.
        shared: state that is the same on all ranks; rank 0 writes it.
        own: state of this rank only.
        keep: number of latest checkpoints that are kept; the checkpoint of the best epoch is kept as well.
        best: whether the checkpoint holds the model of the best validation epoch.

    Returns:
        The error, the same on every rank; empty if the checkpoint was written. Training can continue in both cases.
    """
    folder = run_dir / FOLDER / position.folder
    unfinished = folder.with_name("." + folder.name)
    contents = {_rank_file(comm.rank): own} | ({SHARED: shared} if comm.rank == 0 else {})
    written = [_Written(*of_rank) for of_rank in comm.gather_objects(astuple(_write(unfinished, contents)))]
    error = next((item.error for item in written if item.error), "")
    if comm.rank == 0:
        error = error or _finish(folder, unfinished, position, written, keep, best=best)
        if error:
            shutil.rmtree(unfinished, ignore_errors=True)
    return str(comm.gather_objects(error)[0])


def _write(folder: Path, contents: Mapping[str, Mapping[str, Any]]) -> _Written:
    import torch

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
        write_json(
            unfinished / META,
            {
                "schema": SCHEMA,
                "position": asdict(position),
                "num_ranks": len(written),
                "files": files,
            },
        )
        sync(unfinished)
        if folder.exists():  # an earlier attempt wrote it; it may be damaged
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
    """Let `checkpoints/best` link to the existing checkpoint of `position`, atomically. One process calls this."""
    link = run_dir / FOLDER / BEST
    if link.is_symlink() and link.readlink() == Path(position.folder):
        return
    if link.is_dir() and not link.is_symlink():  # this run is a copy (`link_copied_best`)
        _remove(link)
    new = link.with_name(f".{BEST}.{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(position.folder)
    new.replace(link)


def link_copied_best(run_dir: Path) -> None:
    """Restore the link `best` in a copied run, where `best` is a folder: `scp -r` and archives follow links.

    One process calls this.
    """
    copy = run_dir / FOLDER / BEST
    if copy.is_symlink() or not copy.is_dir():
        return
    try:
        meta: Any = read_json(copy / META)
        position = Position(int(meta["position"]["epoch"]), int(meta["position"]["step"]))
        if not copy.with_name(position.folder).exists():
            copy.rename(copy.with_name(position.folder))
    except (OSError, ValueError, KeyError, TypeError):  # the folder is not a checkpoint
        _remove(copy)
        return
    point_best_or_say(run_dir, position)


def point_best_or_say(run_dir: Path, position: Position) -> None:
    """As `point_best`, but only warns if the link cannot be made: a run can resume from a checkpoint without a link."""
    try:
        point_best(run_dir, position)
    except OSError as error:
        logger.warning("no link to the checkpoint of the best epoch: %s", error)


def _old(latest: Path, keep: int) -> Iterator[Path]:
    """Folders to remove after `latest` was written: all earlier ones, except the `keep - 1` latest and the best."""
    link = latest.with_name(BEST)
    best = link.readlink().name if link.is_symlink() else ""
    before = [item for item in checkpoint_folders(latest.parent.parent) if item.name < latest.name]
    yield from (item for item in before[max(0, keep - 1) :] if item.name != best)


def _remove(folder: Path) -> None:
    """Remove a checkpoint. It is renamed first, so that nobody sees a partly removed checkpoint."""
    gone = folder.with_name("." + folder.name + ".removed")
    folder.rename(gone)
    shutil.rmtree(gone)


def remove_unfinished(run_dir: Path) -> None:
    """Remove files that a killed attempt left behind. One process calls this before ranks write."""
    folder = run_dir / FOLDER
    for item in folder.glob(".*") if folder.is_dir() else ():
        if item.is_symlink():
            item.unlink()
        else:
            shutil.rmtree(item, ignore_errors=True)
