"""What a disk refuses, in a user's words: it is full, a quota is exceeded, a folder is read-only.

Whoever writes says which file it was (`writing`). Whoever answers to a user, be it the command line, a sweep or a
launcher, turns what it meets into a `Problem` here (`in_words`, `refusal`), and nowhere else.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gnnexp.errors import Problem, ProblemsError

# What a process ends with whose disk took not even its last word (`EX_IOERR` of sysexits.h).
EXIT_CODE = os.EX_IOERR
_NO_ROOM = {
    errno.ENOSPC: ("the disk is full", "make room there (df -h {place})"),
    errno.EDQUOT: ("your quota on this disk is exceeded", "remove files there, or have the quota raised (quota -s)"),
    errno.EFBIG: ("the file would be larger than files may be", "raise the limit (ulimit -f)"),
}
_NO_ACCESS = {
    errno.EROFS: ("the disk is mounted read-only", "have it mounted for writing, or name a folder elsewhere"),
    errno.EACCES: ("you have no right to use this place", "change its rights, or name another path"),
    errno.EPERM: ("you have no right to use this place", "change its rights, or name another path"),
}
# Where nothing more can be written, whatever is tried.
NO_ROOM = frozenset(_NO_ROOM)


class DiskError(ProblemsError):
    """A place that is needed cannot be written to, or not be read."""

    kind = "disk problem"


def refusal(error: OSError, then: str = "") -> Problem | None:
    """What a disk refused, in words; None where the error is of another kind (a missing file, a network).

    Args:
        error: of the system.
        then: the command that goes on when this is mended.
    """
    words = _NO_ROOM.get(error.errno or 0)
    if words is None and error.filename is not None:  # a socket's error names no file
        words = _NO_ACCESS.get(error.errno or 0)
    if words is None:
        return None
    place = str(error.filename or "the disk")
    what, mend = words
    mend = mend.format(place=Path(place).parent if error.filename else ".") + (f", then: {then}" if then else "")
    return Problem(place, error.strerror, what, mend)


def one_line(problem: Problem) -> str:
    """`problem` for a table or a record."""
    return f"{problem.allowed}: {problem.key} ({problem.value})"


@contextmanager
def in_words(then: str = "") -> Iterator[None]:
    """What a disk refuses inside is raised as a `DiskError`; other errors pass.

    Raises:
        DiskError: a disk refused something.
    """
    try:
        yield
    except OSError as error:
        if (problem := refusal(error, then)) is None:
            raise
        raise DiskError(problem) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Errors inside name `path`: those of `write` and `fsync` name no file of their own."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write atomically: a temporary file beside it, fsync, rename. Nothing is left of it where the disk is full."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # the user knows of no temporary file
        raise


def try_lock(file: Path) -> int | None:
    """The handle of a lock file that this process now holds, None while another one does.

    Whoever holds it removes the file and then closes the handle; the system releases the lock of a process that dies.
    """
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        if _is_there(handle, file):
            return handle
        os.close(handle)  # removed by its holder a moment ago: a lock on it locks nobody out


def _is_there(handle: int, file: Path) -> bool:
    """Whether `file` is what was opened as `handle`."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False
