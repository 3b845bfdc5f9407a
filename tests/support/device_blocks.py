"""Random cases on which blocks made on a device must equal those of the host, entry by entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from together import together
from torch import Tensor

from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.samplers.base import Key, Topology
from gnnexp.samplers.device_expansion import DeviceExpansion
from gnnexp.samplers.device_hops import DeviceTopology, HopKernels
from gnnexp.samplers.device_remote import DeviceRemoteExpansion
from gnnexp.samplers.device_split import DeviceSplitter
from gnnexp.samplers.expansion import Expansion
from gnnexp.samplers.fused import FusedOptions
from gnnexp.samplers.remote import RemoteExpansion
from gnnexp.samplers.split import Splitter
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph, random_graph

BATCHES = 3  # one after the other on the same table


@dataclass(frozen=True, eq=False)
class Case:
    """A graph, what blocks must have, fanouts, original ids or None, and the seeds of every batch."""

    graph: Graph
    needs: BlockNeeds
    fanouts: list[int]
    names: Tensor | None
    batches: list[Tensor]


def random_case(number: int, largest_fanout: int = 70) -> Case:
    """A case with isolated vertices, parallel edges, loops, fanouts above and below degrees, and empty batches."""
    rng = np.random.default_rng(number)
    num_nodes = int(rng.choice([1, 2, 7, 40, 300]))
    num_edges = int(rng.choice([0, 1, 3 * num_nodes, 12 * num_nodes]))
    graph = random_graph(num_nodes, num_edges, number, typed=bool(rng.random() < 0.3))
    if rng.random() < 0.3:
        graph = replace(graph, indices=graph.indices.long())
    if rng.random() < 0.3:
        graph = replace(graph, edge_weights=torch.from_numpy(rng.random(num_edges).astype(np.float32)))
    needs = BlockNeeds(*(bool(wanted) for wanted in rng.random(4) < 0.4))
    if graph.edge_types is None:
        needs = replace(needs, edge_types=False)
    choices = [-1, 1, 2, 3, 5, 17, 32, 33, largest_fanout]
    fanouts = [int(fanout) for fanout in rng.choice(choices, int(rng.integers(1, 4)))]
    names = torch.from_numpy(rng.permutation(10 * num_nodes)[:num_nodes]).to(graph.indices.dtype)
    sizes = rng.integers(0, num_nodes + 1, BATCHES)
    batches = [torch.from_numpy(rng.permutation(num_nodes)[:size]) for size in sizes]
    return Case(graph, needs, fanouts, names if rng.random() < 0.4 else None, batches)


def assert_same(found: Sequence[Block], expected: Sequence[Block]) -> None:
    """Every array of every block, its type, and its numbers."""
    for block, other in zip(found, expected, strict=True):
        for field in fields(Block):
            mine, theirs = getattr(block, field.name), getattr(other, field.name)
            if isinstance(theirs, Tensor):
                assert mine.dtype == theirs.dtype, field.name
                assert mine.cpu().equal(theirs), field.name
            else:
                assert mine == theirs, field.name


Pin = Callable[[Tensor], Tensor] | None  # of `DeviceTopology`


def check(case: Case, kernels: HopKernels | None = None, device: str = "cpu", pin: Pin = None) -> None:
    """The blocks of all batches of a case, against `Expansion`."""
    host = Expansion(case.graph, case.needs, case.fanouts, case.names)
    there = DeviceExpansion(
        DeviceTopology(case.graph, case.needs, case.fanouts, torch.device(device), case.names, kernels, pin)
    )
    for step, seeds in enumerate(case.batches):
        keys = [stream(7, Purpose.SAMPLE, 0, step, -1, hop) for hop in range(len(case.fanouts))]
        expected = host.blocks(seeds, keys)
        blocks, ids = there.blocks(seeds, keys)
        assert_same(blocks, expected)
        assert ids.equal(expected[0].src_ids)


@dataclass(frozen=True, eq=False)
class SharedCase:
    """A case on several ranks: owners of vertices, and whether a rank has its part of the topology only."""

    case: Case
    partition: Partition
    topology: Topology
    key: Key

    def shard(self, rank: int) -> Shard:
        """The shard of a rank."""
        size = self.partition.num_parts
        return Shard(self.case.graph, rank, size, self.case.needs, self.partition, rank)

    def targets(self, step: int, rank: int) -> Tensor:
        """The seeds of a batch that a rank owns."""
        return self.shard(rank).owned_of(self.case.batches[step])


def shared_case(number: int, topology: Topology | None = None) -> SharedCase:
    """A case with 1 to 4 parts, of which some may be small or empty."""
    case, rng = replace(random_case(number), names=None), np.random.default_rng(number + 1000)
    size = int(rng.integers(1, 5))
    shares = rng.dirichlet(np.full(size, 0.5))
    owner = rng.choice(size, case.graph.num_nodes, p=shares).astype(rng.choice([np.int16, np.int32]))
    chosen: Topology = ("replicated", "partitioned")[int(rng.random() < 0.5)] if topology is None else topology
    key: Key = ("global", "micro")[int(rng.random() < 0.5)]
    return SharedCase(case, Partition(torch.from_numpy(owner), size), chosen, key)


def nasty_case(size: int, fanouts: list[int], topology: Topology = "replicated", key: Key = "global") -> SharedCase:
    """`nasty_graph` on this number of ranks."""
    graph = nasty_graph()
    batches = [torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(step))[:20] for step in range(2)]
    case = Case(graph, BlockNeeds(self_loops=True, edge_identity=True), fanouts, None, batches)
    return SharedCase(case, parts(graph, size), topology, key)


def check_split(number: int, kernels: HopKernels | None = None, device: str = "cpu", pin: Pin = None) -> None:
    """The splits of all batches of a case on all ranks, against `Splitter`."""
    shared = shared_case(number)
    case, fanouts = shared.case, shared.case.fanouts

    def of_rank(comm: Any) -> None:
        sampler, shard = FusedOptions(fanouts, topology=shared.topology).make(), shared.shard(comm.rank)
        sampler.setup(shard, len(fanouts))
        host, other = Splitter(sampler, shard, comm, len(fanouts)), comm.uncounted()
        hops = DeviceTopology(sampler.topology_of(shard), case.needs, fanouts, torch.device(device), None, kernels, pin)
        there = DeviceSplitter(hops, shard, other)
        for step in range(BATCHES):
            key = BatchKey(7, 0, step)
            expected = host.sample(shared.targets(step, comm.rank), key, 5)
            found = there.sample(shared.targets(step, comm.rank), key, 5)
            assert_same(found.batch.blocks, expected.batch.blocks)
            assert found.cross_edges == expected.cross_edges
            assert found.input_ids.equal(expected.input_ids)
            for index, wanted in zip(found.shuffles, expected.shuffles, strict=True):
                assert index.send_rows.dtype == wanted.send_rows.dtype
                assert index.send_rows.cpu().equal(wanted.send_rows)
                assert (index.sent, index.received, index.num_local) == (wanted.sent, wanted.received, wanted.num_local)
        assert comm.sent == other.sent

    together(shared.partition.num_parts, of_rank)


def check_remote(number: int, kernels: HopKernels | None = None, device: str = "cpu", pin: Pin = None) -> None:
    """The batches of all ranks of a case with a partitioned topology, against `RemoteExpansion`."""
    shared = shared_case(number, "partitioned")
    case, fanouts, foreign = shared.case, shared.case.fanouts, number % 3 == 0

    def of_rank(comm: Any) -> None:
        sampler, shard = FusedOptions(fanouts, topology="partitioned").make(), shared.shard(comm.rank)
        sampler.setup(shard, len(fanouts))
        host, other = RemoteExpansion(sampler, shard, comm, len(fanouts), foreign_seeds=foreign), comm.uncounted()
        hops = DeviceTopology(sampler.topology_of(shard), case.needs, fanouts, torch.device(device), None, kernels, pin)
        there = DeviceRemoteExpansion(hops, shard, other, host, foreign_seeds=foreign)
        there._compares = False
        for step in range(BATCHES):
            seeds = case.batches[step][comm.rank :: comm.size] if foreign else shared.targets(step, comm.rank)
            key = BatchKey(7, 0, step, comm.rank if shared.key == "micro" else -1)
            expected = host.sample(seeds, key, 5)
            found = there.sample(seeds, key, 5)
            assert_same(found.blocks, expected.blocks)
            assert found.input_ids.equal(expected.input_ids)
        assert comm.sent == other.sent

    together(shared.partition.num_parts, of_rank)
