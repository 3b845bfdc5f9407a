"""Where rows of the host tier lie, and that they are given back."""

from __future__ import annotations

import gc
from pathlib import Path

import torch
from own_memory import own_bytes

from gnnexp.tiers.host_tier import HostTier

_STATUS = Path("/proc/self/status")


def mapped_kilobytes() -> int:
    """Of the process's address space."""
    (line,) = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmSize:")]
    return int(line.split()[1])


def test_rows_are_zeros_and_counted_wherever_they_lie(tmp_path):
    for place in ("ram", "file"):
        (tmp_path / place).mkdir()
        tier = HostTier(place, tmp_path / place, pinned=False)
        rows = tier.rows(5, 3, torch.float64)
        assert rows.shape == (5, 3) and rows.eq(0).all() and tier.num_bytes == 120
        rows[2] = 1
        assert rows.sum() == 3 and tier.rows(0, 3, torch.float32).shape == (0, 3)
    assert list((tmp_path / "file").iterdir()) == [], "a killed run leaves no file"


def test_sums_of_rows_in_ram_are_added_up_where_they_lie(tmp_path):
    tier = HostTier("ram", tmp_path, pinned=False)
    rows = tier.rows(5, 3, torch.float32) + 7
    assert tier.to_add_up(rows) is rows and rows.eq(0).all()


def test_sums_of_rows_in_files_are_added_up_in_memory_that_the_system_gets_back(tmp_path):
    tier = HostTier("file", tmp_path, pinned=False)
    rows = tier.rows(1 << 20, 64, torch.float32).fill_(7)
    before, own = mapped_kilobytes(), own_bytes()
    sums = tier.to_add_up(rows)
    assert sums.shape == rows.shape and sums.dtype == rows.dtype and sums.eq(0).all() and rows[0, 0] == 7
    sums += 0
    assert own_bytes() - own > 1 << 27, "memory of the process, not of a file"
    sums[3] += 2
    assert sums.sum() == 2 * 64 and mapped_kilobytes() - before >= 1 << 18
    del sums
    gc.collect()
    assert mapped_kilobytes() - before < 1 << 10
    assert tier.to_add_up(tier.rows(0, 4, torch.float32)).shape == (0, 4)
