"""Memory that this process may still take: of the machine, and of each control group above it.

A container, a job of SLURM and a service of systemd have a limit below the machine's. Who goes beyond it is killed
without a message, so whatever asks whether something fits asks here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_PROCESS = Path("/proc/self")
# A limit from here on is none: version 1 writes the largest multiple of a page.
_NO_LIMIT = 1 << 60


class _Files(NamedTuple):
    """Names in a control group: of its limits and its usage, and what its `memory.stat` puts before each name."""

    limits: tuple[str, ...]
    usage: str
    prefix: str


_BY_KIND = {
    "cgroup2": _Files(("memory.max", "memory.high"), "memory.current", ""),
    "cgroup": _Files(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_"),
}
# Files of a control group that count the processes that the kernel has killed in it, of both versions.
_KILLS = ("memory.oom_control", "memory.events")
_KILLS_OF_MACHINE = Path("/proc/vmstat")
# What the kernel takes back before it kills: pages of files, and of its own caches (version 2 only).
_RECLAIMED = ("active_file", "inactive_file", "slab_reclaimable")


def available_memory(process: Path = _PROCESS) -> int:
    """Bytes that can still be allocated: the least of what the machine and each control group have left.

    Args:
        process: folder with the files `cgroup` and `mountinfo` of Linux.
    """
    left = [limit - used for limit, used in _groups(process)]
    return max(0, min([int(psutil.virtual_memory().available), *left]))


def total_memory(process: Path = _PROCESS) -> int:
    """Bytes of the machine, or of the narrowest control group."""
    return min([int(psutil.virtual_memory().total), *(limit for limit, _ in _groups(process))])


def limit_in_words(process: Path = _PROCESS) -> str:
    """Which limit of memory this process and its children have together, for a message."""
    own, machine = total_memory(process), int(psutil.virtual_memory().total)
    whose = "the limit of the control group" if own < machine else "the memory of this machine"
    return f"{whose} is {own / 2**30:.1f} GiB"


def kernel_kills(process: Path = _PROCESS, machine: Path = _KILLS_OF_MACHINE) -> int:
    """How many processes the kernel has ended because memory ran out, in the control group of this process.

    If no group counts them, those of the whole machine count, among them a neighbour's.
    """
    groups = [folder / name for _, folder, _ in groups_of_process(process) for name in _KILLS]
    counts = [count for file in (*groups, machine) if (count := _row(file, "oom_kill")) is not None]
    return counts[0] if counts else 0


def _row(file: Path, name: str) -> int | None:
    """The number in the row `name` of a file; None if there is none."""
    rows = (line.split() for line in _lines(file))
    return next((int(row[1]) for row in rows if len(row) == 2 and row[0] == name and row[1].isdigit()), None)


def _groups(process: Path) -> Iterator[tuple[int, int]]:
    """Limit and usage of every control group of a process that has a limit, in bytes; both versions of Linux.

    Pages of files that the kernel would take back are not usage. Groups above a container's own cannot be seen there.
    """
    for kind, folder, top in groups_of_process(process):
        for group in (folder, *folder.parents):
            if not group.is_relative_to(top):
                break
            files = _BY_KIND[kind]
            limits = [limit for name in files.limits if (limit := _number(group / name)) is not None]
            used = _number(group / files.usage)
            if used is not None and min(limits, default=_NO_LIMIT) < _NO_LIMIT:
                yield min(limits), max(0, used - _reclaimed(group, files.prefix))


def groups_of_process(process: Path = _PROCESS) -> Iterator[tuple[str, Path, Path]]:
    """Version (a type of file system), folder of the process's group, and the topmost folder, of each hierarchy."""
    groups = {}
    for line in _lines(process / "cgroup"):
        _, controllers, group = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            groups["cgroup" if controllers else "cgroup2"] = Path(group)
    for line in _lines(process / "mountinfo"):
        mount, _, system = line.partition(" - ")
        *_, root, place = mount.split()[:5]
        kind, _, options = system.split(maxsplit=2)
        if kind in groups and (kind == "cgroup2" or "memory" in options.split(",")):
            above, top = Path(_unescaped(root)), Path(_unescaped(place))
            here = groups[kind].relative_to(above) if groups[kind].is_relative_to(above) else Path()
            yield kind, top / here, top


def _unescaped(text: str) -> str:
    """A path of `mountinfo`, which has blanks in octal."""
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # another system than Linux
        return []


def _number(file: Path) -> int | None:
    """A number of bytes; None for `max`, or without this file."""
    words = _lines(file)
    return int(words[0]) if words and words[0].isdigit() else None


def _reclaimed(group: Path, prefix: str) -> int:
    wanted = {prefix + name for name in _RECLAIMED}
    rows = (line.split() for line in _lines(group / "memory.stat"))
    return sum(int(row[1]) for row in rows if row[0] in wanted)
