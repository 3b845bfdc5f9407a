"""Splits that are made on a device are those of the host on every rank, and the host waits once per exchange."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from device_blocks import SharedCase, check_split, nasty_case
from hypothesis import given, settings
from hypothesis import strategies as st
from together import together

from emulated_gpu import is_wanted
from gnnexp.errors import RunError
from gnnexp.graph.block import BatchKey
from gnnexp.samplers.device_hops import DeviceTopology
from gnnexp.samplers.device_split import DeviceSplitter
from gnnexp.samplers.device_vertices import NOWHERE
from gnnexp.samplers.fused import FusedOptions
from gnnexp.samplers.split import Splitter

CPU, KEY = torch.device("cpu"), BatchKey(7, 0, 0)


@given(st.integers(0, 1 << 20))
@settings(max_examples=30, deadline=None)
def test_splits_are_those_of_the_host(number: int) -> None:
    check_split(number)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_splits_are_those_of_the_host_on_1000_graphs() -> None:
    for number in range(1000):
        check_split(number)


def made(shared: SharedCase, comm: Any, device: torch.device = CPU, *, compares: bool = False) -> DeviceSplitter:
    """A splitter of a rank."""
    fanouts, shard = shared.case.fanouts, shared.shard(comm.rank)
    sampler = FusedOptions(fanouts).make()
    sampler.setup(shard, len(fanouts))
    host = Splitter(sampler, shard, comm.uncounted(), len(fanouts)) if compares else None
    return DeviceSplitter(DeviceTopology(shard.graph, shared.case.needs, fanouts, device), shard, comm, host)


def test_a_first_batch_that_differs_from_the_hosts_ends_the_run() -> None:
    shared = nasty_case(3, [3, 2])

    def of_rank(comm: Any, wrong: int) -> int:
        there = made(shared, comm, compares=True)
        if comm.rank == wrong:
            there._owner = there._owner.clone().fill_(wrong)
        for step in range(2):
            there.sample(shared.targets(step, comm.rank), KEY, 5)
        return len(comm.sent)

    exchanges = 2 * 2  # of two batches; what is compared is not counted
    assert together(3, lambda comm: of_rank(comm, -1)) == [3 * exchanges] * 3
    with pytest.raises(RunError, match=r"different blocks of layer \d .*sampler\.device=cpu"):
        together(3, lambda comm: of_rank(comm, 1))


def test_a_batch_clears_its_entries_of_the_table() -> None:
    shared = nasty_case(2, [3, 2])

    def of_rank(comm: Any) -> bool:
        there = made(shared, comm)
        there.sample(shared.targets(0, comm.rank), KEY, 5)
        (table,) = there._tables._spare
        return bool((table.entries[:-1] == NOWHERE).all())

    assert together(2, of_rank) == [True, True]


@pytest.mark.gpu
@pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu runs these")
@pytest.mark.parametrize(("size", "fanouts", "waits"), [(1, [3, 2], 1), (3, [3, 2], 3), (2, [-1, 3], 4)])
def test_the_host_waits_once_and_once_more_for_every_exchange(size: int, fanouts: list[int], waits: int) -> None:
    from emulated_gpu import counting

    shared = nasty_case(size, fanouts)

    def of_rank(comm: Any) -> None:
        there, targets = made(shared, comm, torch.device("cuda")), shared.targets(0, comm.rank)
        there.sample(targets, KEY, 5)
        comm.gather_objects(None)
        with counting() if comm.rank == 0 else nullcontext() as counts:  # all ranks are threads of this process
            comm.gather_objects(None)
            found = there.sample(targets, KEY, 5)
            crossing = sum(comm.gather_objects(found.batch.crossing_bytes))
        if counts is not None:
            assert counts.totals["waits"] == size * waits, counts.places
            assert counts.totals["pageable_h2d_bytes"] == 0
            assert counts.totals["h2d_bytes"] == crossing

    together(size, of_rank)
