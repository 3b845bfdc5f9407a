"""Copies to a GPU for which the host does not wait, and their way back."""

from __future__ import annotations

import pytest
import torch

from emulated_gpu import counting, is_wanted
from gnnexp.kernels import crossing
from gnnexp.kernels.crossing import across, back, crossed

ARRAYS = [
    torch.arange(5, dtype=torch.int32),
    torch.tensor([True, False, True]),
    torch.arange(6.0).view(2, 3),
    torch.empty(0, dtype=torch.int64),
    torch.arange(3, dtype=torch.int64),
    torch.arange(10)[::3],
    torch.rand(3, 2, dtype=torch.float64),
]


def test_on_the_host_nothing_is_copied():
    array = torch.arange(3)
    assert across(array, torch.device("cpu")) is array and back(array, array)[1] is array


@pytest.mark.gpu
@pytest.mark.parametrize("most", [crossing.MOST_PINNED, 8])
def test_arrays_of_all_types_arrive_as_they_are(most, monkeypatch):
    monkeypatch.setattr(crossing, "MOST_PINNED", most)
    device = torch.device("cuda", 0)
    for array, there in zip(ARRAYS, crossed(ARRAYS, device), strict=True):
        assert there.device == device and there.dtype == array.dtype and torch.equal(there.cpu(), array)
    for array, again in zip(ARRAYS, back(*crossed(ARRAYS, device)), strict=True):
        assert (again.is_pinned() or not array.numel()) and torch.equal(again, array)
    assert crossed([], device) == []


@pytest.mark.gpu
def test_an_array_on_the_gpu_stays_there():
    there = torch.arange(3, device="cuda")
    assert across(there, there.device) is there and torch.equal(across(there, torch.device("cpu")), torch.arange(3))


@pytest.mark.gpu
@pytest.mark.skipif(not is_wanted(), reason="only the emulated device counts")
def test_all_arrays_cross_in_one_copy_and_come_back_with_one_wait():
    device = torch.device("cuda", 0)
    with counting() as counts:
        there = crossed(ARRAYS, device)
    size = sum(array.nbytes for array in ARRAYS)
    assert (counts.totals["h2d_copies"], counts.totals["h2d_bytes"], counts.totals["waits"]) == (1, size, 0)
    assert counts.totals["pageable_h2d_bytes"] == 0
    with counting() as counts:
        back(*there)
    assert counts.totals["waits"] == 1
