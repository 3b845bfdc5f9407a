"""Random cases on which blocks made on a device must equal those of the host, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.samplers.device import DeviceExpansion, HopKernels
from gnnexp.samplers.expansion import Expansion
from gnnexp.testing.graphs import random_graph

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


def check(case: Case, kernels: HopKernels | None = None, device: str = "cpu") -> None:
    """The blocks of all batches of a case, against `Expansion`."""
    host = Expansion(case.graph, case.needs, case.fanouts, case.names)
    there = DeviceExpansion(case.graph, case.needs, case.fanouts, torch.device(device), case.names, kernels)
    for step, seeds in enumerate(case.batches):
        keys = [stream(7, Purpose.SAMPLE, 0, step, -1, hop) for hop in range(len(case.fanouts))]
        expected = host.blocks(seeds, keys)
        blocks, ids = there.blocks(seeds, keys)
        assert_same(blocks, expected)
        assert ids.equal(expected[0].src_ids)
