"""What a disk refuses, in a user's words: it is full, a quota is exceeded, a folder is read-only.

Whoever writes says which file it was (`writing`). Whoever answers to a user, be it the command line, a sweep or a
launcher, turns what it meets into a `Problem` here (`in_words`, `refusal`), and nowhere else.
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
from contextlib import ExitStack, contextmanager, suppress
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
# The name of a folder that is being made: nobody else has such names. Seconds in which its maker locks it.
_HIDDEN, _NEW_S = re.compile(r"\.gnnexp-[0-9a-f]{16}\.new"), 60.0
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
_NO_FOLDER = {
    errno.EEXIST: ("must be a folder, and is a file", "move the file away, or name another path"),
    errno.ENOTDIR: ("a part of this path must be a folder, and is a file", "move the file away, or name another path"),
    errno.ELOOP: ("a link on this path leads back to itself", "remove the link, or name another path"),
    errno.ENAMETOOLONG: ("a name of this path is too long for the file system", "choose a shorter name"),
}
# Bytes of a name that are left when a prefix, a process's number and an ending are added.
_LONGEST = 200
# A missing name, a file in its place, or a directory that the file server no longer knows.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
# Where nothing more can be written, whatever is tried.
NO_ROOM = frozenset(_NO_ROOM)


class DiskError(ProblemsError):
    """A place that is needed cannot be written to, or not be read."""

    kind = "disk problem"


def refusal(error: OSError, then: str = "") -> Problem | None:
    """What a disk refused, in words; None where the error is of another kind (a missing file, a network).

    Args:
        error: of the system.
        then: the command that goes on when this is fixed.
    """
    words = _NO_ROOM.get(error.errno or 0)
    if words is None and error.filename is not None:  # a socket's error names no file
        words = _NO_ACCESS.get(error.errno or 0)
    if words is None and error.errno in _NO_LOCKS and error.filename is not None:
        words = ("this file system has no file locks",
                 "have it mounted with locks (Lustre: -o flock), or name a folder elsewhere")
    if words is None and error.filename is not None and not _is_folder_in_the_way(error):
        words = _NO_FOLDER.get(error.errno or 0)
    if words is None:
        return None
    place = str(error.filename or "the disk")
    what, fix = words
    fix = fix.format(place=Path(place).parent if error.filename else ".") + (f", then: {then}" if then else "")
    return Problem(place, error.strerror, what, fix)


def _is_folder_in_the_way(error: OSError) -> bool:
    """Whether something exists already that may well be there: whoever made it asked for a new name."""
    return error.errno == errno.EEXIST and Path(error.filename).is_dir()


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
    """Write atomically: a temporary file next to it, fsync, rename. Nothing is left of it where the disk is full.

    The folder must exist. A run directory that was moved is not made again under its old name: see `subfolder`.
    """
    temporary = path.with_name(f".{shortened(path.name)}.{os.getpid()}.tmp")
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


def remove_unfinished(path: Path) -> None:
    """Remove the temporary files of `path` that processes left which were killed in `write_bytes`.

    The caller makes sure that no process writes `path` now, by a lock for example.
    """
    for leftover in path.parent.glob(f".{glob.escape(shortened(path.name))}.*.tmp"):
        leftover.unlink(missing_ok=True)


def shortened(name: str) -> str:
    """`name` as a part of a longer name: a long one keeps its start and gets a digest. File systems take 255 bytes."""
    content = name.encode(errors="surrogateescape")
    if len(content) <= _LONGEST:
        return name
    return f"{content[:_LONGEST - 16].decode(errors='ignore')}{hashlib.sha256(content).hexdigest()[:16]}"


def subfolder(folder: Path, *names: str) -> Path:
    """The folder `folder/name/name…`, made where it is missing.

    `folder` itself must exist. Otherwise a run whose directory was moved or removed while it trains would go on in a
    new directory of the old name, and its record would be in two places.

    Raises:
        OSError: `folder` is missing, or the disk refuses.
    """
    for name in names:
        folder = folder / name
        folder.mkdir(exist_ok=True)
    return folder


def flock(handle: int, operation: int, path: Path) -> None:
    """The system's `flock`, whose errors name `path`.

    Raises:
        BlockingIOError: another process has the lock, and `operation` says not to wait.
        OSError: the file system has no locks.
    """
    with writing(path):
        fcntl.flock(handle, operation)


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A new folder that appears whole: it gets its name at the end of this context, and until then a hidden one.

    A process that is killed inside leaves only the hidden folder. The next call beside it removes that.

    Raises:
        OSError: the folder is there already and holds something, or it cannot be made.
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
        OSError: it is there already, or cannot be made.
    """
    folder.mkdir()
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flock(handle, fcntl.LOCK_EX, folder)
        yield
    finally:
        os.close(handle)


