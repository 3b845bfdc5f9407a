"""Algorithm 4 as it is written, on sets; volumes as they are defined; and an order that costs more is not taken."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.components.schema import HardwareConfig, Links
from gnnexp.graph.shard import Shard
from gnnexp.measure.phases import PhaseTimer
from gnnexp.placement.halo import levels
from gnnexp.placement.reorganise import Rates, Volumes, algorithm_4, choose_order, volumes_by_batch, volumes_of
from gnnexp.placement.transitions import Dedup, Readings, readings
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph

CPU = torch.device("cpu")


def _readings(size: int, count: int, seed: int) -> tuple[Readings, Communicator]:
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    graph = nasty_graph(seed=seed)
    partition = parts(graph, size)
    shard = Shard(graph, partition=partition, part=comm.rank)
    own = partition.vertices_of(comm.rank)
    (level,) = levels(shard, own, 1, lambda _, ids: torch.zeros(ids.shape, dtype=torch.bool))
    return readings(level, own, count, comm), comm


def _told(size: int, count: int, seed: int) -> dict[str, object]:
    """What a rank of the pool finds, and what its chunks read, as original ids."""
    found, comm = _readings(size, count, seed)
    ids = found.level.block.src_ids.numpy()
    chunks = algorithm_4(found, comm)
    initial = np.tile(np.arange(count), (size, 1))
    return {
        "reads": [set(ids[rows].tolist()) for rows in found.rows],
        "chunks": chunks.tolist(),
        "volumes": [volumes_of(found, order, comm) for order in (initial, chunks)],
        "by_batch": volumes_by_batch(found, chunks, comm),
        "bounds": [(chunk.first, chunk.last) for chunk in found.chunks],
    }


def _algorithm_4(reads: list[list[set[int]]]) -> list[list[int]]:
    """Line by line, on sets; phase 2 moves all partitions (the paper's last loop skips the first)."""
    ranks, count = len(reads), len(reads[0])
    batches = [[batch] for batch in range(count)]
    union = [set(rows) for rows in reads[0]]
    for rank in range(1, ranks):
        left = list(range(count))
        for batch in range(count):
            best = max(left, key=lambda k: (len(reads[rank][k] & union[batch]), -k))
            batches[batch].append(best)
            union[batch] |= reads[rank][best]
            left.remove(best)
    path, left = [0], list(range(1, count))
    while left:
        best = max(left, key=lambda k: (len(union[k] & union[path[-1]]), -k))
        path.append(best)
        left.remove(best)
    return [[batches[batch][rank] for batch in path] for rank in range(ranks)]


def _volumes(reads: list[list[set[int]]], chunks: list[list[int]]) -> tuple[int, int, int]:
    unions = [
        set().union(*(reads[rank][order[batch]] for rank, order in enumerate(chunks)))
        for batch in range(len(chunks[0]))
    ]
    again = sum(len(now & then) for now, then in zip(unions[1:], unions, strict=False))
    inter = sum(map(len, unions))
    return sum(len(rows) for of_rank in reads for rows in of_rank), inter, inter - again


@pytest.mark.parametrize(("size", "count", "seed"), [(1, 5, 0), (2, 4, 1), (3, 6, 2), (4, 3, 3), (3, 9, 4)])
def test_order_and_volumes_are_those_of_the_sets(ranks, size, count, seed):
    told = ranks(size).run(_told, size, count, seed)
    reads = [of_rank["reads"] for of_rank in told]
    expected = _algorithm_4(reads)
    initial = [list(range(count))] * size
    for of_rank in told:
        assert of_rank["chunks"] == expected
        for found, order in zip(of_rank["volumes"], (initial, expected), strict=True):
            assert (found.original, found.inter, found.both) == _volumes(reads, order)
        by_batch = of_rank["by_batch"]
        assert [sum(by_batch[name]) for name in ("original", "inter", "both")] == list(_volumes(reads, expected))
        assert len(of_rank["bounds"]) == count, "as many chunks on every rank, empty ones too"


def test_an_order_that_costs_more_is_not_taken(monkeypatch):
    found, comm = _readings(1, 6, 0)
    rates = Rates.of(HardwareConfig(), 64)
    path = list(range(6))
    initial = volumes_of(found, np.array([path]), comm)
    orders = {
        order: volumes_of(found, np.array([order]), comm).both
        for order in (tuple(np.random.default_rng(seed).permutation(6).tolist()) for seed in range(30))
    }
    worst = max(orders, key=lambda order: orders[order])
    assert orders[worst] > initial.both, "the graph has an order to avoid"
    monkeypatch.setattr("gnnexp.placement.reorganise.algorithm_4", lambda found, comm: np.array([worst]))
    order = choose_order(found, comm, rates, reorganise=True)
    assert order.chunks.tolist() == [path] and order.volumes == initial
    assert "does not fall" in order.note and order.reorganised_cost is not None
    assert order.reorganised_cost > order.initial_cost


def test_equation_4_takes_the_profile_in_rows_per_second():
    hardware = HardwareConfig(links=Links(h2d=64e9, d2d=128e9), gather=640e9, source="a test")
    rates = Rates.of(hardware, 64)
    assert (rates.host, rates.device, rates.reuse, rates.source) == (1e9, 2e9, 1e10, "a test")
    volumes = Volumes(original=100, inter=60, both=40, intra=70, foreign=45, foreign_new=30)
    assert volumes.cost(rates) == pytest.approx(40 / 1e9 + 40 / 2e9 + 20 / 1e10)
    assert [volumes.from_host(Dedup(inter, intra)) for inter in (False, True) for intra in (False, True)] == [
        100,
        70,
        60,
        40,
    ]
    nobody_says = Rates.of(HardwareConfig(), 64)
    assert volumes.cost(nobody_says) == 40 and "no figures" in nobody_says.source
