"""The folder of a run for what other users of the machine must not see: only its owner can enter it.

The rest of a run directory follows the umask, so that a group can watch the run. Some file systems keep no rights
(exFAT, FAT, disks of Windows in WSL, some network mounts): they show every folder as open. There, the folder of a run
whose ranks are all on this machine is below `$XDG_RUNTIME_DIR` or the folder for temporary files.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path

from gnnexp.errors import ConfigError, Problem

PRIVATE = "private"
_SECRET, _BYTES = "secret", 16


def make_private(run_dir: Path, *, here: bool = False) -> Path:
    """Make the private folder with a new secret of the run, of 128 bits. What an earlier attempt left is removed.

    Args:
        run_dir: the run directory. The folder is `RUN/private`.
        here: whether all ranks are on this machine, so that the folder can be elsewhere on it.

    Raises:
        ConfigError: the file system keeps no rights, and the ranks may be on other machines.
        OSError: the disk refuses.
    """
    remove_private(run_dir)
    folder = run_dir / PRIVATE
    if not _made(folder, run_dir):
        if not here or not _made(_elsewhere(run_dir), run_dir):
            raise ConfigError(
                Problem(
                    str(folder),
                    "open to others",
                    "the file system keeps no rights, so other users could take part in the run",
                    "a run directory on another file system, or mount this one for you alone (FAT, WSL: umask=077; "
                    "CIFS: dir_mode=0700)",
                )
            )
        folder = _elsewhere(run_dir)
        print(
            f"gnnexp: the file system of {run_dir} keeps no rights; the run's secret is in {folder} until it ends",
            file=sys.stderr,
        )
    handle = os.open(folder / _SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(handle, "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(secrets.token_hex(_BYTES))
    return folder


def _made(folder: Path, run_dir: Path) -> bool:
    """Make the folder; whether nobody else can enter it. Else it is not there."""
    if os.path.lexists(folder):  # another user's, and only they may remove it
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    folder.mkdir(mode=0o700)
    if not (private := _is_private(folder, run_dir)):
        folder.rmdir()
    return private


def _is_private(folder: Path, run_dir: Path) -> bool:
    """Whether a folder is there that belongs to this user and that nobody else can enter.

    A file server may take root for another user, and then gives all of root's files to that user.
    """
    try:
        status, own = folder.stat(follow_symlinks=False), os.geteuid()
        mine = status.st_uid == own or (own == 0 and status.st_uid == run_dir.stat().st_uid)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and mine and not stat.S_IMODE(status.st_mode) & 0o077


def _elsewhere(run_dir: Path) -> Path:
    places = (os.environ.get(name, "") for name in ("XDG_RUNTIME_DIR", "TMPDIR"))
    place = next((one for one in places if Path(one).is_absolute() and Path(one).is_dir()), "/tmp")
    name = hashlib.sha256(os.fsencode(run_dir.resolve())).hexdigest()[:16]
    return Path(place) / f"gnnexp-{os.geteuid()}-{name}"


def private_of(run_dir: Path) -> Path | None:
    """The private folder of the run; None if there is none. A folder of somebody else in its place is none."""
    return next((folder for folder in (run_dir / PRIVATE, _elsewhere(run_dir)) if _is_private(folder, run_dir)), None)


def remove_private(run_dir: Path) -> None:
    """Remove it at the end of an attempt. What a disk refuses to remove stays private."""
    for folder in (run_dir / PRIVATE, _elsewhere(run_dir)):
        if folder.is_symlink() or folder.is_file():  # in the place of the folder: what a link leads to is left alone
            with suppress(OSError):
                folder.unlink()
        else:
            shutil.rmtree(folder, ignore_errors=True)


def secret_of(run_dir: Path) -> bytes | None:
    """The secret of the run, which all of its ranks know; None if there is none.

    Raises:
        OSError: it cannot be read.
    """
    folder = private_of(run_dir)
    try:
        return None if folder is None else bytes.fromhex((folder / _SECRET).read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
