"""The emulated device tier counts what is alive, once per storage."""

from __future__ import annotations

import mmap
import resource

import numpy as np
import psutil
import pytest
import torch
from own_memory import own_bytes

from gnnexp.kernels.pool import Pool
from gnnexp.measure import memory
from gnnexp.measure.memory import (
    MappedPages,
    TensorMeter,
    host_peak_bytes,
    reset_host_peak,
)


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


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_pages_of_files_are_given_back_and_nothing_is_lost(tmp_path, mode):
    size = 64 << 20
    np.arange(size // 8).tofile(tmp_path / "rows")
    mapped = torch.from_numpy(np.memmap(tmp_path / "rows", np.int64, mode))
    if mode == "r+":
        mapped += 1
    total = int(mapped.sum())
    before = psutil.Process().memory_info().rss
    MappedPages(mapped).give_back()
    assert before - psutil.Process().memory_info().rss > 0.9 * size
    assert int(mapped.sum()) == total
    assert mapped[5] == (6 if mode == "r+" else 5)


def test_memory_that_is_in_no_file_stays(tmp_path):
    np.arange(1000).tofile(tmp_path / "rows")
    private = torch.from_numpy(np.memmap(tmp_path / "rows", np.int64, "c"))
    private += 1
    anonymous = torch.from_numpy(np.frombuffer(mmap.mmap(-1, 8000), np.int64))
    anonymous += 7
    heap = torch.arange(1000)
    MappedPages(private, anonymous, heap, torch.empty(0)).give_back()
    assert torch.equal(private, heap + 1)
    assert (anonymous == 7).all()
    assert torch.equal(heap, torch.arange(1000))


def test_pooled_buffers_are_memory_of_ones_own():
    before = own_bytes()
    buffer = Pool().empty((64 << 20,), np.uint8)
    buffer[:] = 1
    assert own_bytes() - before > 60 << 20


def test_a_system_that_resets_no_peak_tells_that_of_the_process(tmp_path, monkeypatch):
    """gVisor and some containers: no epoch fails for it, and the record says what the figure is."""
    monkeypatch.setattr(memory, "_CLEAR_REFS", tmp_path / "nobody" / "clear_refs")
    assert not memory.reset_host_peak()
    assert memory.host_peak_bytes() > 0
    status = tmp_path / "status"
    status.write_text("RssAnon:\t1 kB\n")
    monkeypatch.setattr(memory, "_STATUS", status)
    assert memory.host_peak_bytes() == resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
