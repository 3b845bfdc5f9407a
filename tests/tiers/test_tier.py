"""The device tier of chunked work: every crossing is a copy and counted, and what is made inside is held against it."""

from __future__ import annotations

import pytest
import torch

from emulated_gpu import counting, is_wanted
from gnnexp.tiers.tier import DeviceTier

CPU = torch.device("cpu")


def rows(count: int, width: int = 4, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(count * width, dtype=dtype).view(count, width)


def test_what_enters_is_a_copy_and_counted():
    tier, host = DeviceTier(CPU), rows(6)
    whole, some = tier.enter(host), tier.enter(host, torch.tensor([4, 1, 4]))
    assert torch.equal(whole, host) and some[:, 0].tolist() == [16, 4, 16]
    whole.zero_()
    some.zero_()
    assert host.flatten().tolist() == list(range(24)), "host memory is not the tier's"
    assert tier.take_counts() == {"tier/h2d_bytes": (6 + 3) * 4 * 4}


def test_what_leaves_is_put_or_added_and_counted():
    tier, done, host = DeviceTier(CPU), rows(3, dtype=torch.float64), torch.ones(6, 4, dtype=torch.float64)
    tier.leave(done, host[2:5])
    assert host[2:5].flatten().tolist() == list(range(12)) and host[[0, 1, 5]].eq(1).all()
    tier.add(done, host, torch.tensor([5, 0, 2]))
    expected = torch.ones(6, 4, dtype=torch.float64)
    expected[2:5] = done
    expected[[5, 0, 2]] += done
    assert torch.equal(host, expected)
    tier.add(done, host[:3], None)
    expected[:3] += done
    assert torch.equal(host, expected)
    assert tier.take_counts() == {"tier/d2h_bytes": 3 * 3 * 4 * 8, "tier/host_add_bytes": 2 * 3 * 4 * 8}


def test_counts_are_taken_once_and_topology_crosses_with_its_chunk():
    tier = DeviceTier(CPU)
    for _ in range(2):
        with tier.chunk(1000, ()):
            tier.enter(rows(1))
    assert tier.take_counts() == {"tier/h2d_bytes": 2 * (1000 + 16)}
    assert tier.take_counts() == {}


def test_the_peak_is_what_was_alive_at_once_with_the_topology():
    tier, host, out = DeviceTier(CPU), rows(100), torch.empty(100, 4)
    with tier.measured():
        with tier.chunk(500, (host, out)):
            held = tier.enter(host)
            temporary = held * 2
            del temporary
            tier.leave(held, out)
            del held
            again = tier.enter(host)
            del again
        assert tier.peak_bytes == 500 + 2 * 1600
        with tier.chunk(100, (host, out)):
            single = tier.enter(host)
            del single
        assert tier.peak_bytes == 500 + 2 * 1600, "of the fullest chunk, not of the last one, nor of all together"
        with tier.chunk(0, (host, out)):
            several = [tier.enter(host) for _ in range(3)]
            del several
    assert tier.peak_bytes == 3 * 1600


def test_what_lies_elsewhere_is_not_held_by_the_tier():
    tier, host, out = DeviceTier(CPU), rows(100), torch.zeros(100, 4)
    with tier.measured(), tier.chunk(0, (host, None, out)):
        host.add_(1)
        out[:50].copy_(host[50:])
    assert tier.peak_bytes == 0
    with tier.measured(), tier.chunk(0, (host,)):
        out.add_(host)
    assert tier.peak_bytes == 1600, "what nobody named is"


def test_nothing_is_measured_outside_the_untimed_pass():
    tier = DeviceTier(CPU)
    with tier.chunk(500, ()):
        tier.enter(rows(100))
    with tier.measured():
        pass
    with tier.chunk(500, ()):
        tier.enter(rows(100))
    assert tier.peak_bytes == 0


def test_measuring_ends_with_the_pass_even_if_that_fails():
    tier = DeviceTier(CPU)
    with pytest.raises(MemoryError), tier.measured():
        raise MemoryError
    with tier.chunk(500, ()):
        tier.enter(rows(100))
    assert tier.peak_bytes == 0


@pytest.mark.gpu
def test_rows_that_left_a_gpu_are_there_when_they_are_read():
    """Copies and sums arrive in the order in which they left; methods that read host memory wait for them."""
    device = torch.device("cuda", 0)
    tier, rows = DeviceTier(device), torch.arange(12.0, device=device).view(4, 3)
    host, pinned, sums = torch.zeros(4, 3), torch.zeros(4, 3).pin_memory(), torch.zeros(6, 3)
    ids = torch.tensor([1, 5])
    with tier.chunk(0, ()):
        tier.leave(rows, host)
        tier.leave(rows + 1, pinned)
        tier.add(rows[:2], sums, ids)
    assert torch.equal(tier.enter(host).cpu(), rows.cpu())
    tier.add(rows[2:], sums, ids)
    tier.accumulate(torch.ones(2, 3), sums, ids)  # after both
    assert torch.equal(sums[ids], (rows[:2] + rows[2:]).cpu() + 1) and torch.equal(pinned, rows.cpu() + 1)
    tier.leave(rows, host[:0].new_empty(4, 3))
    tier.settle()
    assert tier.take_counts()["tier/d2h_bytes"] == (3 * 4 + 4) * 3 * 4


@pytest.mark.gpu
@pytest.mark.skipif(not is_wanted(), reason="only the emulated device counts waits")
def test_the_host_waits_once_in_two_chunks():
    device = torch.device("cuda", 0)
    tier, host = DeviceTier(device), torch.zeros(20, 4, 3)
    rows = torch.ones(4, 3, device=device)
    with counting() as counts:
        for place in range(20):
            with tier.chunk(0, ()):
                tier.leave(rows, host[place])
    assert counts.totals["waits"] == 10
    tier.settle()
    assert host.eq(1).all()


@pytest.mark.gpu
def test_pinned_rows_enter_a_gpu_without_another_copy_and_may_change_afterwards():
    device = torch.device("cuda", 0)
    tier, host = DeviceTier(device), torch.ones(4, 3).pin_memory()
    entered = []
    for change in (
        lambda: tier.accumulate(torch.ones(4, 3), host, None),
        lambda: tier.copy_on_host(torch.full((4, 3), 7.0), host),
        lambda: tier.leave(torch.full((4, 3), 8.0), host),
        lambda: (tier.before_writing(host), host.zero_()),
        lambda: (tier.add(torch.ones(2, 3, device=device), host, torch.tensor([1, 3])), tier.settle()),
    ):
        entered.append((tier.enter(host), host.clone()))
        change()
    assert all(torch.equal(there.cpu(), was) for there, was in entered)
    assert tier.take_counts()["tier/h2d_bytes"] == 5 * 4 * 3 * 4


@pytest.mark.gpu
@pytest.mark.skipif(not is_wanted(), reason="only the emulated device finds this mistake")
def test_changing_pinned_rows_while_a_gpu_reads_them_is_found():
    tier, host = DeviceTier(torch.device("cuda", 0)), torch.ones(4, 3).pin_memory()
    tier.enter(host)
    host.zero_()
    with pytest.raises(RuntimeError, match="written to before its copy"):
        torch.cuda.synchronize()
