"""Global batches are the same for any number of ranks; shares cover them."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.paradigms.loops.targets import StratifiedSchedule, TargetSchedule, targets_of_rank


@given(st.integers(1, 200), st.one_of(st.none(), st.integers(1, 250)), st.integers(0, 5), st.booleans())
def test_every_target_once_per_epoch(count, batch_size, epoch, shuffle):
    targets = torch.arange(count) * 3
    schedule = TargetSchedule(targets, batch_size, 1, shuffle)
    order = schedule.order(epoch)
    batches = [schedule.global_batch(order, step) for step in range(schedule.num_steps)]
    assert torch.cat(batches).sort().values.equal(targets)
    assert all(batch.numel() for batch in batches)
    assert schedule.order(epoch).equal(order)


def test_epochs_differ():
    schedule = TargetSchedule(torch.arange(1000), 10, 1, True)
    assert not schedule.order(0).equal(schedule.order(1))
    assert not schedule.order(0).equal(torch.arange(1000))


@given(st.integers(0, 50), st.integers(1, 9))
def test_shares_are_contiguous_and_even(count, size):
    targets = torch.arange(count)
    shares = [targets_of_rank(targets, rank, size) for rank in range(size)]
    assert torch.cat(shares).equal(targets)
    lengths = [part.numel() for part in shares]
    assert max(lengths) - min(lengths) <= 1


def test_every_part_has_an_order_of_its_own():
    """Parts of equal size: ids of part 1 are those of part 0 and one more."""
    schedule = StratifiedSchedule(TargetSchedule(torch.arange(200), 10, 1, True), torch.arange(200) % 2, 2)
    first, second = schedule.orders(0)
    assert first.sort().values.equal(torch.arange(0, 200, 2)) and second.sort().values.equal(torch.arange(1, 200, 2))
    assert not second.equal(first + 1)
    assert not any(one.equal(other) for one, other in zip(schedule.orders(0), schedule.orders(1), strict=True))
