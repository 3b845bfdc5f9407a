"""Collectives do what they say, and every byte, round and wait is counted."""

from __future__ import annotations

import time

import pytest
import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment, read_environment
from gnnexp.measure.phases import PhaseTimer

CPU = torch.device("cpu")


def _all_reduce(length: int, dtype: torch.dtype) -> tuple[list[float], int, int]:
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    tensor = torch.full((length,), float(comm.rank + 1), dtype=dtype)
    comm.all_reduce(tensor, "gradients")
    traffic = comm.ledger.take()["gradients"]
    return tensor.tolist(), traffic.sent_bytes, traffic.rounds


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("length", [0, 1, 7, 100])
def test_all_reduce_sums_and_counts(ranks, size, length):
    results = ranks(size).run(_all_reduce, length, torch.float64)
    expected = [size * (size + 1) / 2] * length
    assert all(values == expected for values, _, _ in results)
    assert sum(sent for _, sent, _ in results) == 2 * (size - 1) * length * 8
    assert all(rounds == 1 for _, _, rounds in results)


def _broadcast(source: int) -> tuple[list[float], int]:
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    tensor = torch.full((5, 3), float(comm.rank))
    comm.broadcast(tensor, source, "evaluation")
    return tensor.flatten().tolist(), comm.ledger.take()["evaluation"].sent_bytes


@pytest.mark.parametrize("source", [0, 2])
def test_broadcast(ranks, source):
    results = ranks(3).run(_broadcast, source)
    assert all(values == [float(source)] * 15 for values, _ in results)
    assert [sent for _, sent in results] == [2 * 15 * 4 if rank == source else 0 for rank in range(3)]


def _late(rank_that_is_late: int) -> tuple[float, float]:
    comm = Communicator(read_environment(), timer := PhaseTimer(), CPU)
    comm.barrier()
    timer.start_epoch()
    if comm.rank == rank_that_is_late:
        with timer.phase("forward"):
            time.sleep(0.2)
    with timer.phase("sync"):
        comm.all_reduce(torch.zeros(10), "gradients")
    phases = timer.end_epoch().phases
    return phases["wait"], phases["sync"]


@pytest.mark.slow  # it compares measured times: not for a busy machine
def test_waiting_for_a_slow_rank_is_wait_not_sync(ranks):
    (wait_fast, sync_fast), (wait_slow, sync_slow) = ranks(2).run(_late, 1)
    assert wait_fast > 0.15
    assert wait_slow < 0.15
    assert max(sync_fast, sync_slow) < 0.1


def test_a_single_rank_sends_nothing():
    comm = Communicator(Environment(), PhaseTimer(), CPU)
    tensor = torch.ones(3)
    comm.all_reduce(tensor, "gradients")
    comm.broadcast(tensor, 0, "evaluation")
    assert tensor.tolist() == [1, 1, 1]
    assert comm.gather_objects("x") == ["x"]
    assert comm.ledger.take() == {}
