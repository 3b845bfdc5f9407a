"""The emulated device tier counts what is alive, once per storage."""

from __future__ import annotations

import mmap

import numpy as np
import torch

from gnnexp.measure.memory import TensorMeter, host_peak_bytes, own_bytes, own_peak_bytes, reset_host_peak


def test_meter_counts_live_storages_and_their_peak():
    with TensorMeter() as meter:
        first = torch.zeros(1000, dtype=torch.float64)
        assert meter.current_bytes == 8000
        second = first + 1
        view = second.view(10, 100)[3]
        assert meter.current_bytes == 16000
        del first, second
        assert meter.current_bytes == 8000  # the view keeps its storage
        del view
        assert meter.current_bytes == 0
    assert meter.peak_bytes == 16000


def test_meter_leaves_out_what_existed():
    weight = torch.zeros(1000)
    with TensorMeter([weight]) as meter:
        out = weight * 2
        assert meter.current_bytes == 4000
        del out
        assert meter.current_bytes == 0


def test_meter_sees_saved_activations_and_gradients():
    weight = torch.zeros(100, 50, requires_grad=True)
    rows = torch.randn(1000, 100)
    with TensorMeter([weight, rows]) as meter:
        hidden = (rows @ weight).relu()
        assert meter.current_bytes >= 1000 * 50 * 4
        hidden.sum().backward()
        assert meter.peak_bytes >= 2 * 1000 * 50 * 4


def test_host_peak_follows_an_allocation():
    reset_host_peak()
    before = host_peak_bytes()
    with mmap.mmap(-1, 64 << 20) as block:  # pages of its own, whatever earlier tests left in the heap
        np.frombuffer(block, np.uint8)[:] = 1
        assert host_peak_bytes() - before > 60 << 20


def test_own_peak_leaves_out_mapped_files(tmp_path):
    """32 MiB of a file that were read before do not count, 16 MiB that came and went since do."""
    (tmp_path / "data").write_bytes(bytes(32 << 20))
    data = np.memmap(tmp_path / "data", np.uint8, "r")
    data.sum()
    before = own_bytes()
    reset_host_peak()
    room = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    room.write(bytes([1]) * (16 << 20))
    room.close()
    assert 16 << 20 <= own_peak_bytes() - before < 40 << 20
    assert host_peak_bytes() > own_peak_bytes() + (32 << 20)