def remove_abandoned(place: Path, names: re.Pattern[str]) -> None:
    """Remove one's own folders of these names in `place` that no living process holds (`held`).

    A folder of this minute may not be held yet, and stays. So does everything that has another name or owner: in
    `place` there may be a user's own folders.
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
    """The handle of a lock file that this process now holds, None while another one does.

    Whoever holds it removes the file and then closes the handle; the system releases the lock of a process that dies.
    """
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, file)
        except BlockingIOError:
            os.close(handle)
            return None
        if _is_there(handle, file):
            return handle
        os.close(handle)  # removed by its holder a moment ago: a lock on it locks nobody out


@contextmanager
def locked(file: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock of `file`, which is made if it is not there; the system releases it when this process ends.

    Raises:
        TimeoutError: another process holds it for longer than `timeout_s`. A frozen one would for ever.
    """
    end = time.monotonic() + timeout_s
    with ExitStack() as opened:
        lock = opened.enter_context(file.open("a+"))
        while True:
            try:
                flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB, file)
                if _is_there(lock.fileno(), file):
                    break
                opened.close()  # its folder was moved meanwhile: this is the lock of another folder
                lock = opened.enter_context(file.open("a+"))
            except BlockingIOError:
                if time.monotonic() > end:
                    lock.seek(0)
                    raise TimeoutError(f"process {lock.read(20).strip()} has held {file} for more than "
                                       f"{timeout_s:.0f} s") from None
                time.sleep(0.05)
        lock.truncate(0)
        lock.write(str(os.getpid()))  # for whoever waits in vain
        lock.flush()
        yield


def _is_there(handle: int, file: Path) -> bool:
    """Whether `file` is what was opened as `handle`."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


class HeldFolder:
    """Keeps a directory open, so that it is recognised when somebody moves or removes it.

    Args:
        folder: the directory.
        holding: a file in it that is there as long as the directory is whole: what `rm -r` could not remove lacks it.

    Raises:
        OSError: there is no such directory.
    """

    def __init__(self, folder: Path, holding: str = "") -> None:
        self.folder = folder
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._held = folder / holding if (folder / holding).exists() else folder

    def is_left(self) -> bool:
        """Whether the name leads to nothing, to another directory, or to the rest of a removed one.

        Any other error of the file system (no answer, no right) says nothing about where the directory is.
        """
        try:
            self._held.stat()
            return not os.path.samestat(self.folder.stat(), os.fstat(self._handle))
        except OSError as error:
            return error.errno in _GONE

    def fix(self, command: str) -> str:
        """How a user goes on with `command` after the directory has left its place."""
        now = self._now()
        if now is None:
            return put_back(self.folder, command)
        return f"it is {now} now: {command} {shlex.quote(str(now))}"

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._handle)

    def _now(self) -> Path | None:
        """Where the directory is; None where it was removed, or where the system does not say (no /proc)."""
        try:
            found = Path(f"/proc/self/fd/{self._handle}").readlink()
            moved = os.path.samestat(found.stat(), os.fstat(self._handle)) and found != self.folder.absolute()
            return found if moved else None
        except OSError:
            return None


def put_back(folder: Path, command: str) -> str:
    """How a user goes on with `command` after `folder` was moved nobody knows where."""
    return f"put it back, then: {command} {shlex.quote(str(folder))}"
