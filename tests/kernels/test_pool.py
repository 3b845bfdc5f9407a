"""Pooled buffers: reused only when nothing refers to them, aligned, bounded, shared by threads."""

import gc
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.kernels.pool import HUGE_PAGE_BYTES, KEPT_FOR, SMALLEST_POOLED_BYTES, Pool, allocate, size_class

ROWS = SMALLEST_POOLED_BYTES // 4


@given(st.integers(1, 1 << 40))
def test_size_classes_waste_at_most_an_eighth(nbytes: int) -> None:
    assert nbytes <= size_class(nbytes) <= max(nbytes + 64, nbytes * 9 // 8 + 1)
    assert size_class(size_class(nbytes)) == size_class(nbytes)


@pytest.mark.parametrize(("nbytes", "alignment"), [(100_000, 64), (HUGE_PAGE_BYTES * 2, HUGE_PAGE_BYTES)])
def test_alignment(nbytes: int, alignment: int) -> None:
    buffer = allocate(nbytes)
    assert buffer.ctypes.data % alignment == 0 and buffer.size == nbytes
    buffer[:] = 7


def test_large_buffers_are_private_memory_in_huge_pages() -> None:
    buffer = allocate(HUGE_PAGE_BYTES * 2)
    address, rights, flags = buffer.ctypes.data, "", ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if not first.endswith(":"):
            start, end = (int(bound, 16) for bound in first.split("-"))
            rights = line.split()[1] if start <= address < end else ""
        elif rights and first == "VmFlags:":
            flags = line
            break
    assert rights == "rw-p", "not shared: the kernel backs shared memory by another setting, and counts it as files"
    assert " hg" in flags, "huge pages are asked for"


def test_memory_is_reused_only_after_the_last_reference_dies() -> None:
    pool = Pool()
    first = torch.from_numpy(pool.empty((ROWS, 2), np.float32))
    address, view = first.data_ptr(), first[3:].t()
    del first
    second = pool.empty((ROWS, 2), np.float32)
    assert second.ctypes.data != address, "a view still reads it"
    view.fill_(1)
    del view
    assert pool.empty((ROWS, 2), np.float32).ctypes.data == address


def test_tensors_saved_by_autograd_keep_their_memory() -> None:
    pool = Pool()
    x = torch.ones(ROWS, requires_grad=True)
    buffer = torch.from_numpy(pool.empty((ROWS,), np.float32)).fill_(3)
    product = (x * buffer).sum()
    del buffer
    for _ in range(4):
        pool.empty((ROWS,), np.float32).fill(-1)
    product.backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full((ROWS,), 3.0))


def test_idle_memory_is_bounded_and_the_longest_idle_goes_first() -> None:
    pool = Pool(idle_limit_bytes=3 * SMALLEST_POOLED_BYTES)
    arrays = [pool.empty((ROWS * k,), np.float32) for k in (1, 2, 4)]
    arrays.clear()
    pool.empty((ROWS,), np.float32)
    assert pool.idle_bytes <= 3 * SMALLEST_POOLED_BYTES
    pool.trim()
    assert pool.idle_bytes == 0 and pool.leased_bytes == 0


def test_what_is_not_wanted_again_is_freed() -> None:
    pool = Pool()
    pool.empty((ROWS * 40,), np.float32)
    pool.empty((ROWS * 2,), np.float32)
    for _ in range(KEPT_FOR):
        assert pool.idle_bytes >= size_class(4 * ROWS * 40)
        pool.empty((ROWS * 2,), np.float32)
    pool.empty((ROWS * 2,), np.float32)
    assert pool.idle_bytes + pool.leased_bytes < size_class(4 * ROWS * 4)
    assert pool.peak_bytes == size_class(4 * ROWS * 40)


def test_sizes_used_one_after_the_other_all_stay() -> None:
    pool, sizes = Pool(), (40, 10, 3, 25)

    def step() -> set[int]:
        return {pool.empty((ROWS * k,), np.float32).ctypes.data for k in sizes}

    first = step()
    assert len(first) == len(sizes) and all(step() == first for _ in range(50))


def test_a_step_of_several_sizes_reuses_all_of_them() -> None:
    pool, sizes = Pool(), (1, 3, 2, 5)

    def step() -> set[int]:
        held = [pool.empty((ROWS * k,), np.float32) for k in sizes]
        addresses = {array.ctypes.data for array in held}
        held.clear()
        return addresses | {pool.empty((ROWS * k,), np.float32).ctypes.data for k in sizes}

    assert step() == step() == step()


def test_batches_of_varying_sizes_settle_on_the_same_buffers() -> None:
    pool = Pool()
    sizes = [[int(ROWS * scale * (1 + 0.04 * wave)) for scale in (2, 6, 6, 18)] for wave in (0, 1, -1, 0.5, -0.7, 1)]

    def step(rows: list[int]) -> set[int]:
        held = [pool.empty((n,), np.float32) for n in rows]
        return {array.ctypes.data for array in held}

    for rows in sizes:
        step(rows)
    settled = set().union(*(step(rows) for rows in sizes))
    assert set().union(*(step(rows) for rows in sizes)) == settled and len(settled) <= 8


def test_small_arrays_and_shapes() -> None:
    pool = Pool()
    assert pool.empty((0, 5), np.float64).shape == (0, 5) and pool.leased_bytes == 0
    big = pool.empty((ROWS, 3), np.float64)
    assert big.shape == (ROWS, 3) and big.dtype == np.float64 and big.flags.c_contiguous and big.flags.writeable


def test_threads_never_share_a_live_buffer() -> None:
    pool, wrong = Pool(), []

    def work(stamp: int) -> None:
        for i in range(200):
            array = pool.empty((ROWS + 1000 * (i % 3),), np.int32)
            array.fill(stamp)
            if (array != stamp).any():
                wrong.append(stamp)

    threads = [threading.Thread(target=work, args=(stamp,)) for stamp in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    pool.trim()
    assert not wrong and pool.leased_bytes == 0
