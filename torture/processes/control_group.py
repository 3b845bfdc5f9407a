"""A control group with little memory, as a container or a job has one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gnnexp.measure.available import groups_of_process

_WAIT_S = 10.0
# By the version's type of file system: its limits. Swap would hide what memory is not enough for.
_LIMITS = {
    "cgroup": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    "cgroup2": ("memory.max", "memory.swap.max"),
}

_USAGES = {"memory.limit_in_bytes": "memory.usage_in_bytes", "memory.max": "memory.current"}
_STEP_BYTES, _STEPS = 1 << 18, 400


class NoControlGroupsError(OSError):
    """Control groups cannot be made here: it needs root, and a hierarchy that can be written."""


@contextmanager
def control_group(memory_bytes: int) -> Iterator[Path]:
    """A new group below that of this process; who writes its number into `cgroup.procs` is in it. Its end kills all.

    Raises:
        NoControlGroupsError: none can be made.
    """
    for kind, folder, _ in groups_of_process():
        place = folder / f"gnnexp-{os.getpid()}-{time.monotonic_ns()}"
        try:
            place.mkdir()
        except OSError:
            continue
        try:
            if _limited(place, kind, memory_bytes):
                yield place
                return
        finally:
            _remove(place)
    raise NoControlGroupsError("no control group with a limit of memory can be made")


def _limited(place: Path, kind: str, memory_bytes: int) -> bool:
    limit, swap = (place / name for name in _LIMITS[kind])
    if not limit.exists():  # version 2 without this controller
        return False
    limit.write_text(str(memory_bytes))
    if swap.exists():
        swap.write_text(str(memory_bytes if kind == "cgroup" else 0))
    return True


def tighten(group: Path) -> int:
    """Lower the limit to what the group needs just now, so that its next pages are too many; the new limit in bytes."""
    limit, usage = next((group / one, group / other) for one, other in _USAGES.items() if (group / one).exists())
    least = int(limit.read_text())
    for _ in range(_STEPS):  # each step takes pages of files away, until no more can be taken
        step = int(usage.read_text()) - _STEP_BYTES
        try:
            limit.write_text(str(step))
        except OSError:
            break
        least = step
    return least


def kills_of(group: Path) -> int:
    """How many processes of the group the kernel has killed for want of memory."""
    for name in ("memory.oom_control", "memory.events"):
        with suppress(OSError):
            rows = (line.split() for line in (group / name).read_text().splitlines())
            return next(int(value) for key, value in rows if key == "oom_kill")
    return 0


def _remove(group: Path) -> None:
    """The group's processes are killed first: a group with processes cannot be removed."""
    end = time.monotonic() + _WAIT_S
    while True:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            group.rmdir()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
