"""NeutronStar's hybrid knows what rows cost that are sent projected, and stays within the memory of the device."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experiments import assembled, estimated, experiment_in, planned
from full_graph import full_config
from torch import Tensor

from gnnexp.comm.environment import read_environment
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.paradigms.vertex_parallel import VertexParallel
from gnnexp.paradigms.vertices.held_memory import HeldMemory, held_memory, layer_sizes
from gnnexp.paradigms.vertices.hybrid_dependency import Costs, Fetched, cheapest
from gnnexp.placement.halo import levels
from gnnexp.testing.exactness import assert_exact, parts
from gnnexp.testing.graphs import csc, nasty_graph
from gnnexp.testing.ways import VERTEX
from gnnexp.training.assemble import Artifacts

LAYERS = 3
BETWEEN = {"links": {"network": 1e9}, "gather": 1e10, "flops": 1e12}
DEAR = {"links": {"network": 1.0}, "gather": 1e10, "flops": 1e12}  # sending is so dear that all would be held


def _config(model: str, limit: int | None, rows: str = "raw", machine: Any = DEAR) -> dict[str, Any]:
    paradigm = {"_target_": VERTEX, "dependency": "hybrid", "rows": rows}
    config = full_config(model, paradigm, hardware={**machine, "device_memory": limit})
    config["model"]["layers"] = LAYERS
    return config


def _job_of(config: dict[str, Any], size: int) -> tuple[HeldMemory, int, list[int], list[int]]:
    """Of a rank: the memory, what its layers take by their blocks, held rows by layer, and fetched ones."""
    graph = nasty_graph()
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts(graph, size)), Path(folder), read_environment())
        memory, found = held_memory(job), trainer.levels
        job.comm.release()
    edges = sum(level.block.num_edges for level in set(found))
    taken = memory.per_edge * edges + memory.per_input * found[0].block.num_src
    taken += memory.per_row * sum(level.block.num_src for level in found[1:])
    own = trainer.own.numel()
    return memory, taken, [level.num_local - own for level in found], [sum(level.fetched) for level in found]


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_what_is_held_stays_within_the_memory_of_the_device(ranks, model):
    """More memory, more rows that are computed here; all of them as without a limit; none if nothing fits."""
    unlimited = ranks(2).run(_job_of, _config(model, None), 2)
    cached = ranks(2).run(_job_of, _config(model, 0), 2)
    assert all(memory.budget is None for memory, *_ in unlimited)
    least, most = (max(taken for _, taken, *_ in found) for found in (cached, unlimited))
    states = 4 * _parameter_bytes(model)
    before = [held for _, _, held, _ in cached]
    assert all(held[0] and not any(held[1:]) for held in before), "only features of layer 1"
    for share in (0.1, 0.5, 0.9, 1.0):
        limit = states + least + int(share * (most - least))
        found = ranks(2).run(_job_of, _config(model, limit), 2)
        for (memory, taken, held, _), lower in zip(found, before, strict=True):
            assert memory.budget == limit - states and taken <= memory.budget
            assert all(now >= then for now, then in zip(held[1:], lower[1:], strict=True))
        before = [held for _, _, held, _ in found]
    assert before == [held for _, _, held, _ in unlimited] and any(held[1] for held in before)


def _parameter_bytes(model: str) -> int:
    """The upper bound that the preflight has, in float64."""
    options = experiment_in(_config(model, None)).model
    dims = [13, 16, 16, 4]
    return 8 * options.num_matrices(0) * sum(a * b + b for a, b in pairwise(dims))


@pytest.mark.parametrize(("model", "rows"), [("gat", "cheapest"), ("sage", "raw")])
def test_a_limit_changes_no_result(ranks, model, rows, steps):
    least, most = (
        max(taken for _, taken, *_ in ranks(3).run(_job_of, _config(model, limit, rows), 3)) for limit in (0, None)
    )
    config = _config(model, 4 * _parameter_bytes(model) + (least + most) // 2, rows)
    curves, _ = assert_exact(ranks, 3, nasty_graph, config, 1e-10, num_parts=3, steps=steps)
    assert any(curve.sent_bytes.get("activations") for curve in curves), "some rows are fetched"
    assert sum(curve.work["edges_redundant"] for curve in curves) > 0, "and some are computed here"


def _shard(loops: bool = False) -> tuple[Shard, Tensor]:
    graph = nasty_graph()
    partition = parts(graph, 3)
    shard = Shard(graph, needs=BlockNeeds(self_loops=loops), partition=partition, part=1)
    return shard, partition.vertices_of(1)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_sizes_are_those_of_the_layers(loops, share):
    shard, own = _shard(loops)
    chosen = torch.rand(LAYERS, shard.graph.num_nodes, generator=torch.Generator().manual_seed(1)) < share

    def held(layer: int, ids: Tensor) -> Tensor:
        return chosen[layer][ids.long()]

    made, sizes = levels(shard, own, LAYERS, held), layer_sizes(shard, own, LAYERS, held, int(loops))
    assert [size.sources for size in sizes] == [level.block.num_src for level in made]
    assert sum(size.edges for size in sizes) == sum(level.block.num_edges for level in set(made))


def _line(num_nodes: int) -> Shard:
    """Vertices 0 to n-1 in a line: v has the in-neighbours 0 to v-1, so later ones are dearer to compute."""
    src, dst = zip(*((u, v) for v in range(num_nodes) for u in range(v)), strict=True)
    graph = csc(num_nodes, np.array(src), np.array(dst))
    return Shard(graph, partition=parts(graph, 1))


MEMORY = HeldMemory(per_edge=100, per_input=1, per_row=1, budget=None, loops=0)


def _held(rows: list[Fetched], costs: Costs, memory: HeldMemory = MEMORY, size: int = 6) -> list[int]:
    """Ids that the owner of the last vertex computes for layer 2."""
    shard = _line(size)
    held = cheapest(shard, torch.tensor([size - 1]), (4, 8, 2), costs, rows, memory)
    assert held(0, torch.arange(size)).all(), "features of layer 1 are always held"
    return torch.nonzero(held(1, torch.arange(size - 1))).flatten().tolist()


def test_a_row_is_computed_if_that_costs_less_than_to_send_it():
    """v has v in-edges of 4 columns, forward and backward, at 1 s; a sent column costs 5 s, forward and backward."""
    costs = Costs(gather=1.0, flop=0.0, send=2.5)
    assert _held([Fetched(4), Fetched(8)], costs) == [v for v in range(5) if 2 * 4 * v < 2 * 8 * 2.5]
    assert _held([Fetched(4), Fetched(8)], costs) == [0, 1, 2, 3, 4]
    assert _held([Fetched(4), Fetched(2)], costs) == [0, 1], "projected rows are narrow: 2 columns cost 10 s"


def test_a_row_that_comes_projected_saves_its_projection_here():
    costs = Costs(gather=1.0, flop=0.5, send=2.5)
    product = 3 * 2 * 4 * 8 * 0.5  # of the layer that computes the row
    projection = 3 * 2 * 16 * 0.5
    for row in (Fetched(8), Fetched(40), Fetched(40, 16)):
        sent = 2 * row.columns * 2.5
        expected = [v for v in range(5) if 2 * 4 * v + product + (projection if row.products else 0) < sent]
        assert _held([Fetched(4), row], costs) == expected


def test_what_saves_most_for_its_bytes_is_held_first():
    """Vertex v saves 40 - 8v s, and takes 100 bytes for each in-edge and 1 for features."""
    costs, rows = Costs(gather=1.0, flop=0.0, send=2.5), [Fetched(4), Fetched(8)]
    fetched_only = 100 * 5 * 2 + 6 + 6  # both layers' edges: layer 1 differs from layer 2, because features are held
    for edges, expected in ((0, [0]), (1, [0, 1]), (2, [0, 1]), (3, [0, 1, 2]), (10, [0, 1, 2, 3, 4])):
        memory = HeldMemory(100, 1, 1, fetched_only + 100 * edges, 0)
        assert _held(rows, costs, memory) == expected


def test_the_estimate_stays_within_the_limit():
    limit = 4_000_000
    config = _config("gcn", limit)
    config["hardware"]["workers"] = 4
    config["partitioner"] = {"_target_": "gnnexp.partitioners.range.RangePartitioner"}
    graph = nasty_graph(3000, 60000)

    def device_bytes(changes: dict[str, Any]) -> int:
        found = estimated({**config, "hardware": {**config["hardware"], **changes}}, graph)
        return sum(need.num_bytes for need in found.needs if need.place == "device")

    full, limited = device_bytes({"device_memory": None}), device_bytes({})
    assert limited <= limit < full
    experiment = experiment_in(config)
    assert planned(experiment, graph, VertexParallel("cache")).resident != planned(experiment, graph).resident
