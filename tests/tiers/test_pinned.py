"""Memory that all ranks of a machine share, and what happens if a machine refuses it."""

from __future__ import annotations

import mmap
import os

import psutil
import pytest
import torch
from exchanging import CPU, alone

from gnnexp.errors import RunError
from gnnexp.tiers import pinned


def test_a_machine_with_too_little_memory_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    class Little:
        available = 99

    monkeypatch.setattr(psutil, "virtual_memory", Little)
    with pytest.raises(RunError, match=r"need 100 bytes of host memory, 99 bytes are available; set feature_store"):
        pinned.pinned_array((25, 1), torch.float32, torch.Tensor.zero_, alone(), CPU)


def test_another_process_opens_the_memory_only_if_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    handle, refusal = pinned._new_memory(5000, "features")
    assert refusal is None
    number = os.fstat(handle).st_ino
    mmap.mmap(handle, 5000)[:3] = b"abc"
    found = pinned._opened(os.getpid(), handle, number)
    assert mmap.mmap(found, 5000)[:4] == b"abc\0"
    os.close(found)
    assert pinned._opened(os.getpid(), handle, number + 1) == -1
    os.close(handle)
    assert pinned._opened(os.getpid(), handle, number) == -1


def test_memory_that_the_system_does_not_give_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    handle, refusal = pinned._new_memory(10, "features")
    assert handle == -1 and "No space left" in str(refusal)


def test_no_rows_need_no_memory() -> None:
    assert pinned.pinned_array((0, 3), torch.float32, torch.Tensor.zero_, alone(), CPU).shape == (0, 3)
