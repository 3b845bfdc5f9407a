"""The folder of a run for what other users of the machine must not see: only its owner can enter it.

The rest of a run directory follows the umask, so that a group can watch the run.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

PRIVATE = "private"
_SECRET, _BYTES = "secret", 16


def make_private(run_dir: Path) -> Path:
    """Make `RUN/private` with a new secret of the run, of 128 bits. What an earlier attempt left is removed.

    Raises:
        OSError: the disk refuses.
    """
    remove_private(run_dir)
    folder = run_dir / PRIVATE
    if os.path.lexists(folder):  # another user's, and only they may remove it
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    folder.mkdir(mode=0o700)
    handle = os.open(folder / _SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(handle, "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(secrets.token_hex(_BYTES))
    return folder


def remove_private(run_dir: Path) -> None:
    """Remove it at the end of an attempt. What a disk refuses to remove stays private."""
    folder = run_dir / PRIVATE
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
    try:
        return bytes.fromhex((run_dir / PRIVATE / _SECRET).read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
