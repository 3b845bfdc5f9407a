"""What a reader may not do with a hostile file: start or call anything, write or read outside of its folder.

An audit hook sees every `open`, every process, every connection of this process, whoever asks for it. It forbids what
is not allowed, since a payload must not harm the machine that tests it, and notes it, so no `except` can hide it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gnnexp

EXECUTED = "torture.executed"
_EXECUTES = frozenset(
    {
        EXECUTED,
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.spawn",
        "os.startfile",
        "os.fork",
        "os.forkpty",
        "pty.spawn",
        "subprocess.Popen",
        "os.kill",
        "os.killpg",
        "socket.connect",
        "socket.bind",
        "socket.getaddrinfo",
        "socket.sendto",
        "urllib.Request",
    }
)
# What gnnexp asks by itself of the machine and of the cluster, if a configuration is for them.
_PROGRAMS = frozenset({"nvidia-smi", "sinfo"})
# Which arguments of an event are paths that are written to.
_WRITES = {
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.link": (0, 1),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.utime": (0,),
    "os.mkfifo": (0,),
    "os.mknod": (0,),
}
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES = frozenset({"/dev/null", "/dev/urandom"})


def _asks_for_gnnexp(command: object) -> bool:
    """Whether it is a question of gnnexp's own, or the process that reads a stranger's records.

    `git` may ask only about gnnexp's checkout, since a repository can name programs.
    """
    if not isinstance(command, list) or not command:
        return False
    checkouts = [str(Path(place).parent) for place in gnnexp.__path__]
    reads = command == [sys.executable, "-m", "gnnexp.record.reader"]
    return reads or command[0] in _PROGRAMS or (command[:2] == ["git", "-C"] and command[2] in checkouts)


def _is_own_child(process: object) -> bool:
    """Whether it is a child of this process, which gnnexp started and ends."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return int(stat.rpartition(")")[2].split()[1]) == os.getpid()


def _ends_own_children(signalled: object) -> bool:
    """Whether a process group has no process but children of this one: gnnexp ends what it has asked."""
    members = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, parent, group = place.read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
        except OSError:  # it has ended meanwhile
            continue
        if int(group) == signalled:
            members.append(int(parent))
    return all(parent == os.getpid() for parent in members)


class ForbiddenError(BaseException):
    """Ends what a payload began; no `except Exception` of the code under test takes it."""


def fire(*_: object, **__: object) -> None:
    """What payloads call: an ordinary function, whose call is nothing but an event for the guard."""
    sys.audit(EXECUTED, "torture.fuzz.guard.fire")


class Guard:
    """The audit hook of one process; it cannot be removed, so only processes that end with their cases install it.

    Attributes:
        found: what was forbidden since the last case began: `executed` or `escaped`, and what it was.
    """

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._folder = ""
        self._reads_anywhere = False
        installed = [sys.prefix, sys.base_prefix, *sys.path, *(str(Path(place).parent) for place in gnnexp.__path__)]
        system = ["/proc", "/sys", "/usr/share", "/usr/lib", "/lib", "/etc/localtime", "/etc/ld.so.cache"]
        # numba looks whether it could write where the compiled kernels are.
        self._kernels = tuple(os.path.realpath(place) + os.sep for place in gnnexp.__path__)
        self._readable = tuple(os.path.realpath(place) + os.sep for place in (*installed, *system) if place)
        sys.addaudithook(self._hear)

    @contextmanager
    def watching(self, folder: Path, *, reads_anywhere: bool) -> Iterator[None]:
        """Forbid and note, while a reader works on what is in `folder`."""
        self.found = []
        self._reads_anywhere = reads_anywhere
        self._folder = os.path.realpath(folder) + os.sep
        try:
            yield
        finally:
            self._folder = ""

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._folder:
            return
        if event == "subprocess.Popen" and _asks_for_gnnexp(arguments[1]):
            return
        if event == "os.kill" and _is_own_child(arguments[0]):
            return
        if event == "os.killpg" and _ends_own_children(arguments[0]):
            return
        if event in _EXECUTES:
            self._forbid("executed", f"{event} {str(arguments)[:200]}")
        elif event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and bool(flags & _FOR_WRITING)
            if isinstance(path, str | bytes) and (writes or not self._reads_anywhere):
                self._check(event, os.fsdecode(path), writes=writes)
        elif event == "ctypes.dlopen":
            name = arguments[0] if isinstance(arguments[0], str) else ""
            if os.sep in name and os.path.realpath(name).startswith(self._folder):
                self._forbid("executed", f"{event} {arguments[0]}")
        elif event in _WRITES:
            for index in _WRITES[event]:
                if isinstance(arguments[index], str | bytes):
                    self._check(event, os.fsdecode(arguments[index]), writes=True)

    def _check(self, event: str, path: str, *, writes: bool) -> None:
        if "\0" in path:  # no system call takes it
            return
        # What is removed or renamed is the link itself, not what it leads to.
        place = (
            os.path.realpath(path)
            if event == "open"
            else os.path.join(  # noqa: PTH118
                os.path.realpath(os.path.dirname(path) or "."),  # noqa: PTH120
                os.path.basename(path),  # noqa: PTH119
            )
        )
        if (place + os.sep).startswith(self._folder) or place in _DEVICES:
            return
        if "/__pycache__" in place and place.startswith(self._kernels):
            return
        if not writes and (place + os.sep).startswith(self._readable):
            return
        self._forbid("escaped", f"{event} {place} for {'writing' if writes else 'reading'}")

    def _forbid(self, name: str, what: str) -> None:
        self.found.append((name, what))
        raise ForbiddenError(f"{name}: {what}")
