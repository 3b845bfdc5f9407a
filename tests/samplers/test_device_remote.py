"""Batches over parts on devices are those of the hosts on every rank, and the host waits once per exchange."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from device_blocks import SharedCase, check_remote, nasty_case
from hypothesis import given, settings
from hypothesis import strategies as st
from together import together

from emulated_gpu import is_wanted
from gnnexp.errors import RunError
from gnnexp.graph.block import BatchKey
from gnnexp.samplers.device_hops import DeviceTopology
from gnnexp.samplers.device_remote import DeviceRemoteExpansion
from gnnexp.samplers.fused import FusedOptions
from gnnexp.samplers.remote import RemoteExpansion

CPU = torch.device("cpu")


@given(st.integers(0, 1 << 20))
@settings(max_examples=30, deadline=None)
def test_batches_are_those_of_the_hosts(number: int) -> None:
    check_remote(number)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_batches_are_those_of_the_hosts_on_1000_graphs() -> None:
    for number in range(1000):
        check_remote(number)


def made(
    shared: SharedCase, comm: Any, device: torch.device = CPU, *, foreign_seeds: bool = False
) -> DeviceRemoteExpansion:
    """The expansion of a rank."""
    fanouts, shard = shared.case.fanouts, shared.shard(comm.rank)
    sampler = FusedOptions(fanouts, topology="partitioned").make()
    sampler.setup(shard, len(fanouts))
    host = RemoteExpansion(sampler, shard, comm.uncounted(), len(fanouts), foreign_seeds=foreign_seeds)
    there = DeviceTopology(sampler.topology_of(shard), shared.case.needs, fanouts, device)
    return DeviceRemoteExpansion(there, shard, comm, host, foreign_seeds=foreign_seeds)


def test_a_first_batch_that_differs_from_the_hosts_ends_the_run() -> None:
    shared = nasty_case(3, [3, 2])

    def of_rank(comm: Any, wrong: int) -> int:
        there = made(shared, comm)
        if comm.rank == wrong:
            there._topology._indices = there._topology._indices.flip(0)
        for step in range(2):
            there.sample(shared.targets(step, comm.rank), BatchKey(7, 0, step), 5)
        return len(comm.sent)

    exchanges = 2 * 2  # of two batches; what is compared is not counted
    assert together(3, lambda comm: of_rank(comm, -1)) == [3 * exchanges] * 3
    with pytest.raises(RunError, match=r"different blocks of layer \d .*sampler\.device=cpu"):
        together(3, lambda comm: of_rank(comm, 1))


@pytest.mark.gpu
@pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu runs these")
@pytest.mark.parametrize(
    ("size", "fanouts", "foreign_seeds", "micro", "waits"),
    [
        (1, [3, 2], False, True, 1),
        (3, [3, 2], False, True, 3),
        (2, [3, 2], True, False, 5),
        (2, [-1, 3], False, True, 4),
    ],
)
def test_the_host_waits_once_and_once_more_for_every_exchange(
    size: int, fanouts: list[int], *, foreign_seeds: bool, micro: bool, waits: int
) -> None:
    from emulated_gpu import counting

    shared = nasty_case(size, fanouts, "partitioned")

    def of_rank(comm: Any) -> None:
        key = BatchKey(7, 0, 0, comm.rank if micro else -1)
        seeds = shared.case.batches[0][comm.rank :: size] if foreign_seeds else shared.targets(0, comm.rank)
        there = made(shared, comm, torch.device("cuda"), foreign_seeds=foreign_seeds)
        there.sample(seeds, key, 5)
        comm.gather_objects(None)
        with counting() if comm.rank == 0 else nullcontext() as counts:  # all ranks are threads of this process
            comm.gather_objects(None)
            found = there.sample(seeds, key, 5)
            crossing = sum(comm.gather_objects(found.crossing_bytes))
        if counts is not None:
            assert counts.totals["waits"] == size * waits, counts.places
            assert counts.totals["pageable_h2d_bytes"] == 0
            assert counts.totals["h2d_bytes"] == crossing

    together(size, of_rank)
