"""What a process may still allocate, by the control groups of both versions, as files of any depth say it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from gnnexp.datasets.base import check_memory
from gnnexp.errors import DataError
from gnnexp.measure.available import (
    available_memory,
    groups_of_process,
    kernel_kills,
    limit_in_words,
    total_memory,
)

MACHINE, FREE = 64_000, 32_000  # bytes; the numbers matter, not their size
_HOUSE = Path(__file__).parents[2] / "gnnexp"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=MACHINE, available=FREE))


def process(folder: Path, *, v1: str = "", v2: str = "", root: str = "/") -> Path:
    """Files of a process in the groups `v1` and `v2`; `root`: what of the hierarchy is mounted."""
    groups = [f"4:memory,hugetlb:{v1}"] * bool(v1) + ["3:cpu:/elsewhere", "1:name=systemd:/"] + [f"0::{v2}"] * bool(v2)
    mounts = [
        f"30 25 0:1 / {folder}/cpu rw - cgroup cgroup rw,cpu",
        f"31 25 0:2 {root} {folder}/one\\040memory rw,nosuid shared:4 - cgroup cgroup rw,memory,hugetlb",
        f"32 25 0:3 {root} {folder}/two rw - cgroup2 cgroup2 rw",
        f"33 25 0:4 / {folder} rw - tmpfs none rw",
    ]
    (folder / "cgroup").write_text("\n".join(groups) + "\n")
    (folder / "mountinfo").write_text("\n".join(mounts) + "\n")
    return folder


def first(folder: Path, path: str, *, limit: str, used: int, **stat: int) -> None:
    group = folder / "one memory" / path
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (group / "memory.usage_in_bytes").write_text(f"{used}\n")
    (group / "memory.stat").write_text("".join(f"{name} {value}\n" for name, value in stat.items()))


def second(folder: Path, path: str, *, limit: str = "max", high: str = "max", used: int = 0, **stat: int) -> None:
    group = folder / "two" / path
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.high").write_text(f"{high}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text("".join(f"{name} {value}\n" for name, value in stat.items()))


def test_without_a_limit_it_is_the_machines(tmp_path: Path) -> None:
    first(tmp_path, "a", limit="9223372036854771712", used=5)
    second(tmp_path, "a")
    assert available_memory(process(tmp_path, v1="/a", v2="/a")) == FREE
    assert total_memory(tmp_path) == MACHINE


def test_on_another_system_it_is_the_machines(tmp_path: Path) -> None:
    assert (available_memory(tmp_path), total_memory(tmp_path)) == (FREE, MACHINE)


@pytest.mark.parametrize("version", [1, 2])
def test_pages_of_files_are_no_usage(tmp_path: Path, version: int) -> None:
    if version == 1:  # its own values come first, those of all groups below it count
        first(tmp_path, "a/b", limit="700", used=600, active_file=1, total_active_file=100, total_inactive_file=50)
    else:
        second(tmp_path, "a/b", limit="700", used=600, anon=400, active_file=90, inactive_file=50, slab_reclaimable=10)
    assert available_memory(process(tmp_path, **{f"v{version}": "/a/b"})) == 700 - (600 - 150)
    assert total_memory(tmp_path) == 700


@pytest.mark.parametrize(
    ("levels", "left"),
    [
        ({"a": ("500", 450), "a/b": ("max", 10), "a/b/c": ("900", 10)}, 50),
        ({"a": ("900", 450), "a/b": ("100", 30), "a/b/c": ("900", 10)}, 70),
        ({"a": ("900", 450), "a/b": ("800", 30), "a/b/c": ("100", 90)}, 10),
        ({"": ("60", 10), "a/b/c": ("100", 20)}, 50),
        ({"a/b/c": ("100", 130)}, 0),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_the_narrowest_of_all_levels_counts(
    tmp_path: Path, version: int, levels: dict[str, tuple[str, int]], left: int
) -> None:
    write = {1: first, 2: second}[version]
    for path, (limit, used) in levels.items():
        write(tmp_path, path, limit=limit if version == 2 or limit != "max" else str(2**63 - 4096), used=used)
    assert available_memory(process(tmp_path, **{f"v{version}": "/a/b/c"})) == left


def test_throttling_from_high_on_is_a_limit(tmp_path: Path) -> None:
    second(tmp_path, "a", limit="900", high="300", used=100)
    assert available_memory(process(tmp_path, v2="/a")) == 200


@pytest.mark.parametrize("version", [1, 2])
def test_in_a_container_the_groups_path_begins_outside(tmp_path: Path, version: int) -> None:
    {1: first, 2: second}[version](tmp_path, "", limit="400", used=100)
    assert available_memory(process(tmp_path, root="/docker/abc", **{f"v{version}": "/docker/abc"})) == 300


def test_both_versions_at_once(tmp_path: Path) -> None:
    first(tmp_path, "a", limit="400", used=100)
    second(tmp_path, "b", limit="200", used=10)
    assert available_memory(process(tmp_path, v1="/a", v2="/b")) == 190


def test_a_guard_asks_for_what_the_container_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second(tmp_path, "a", limit="1000", used=400)
    monkeypatch.setattr(available_memory, "__defaults__", (process(tmp_path, v2="/a"),))
    check_memory(600, "rows")
    with pytest.raises(DataError, match="are available"):
        check_memory(601, "rows")


@pytest.mark.parametrize("version", [1, 2])
def test_kills_are_those_of_the_own_group(tmp_path: Path, version: int) -> None:
    {1: first, 2: second}[version](tmp_path, "a/b", limit="700", used=600)
    folder = tmp_path / ("one memory" if version == 1 else "two") / "a" / "b"
    name, more = ("memory.oom_control", "under_oom 0\n") if version == 1 else ("memory.events", "oom 9\n")
    (folder / name).write_text(f"{more}oom_kill 2\n")
    (machine := tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 17\n")
    assert kernel_kills(process(tmp_path, **{f"v{version}": "/a/b"}), machine) == 2


def test_kills_are_the_machines_where_no_group_counts_them(tmp_path: Path) -> None:
    (machine := tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 17\n")
    assert kernel_kills(process(tmp_path, v2="/a"), machine) == 17
    assert kernel_kills(tmp_path / "nothing", tmp_path / "nothing") == 0, "another system"


def test_a_message_says_whose_limit_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=24 << 30, available=FREE))
    second(tmp_path, "a", limit=str(3 << 29), used=100)
    assert limit_in_words(process(tmp_path, v2="/a")) == "the limit of the control group is 1.5 GiB"
    assert limit_in_words(tmp_path / "nothing") == "the memory of this machine is 24.0 GiB"


def test_nothing_else_asks_the_machine() -> None:
    """But what describes the machine, and how busy all of it is."""
    asking = {
        str(file.relative_to(_HOUSE))
        for file in _HOUSE.rglob("*.py")
        if any(word in file.read_text() for word in ("virtual_memory", "SC_PHYS_PAGES", "meminfo"))
    }
    assert asking == {"measure/available.py", "measure/machine_load.py", "provenance/machine.py"}


def test_it_is_what_this_machine_has() -> None:
    """The real files can be read."""
    assert 0 < available_memory() <= FREE
    assert all(kind in {"cgroup", "cgroup2"} and group.is_relative_to(top) for kind, group, top in groups_of_process())
