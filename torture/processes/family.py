"""Which processes a command has started, whatever became of their parents: nobody escapes a subreaper."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02

Role = Literal["command", "starter", "rank", "follower", "case", "other"]


@dataclass(frozen=True)
class Member:
    """A living process below this one.

    Attributes:
        pid: its number.
        parent: its parent's number; our own, if its parent has died.
        role: its purpose in gnnexp. `command` is the launcher or the sweep, and ranks are forked from the `starter`.
            A `follower` delivers to the tracker. The others are `rank` and `case` (of `gnnexp sweep --jobs`).
        stopped: whether it is frozen (SIGSTOP).
    """

    pid: int
    parent: int
    role: Role
    stopped: bool = False


def adopt_orphans() -> None:
    """From now on, a process below this one whose parent dies becomes our child: it stays in `family()`."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def family(root: int | None = None) -> list[Member]:
    """Everyone below this process (or below `root`), parents first; zombies are none of them."""
    root = os.getpid() if root is None else root
    found: list[Member] = []
    waiting = [(pid, root, "other") for pid in _children(root)]
    while waiting:
        pid, parent, parents_role = waiting.pop(0)
        state = _state(pid)
        if state in ("", "Z", "X"):
            continue
        role = _role(pid, parents_role)
        found.append(Member(pid, parent, role, state == "T"))
        waiting += [(child, pid, role) for child in _children(pid)]
    return found


def of_role(role: Role, below: int | None = None) -> list[Member]:
    """Those of the family (or of the process `below` and its own family) that have this role."""
    return [member for member in family(below) if member.role == role]


def kill_all() -> int:
    """End everyone below this process, and wait until they are gone; how many there were."""
    count = 0
    while left := family():
        for member in left:
            count += 1
            with suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)
        time.sleep(_POLL_S)
        reap()
    reap()
    return count


def reap(but: tuple[int, ...] = ()) -> None:
    """Take leave of adopted children that have ended; `but` those whose exit code somebody waits for."""
    for pid in _children(os.getpid()):
        if pid not in but and _state(pid) == "Z":
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def left_after(seconds: float, but: tuple[int, ...] = (), roles: frozenset[Role] | None = None) -> list[Member]:
    """Who of the family (of these `roles`) still lives after at most `seconds`; empty as soon as nobody does."""
    end = time.monotonic() + seconds
    while True:
        reap(but)
        found = [member for member in family() if roles is None or member.role in roles]
        if not found or time.monotonic() > end:
            return found
        time.sleep(_POLL_S)


def describe(member: Member) -> str:
    """In words, with its command line."""
    command = _read(Path(f"/proc/{member.pid}/cmdline")).replace(b"\0", b" ").decode(errors="replace").strip()
    frozen = ", frozen" if member.stopped else ""
    return f"{member.role} {member.pid} (child of {member.parent}{frozen}): {command[:120]}"


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  called a hundred times a second
            yield from map(int, _read(Path(f"/proc/{pid}/task/{task}/children")).split())


def _state(pid: int) -> str:
    """One letter of /proc/PID/stat; empty if there is no such process."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    return fields[0].decode() if fields else ""


def _role(pid: int, parents_role: str) -> Role:
    """By the name that `gnnexp`'s forks have here, or by the command line of a new interpreter."""
    if parents_role == "starter":
        return "rank"
    if parents_role == "rank":
        return "other"
    name = _read(Path(f"/proc/{pid}/comm")).strip().decode()
    line = _read(Path(f"/proc/{pid}/cmdline")).decode(errors="replace") if name.startswith("python") else ""
    for role, word, module in _NAMES:
        if name == word or module in line:
            return role
    return "other"


_NAMES: tuple[tuple[Role, str, str], ...] = (
    ("starter", "starter", "gnnexp.launchers.starter"),
    ("follower", "follow", "gnnexp.trackers.follow"),
    ("case", "side_by_side", "gnnexp.cli.sweeping.side_by_side"),
    ("command", "gnnexp", "-m\0gnnexp\0"),
)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
