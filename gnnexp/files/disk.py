"""Explains in plain words what a disk refuses: it is full, a quota is exceeded, a folder is read-only.

Code that writes adds the name of the file (`writing`). Code that answers to a user (the command line, a sweep, a
launcher) turns the error into a `Problem` with `in_words` or `refusal`, and in no other way.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gnnexp.errors import Problem, ProblemsError

# Exit code of a process whose disk did not even accept its last status (`EX_IOERR` of sysexits.h).
EXIT_CODE = os.EX_IOERR
# Errors after which nothing more can be written to the disk.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_RIGHTS = ("you have no right to use this place", "change its rights, or name another path")
_LOCKS = (
    "this file system has no file locks",
    "have it mounted with locks (Lustre: -o flock), or name a folder elsewhere",
)
_WORDS = {
    errno.ENOSPC: ("the disk is full", "make room there (df -h {place})"),
    errno.EDQUOT: ("your quota on this disk is exceeded", "remove files there, or have the quota raised (quota -s)"),
    errno.EFBIG: ("the file would be larger than files may be", "raise the limit (ulimit -f)"),
    errno.EROFS: ("the disk is mounted read-only", "have it mounted for writing, or name a folder elsewhere"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), _RIGHTS),
    **dict.fromkeys((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP), _LOCKS),
    errno.EEXIST: ("must be a folder, and is a file", "move the file away, or name another path"),
    errno.ENOTDIR: ("a part of this path must be a folder, and is a file", "move the file away, or name another path"),
    errno.ELOOP: ("a link on this path leads back to itself", "remove the link, or name another path"),
    errno.ENAMETOOLONG: ("a name of this path is too long for the file system", "choose a shorter name"),
}
# Names of folders that are being made; no other folder has such a name. Seconds within which the maker locks it.
_HIDDEN, _NEW_S = re.compile(r"\.gnnexp-[0-9a-f]{16}\.new"), 60.0
# Bytes of a name that remain when a prefix, a process id and an ending are added.
_LONGEST = 200
_FOR_WRITING = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors for a missing name, a file in its place, or a directory that the file server no longer knows.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})


class DiskError(ProblemsError):
    """A place that is needed cannot be written or read."""

    kind = "disk problem"


def refusal(error: OSError, then: str = "") -> Problem | None:
    """The refusal of a disk in words; None if the error has another cause (a missing file, a network).

    Args:
        error: error of the system.
        then: the command to continue with when this is fixed.
    """
    words = _WORDS.get(error.errno or 0)
    named = error.filename is not None and not _is_folder_in_the_way(error)
    if words is None or not (named or error.errno in NO_ROOM):  # a socket's error names no file
        return None
    place = str(error.filename or "the disk")
    what, fix = words
    fix = fix.format(place=Path(place).parent if error.filename else ".") + (f", then: {then}" if then else "")
    return Problem(place, error.strerror, what, fix)


def _is_folder_in_the_way(error: OSError) -> bool:
    """Whether the error is only that a folder exists: its maker wanted a new name, so the disk is not at fault."""
    return error.errno == errno.EEXIST and Path(error.filename).is_dir()


def one_line(problem: Problem) -> str:
    """`problem` in one line, for a table or a record."""
    return f"{problem.allowed}: {problem.key} ({problem.value})"


@contextmanager
def in_words(then: str = "") -> Iterator[None]:
    """Inside of this context, refusals of a disk are raised as a `DiskError`; other errors pass unchanged.

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
    """Errors inside of this context get the name `path`: errors of `write` and `fsync` have no file name."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write atomically: a temporary file next to it, fsync, rename. On a full disk no temporary file is left.

    The folder must exist: a run directory that was moved must not be made again under its old name (see `subfolder`).
    """
    temporary = _unfinished(path)
    try:
        if temporary.is_symlink():  # somebody else's in a shared folder: it could lead to any file of this user
            temporary.unlink()
        with open(os.open(temporary, _FOR_WRITING, 0o666), "wb") as file:  # noqa: PTH123
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


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{shortened(path.name)}.{os.getpid()}.tmp")


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """An empty file next to `path` that gets its name at the end, or is removed after an error.

    Files that killed processes left of `path` are removed first: their locks are free.
    """
    temporary = _unfinished(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in unfinished_files(path):
            if (free := try_lock(leftover)) is not None:
                leftover.unlink()
                os.close(free)
        handle = try_lock(temporary)
        assert handle is not None, "this process writes the file once at a time"
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(handle)


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_temporary(path: Path) -> None:
    """Remove temporary files of `path` that were left by processes killed in `write_bytes`.

    The caller makes sure that no process writes `path` now, for example by a lock.
    """
    for leftover in unfinished_files(path):
        leftover.unlink(missing_ok=True)


def unfinished_files(path: Path) -> list[Path]:
    """Temporary files of `path`, of living and of killed processes."""
    return list(path.parent.glob(f".{glob.escape(shortened(path.name))}.*.tmp"))


def shortened(name: str) -> str:
    """`name` as a part of a longer name. A long name is cut and gets a digest: file systems allow 255 bytes."""
    content = name.encode(errors="surrogateescape")
    if len(content) <= _LONGEST:
        return name
    return f"{content[: _LONGEST - 16].decode(errors='ignore')}{hashlib.sha256(content).hexdigest()[:16]}"


def subfolder(folder: Path, *names: str) -> Path:
    """The folder `folder/name/name…`; missing parts below `folder` are made.

    `folder` itself must exist. Otherwise a run whose directory is moved or removed during training would continue in a
    new directory of the old name, and its record would be in two places.

    Raises:
        OSError: `folder` is missing, or the disk refuses.
    """
    for name in names:
        folder = folder / name
        folder.mkdir(exist_ok=True)
    return folder


def flock(handle: int, operation: int, path: Path) -> None:
    """The system's `flock`, with `path` in its errors.

    Raises:
        BlockingIOError: another process has the lock, and `operation` says not to wait.
        OSError: the file system has no locks.
    """
    with writing(path):
        fcntl.flock(handle, operation)


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A new folder that appears completely: it has a hidden name until this context ends without an error.

    A process that is killed inside leaves only the hidden folder. The next call in the same place removes that folder.

    Raises:
        OSError: the folder exists and is not empty, or it cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(folder.parent, _HIDDEN)
    hidden = folder.with_name(f".gnnexp-{secrets.token_hex(8)}.new")
    try:
        with held(hidden):
            yield hidden
            hidden.rename(folder)
    except BaseException as error:
        shutil.rmtree(hidden, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is not None:  # the user knows of no hidden folder
            error.filename, error.filename2 = str(error.filename).replace(str(hidden), str(folder)), None
        raise


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make `folder` and hold its lock, which the system releases when this process ends.

    Raises:
        OSError: the folder exists already, or cannot be made.
    """
    folder.mkdir()
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flock(handle, fcntl.LOCK_EX, folder)
        yield
    finally:
        os.close(handle)


def remove_abandoned(place: Path, names: re.Pattern[str]) -> None:
    """Remove the user's own folders with these names in `place` that no living process holds (`held`).

    A folder that is younger than a minute may not be held yet, so it stays. Folders with another name or owner stay as
    well, since `place` may contain a user's own folders.
    """
    for entry in os.scandir(place):
        if names.fullmatch(entry.name):
            _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # it has got another name, is a link, or belongs to somebody else
        return
    try:
        status = os.fstat(handle)
        if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _NEW_S:
            flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, folder)
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(handle)


def try_lock(file: Path) -> int | None:
    """The handle of a lock file that this process now holds; None while another process holds it.

    The holder removes the file and then closes the handle. If the holder dies, the system releases the lock. What
    another user left in a shared folder may only be readable: it is locked all the same, and `sign` writes nothing.
    """
    while True:
        handle = _lock_handle(file)
        try:
            flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, file)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:
            os.close(handle)
            raise
        if _is_there(handle, file):
            return handle
        os.close(handle)  # removed by its holder a moment ago: a lock on it locks nobody out


def _lock_handle(file: Path) -> int:
    """Links are not followed: in a shared folder, somebody else's link could lead to any file of this user."""
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except PermissionError:
        try:
            return os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            pass  # the first error says what is missing
        raise


def sign(handle: int, text: str) -> None:
    """Write who holds a lock, for those who wait, into its file; nothing if it can only be read."""
    if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR:
        os.ftruncate(handle, 0)
        os.write(handle, text.encode())


@contextmanager
def file_lock(file: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock `file`, which is made if it is missing; the system releases it when this process ends.

    Raises:
        TimeoutError: another process holds it for longer than `timeout_s`. A frozen process would hold it for ever.
    """
    end = time.monotonic() + timeout_s
    while (handle := try_lock(file)) is None:
        if time.monotonic() > end:
            raise TimeoutError(
                f"process {file.read_text(errors='replace')[:20].strip()} has held {file} for more than "
                f"{timeout_s:.0f} s"
            )
        time.sleep(0.05)
    try:
        sign(handle, str(os.getpid()))
        yield
    finally:
        os.close(handle)


def _is_there(handle: int, file: Path) -> bool:
    """Whether `file` is the file that was opened as `handle`."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


class HeldFolder:
    """Keeps a directory open, to notice that it was moved or removed.

    Args:
        folder: the directory.
        holding: a file that exists as long as the directory is complete; an unfinished `rm -r` has removed it.

    Raises:
        OSError: there is no such directory.
    """

    def __init__(self, folder: Path, holding: str = "") -> None:
        self.folder = folder
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._held = folder / holding if (folder / holding).exists() else folder

    def is_left(self) -> bool:
        """Whether the name now leads to nothing, to another directory, or to the rest of a removed one.

        Any other error of the file system (no answer, no right) does not show where the directory is.
        """
        try:
            self._held.stat()
            return not os.path.samestat(self.folder.stat(), os.fstat(self._handle))
        except OSError as error:
            return error.errno in _GONE

    def fix(self, command: str) -> str:
        """How a user continues with `command` after the directory was moved or removed."""
        now = self._now()
        if now is None:
            return put_back(self.folder, command)
        return f"it is {now} now: {command} {shlex.quote(str(now))}"

    def close(self) -> None:
        """Close the directory."""
        os.close(self._handle)

    def _now(self) -> Path | None:
        """The present path of the directory; None if it was removed, or if the system does not show it (no /proc)."""
        try:
            found = Path(f"/proc/self/fd/{self._handle}").readlink()
            moved = os.path.samestat(found.stat(), os.fstat(self._handle)) and found != self.folder.absolute()
            return found if moved else None
        except OSError:
            return None


def put_back(folder: Path, command: str) -> str:
    """How a user continues with `command` after `folder` was moved to an unknown place."""
    return f"put it back, then: {command} {shlex.quote(str(folder))}"
