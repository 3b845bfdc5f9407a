"""Whether a run directory is still where the run writes, and where it is now if somebody has moved it."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

from gnnexp.launchers.base import Outcome
from gnnexp.record.records import JOB_FILE

# A missing name, a file in its place, or a directory that the file server no longer knows.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})


class Place:
    """Keeps a run directory open, so that it is recognised under another name.

    Args:
        folder: the run directory, an absolute path.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._holds_job = (folder / JOB_FILE).exists()

    def is_left(self) -> bool:
        """Whether the name leads to nothing, to another directory, or to what `rm -r` could not remove of this one.

        Any other error of the file system (no answer, no right) says nothing about where the directory is.
        """
        try:
            if self._holds_job:
                (self.folder / JOB_FILE).stat()
            return not os.path.samestat(self.folder.stat(), os.fstat(self._handle))
        except OSError as error:
            return error.errno in _GONE

    def now(self) -> Path | None:
        """Where the directory is now; None where it was removed, or where the system does not say (no /proc)."""
        try:
            found = Path(f"/proc/self/fd/{self._handle}").readlink()
            moved = os.path.samestat(found.stat(), os.fstat(self._handle)) and found != self.folder
            return found if moved else None
        except OSError:
            return None

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._handle)


def lost_place(run_dir: Path, now: Path | None) -> Outcome:
    """The outcome of a run whose directory was moved or removed while it trained.

    The record and the checkpoints are where the directory is now. Nothing is written under the old name.

    Args:
        run_dir: where the run began.
        now: where the directory is, if that is known.
    """
    reason = f"the run directory {run_dir} was moved or removed while the run trained"
    where = "put it back, then" if now is None else f"it is {now} now;"
    place = shlex.quote(str(run_dir if now is None else now))
    return Outcome(1, "failed", reason, f"{reason}: {where} go on with: gnnexp resume {place}", "disk")
