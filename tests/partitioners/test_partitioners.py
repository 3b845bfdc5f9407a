"""What every partitioner guarantees, and what each one is for."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from experiments import check_config
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.config.compose import compose
from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.quality import quality
from gnnexp.paradigms.split_parallel import SplitParallel
from gnnexp.partitioners.base import Owners, Partitioner
from gnnexp.partitioners.metis import MetisPartitioner
from gnnexp.partitioners.random import RandomPartitioner
from gnnexp.partitioners.range import RangePartitioner
from gnnexp.partitioners.restream import RestreamPartitioner
from gnnexp.testing.graphs import csc, random_graph
from gnnexp.testing.strategies import graphs

NONE = torch.empty(0, dtype=torch.int64)
ALL: dict[str, Callable[[], Partitioner]] = {
    "random": RandomPartitioner,
    "random drawn": lambda: RandomPartitioner(balanced=False),
    "range": RangePartitioner,
    "range by edges": lambda: RangePartitioner(balance="edges"),
    "metis": MetisPartitioner,
    "restream": RestreamPartitioner,
    "metis recursive": lambda: MetisPartitioner(recursive=True, balance=["edges"]),
}


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=25, deadline=None)
@given(graph=graphs(), data=st.data())
def test_every_vertex_has_an_owner_and_the_same_one_again(name: str, graph: Graph, data: st.DataObject) -> None:
    num_parts = data.draw(st.integers(1, graph.num_nodes))
    train = data.draw(st.sets(st.integers(0, graph.num_nodes - 1)))
    graph = replace(graph, splits=Splits(torch.tensor(sorted(train), dtype=torch.int64), NONE, NONE))
    partition = ALL[name]().partition(graph, num_parts, "key")
    assert partition.node_owner.shape == (graph.num_nodes,)
    assert partition.node_owner.dtype == torch.int16
    assert int(partition.node_owner.min()) >= 0
    assert int(partition.node_owner.max()) < num_parts
    assert (partition.num_parts, partition.graph_key, partition.edge_owner) == (num_parts, "key", None)
    assert partition.method == name.split(maxsplit=1)[0]
    if name != "random drawn":
        assert int(partition.part_sizes().min()) >= 1
    assert torch.equal(ALL[name]().partition(graph, num_parts).node_owner, partition.node_owner)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("num_parts", [0, -1, 31])
def test_more_parts_than_vertices_are_refused(name: str, num_parts: int) -> None:
    with pytest.raises(ConfigError, match="must be 1 to 30"):
        ALL[name]().partition(random_graph(30, 60, 0), num_parts)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name.startswith("restream") else ())
        for name in ALL
        if not name.startswith("metis")
    ],
)
def test_many_parts_need_wider_owners(name: str) -> None:
    partition = ALL[name]().partition(random_graph(40_000, 10, 0), 33_000)
    assert partition.node_owner.dtype == torch.int32
    assert int(partition.node_owner.max()) <= 32_999


def test_keys_tell_everything_that_decides_the_result_apart() -> None:
    made = [
        RandomPartitioner(),
        RandomPartitioner(seed=1),
        RandomPartitioner(balanced=False),
        RangePartitioner(),
        RangePartitioner(balance="edges"),
        MetisPartitioner(),
        MetisPartitioner(balance=["edges"]),
        MetisPartitioner(imbalance=0.1),
        MetisPartitioner(seed=1),
        MetisPartitioner(recursive=True),
    ]
    keys = {item.key("graph", parts) for item in made for parts in (2, 3)} | {made[0].key("other", 2)}
    assert len(keys) == 2 * len(made) + 1
    # How many parts are asked for decides, not how that was written.
    assert RandomPartitioner(num_parts=2).key("graph", 2) == RandomPartitioner().key("graph", 2)
    assert len(RandomPartitioner().key("graph", 2)) == 64


def test_the_number_of_parts_follows_the_ranks_unless_given() -> None:
    assert RandomPartitioner().resolve(6) == 6
    assert RandomPartitioner(num_parts=3).resolve(6) == 3


def test_what_was_measured_and_chosen_is_kept() -> None:
    partition = RangePartitioner(balance="edges").partition(random_graph(50, 200, 0), 3)
    assert partition.options == {"balance": "edges"}
    assert partition.seconds > 0
    assert partition.peak_rss_bytes >= partition.rss_before_bytes > 10 << 20  # this process holds torch


def test_memory_is_what_partitioning_adds() -> None:
    class Greedy(RangePartitioner):
        def assign(self, graph: Graph, num_parts: int) -> Owners:
            with mmap.mmap(-1, 64 << 20) as block:  # pages of its own, whatever earlier tests left in the heap
                np.frombuffer(block, np.uint8)[:] = 1
            return super().assign(graph, num_parts)

    partition = Greedy().partition(random_graph(50, 200, 0), 3)
    assert 60 << 20 < partition.peak_rss_bytes - partition.rss_before_bytes < 80 << 20


def test_a_partitioner_that_errs_is_caught() -> None:
    class Wrong(Partitioner):
        num_parts = "auto"

        def assign(self, graph: Graph, num_parts: int) -> Owners:
            return Owners(torch.full((graph.num_nodes,), num_parts, dtype=torch.int16))

    with pytest.raises(DataError, match="parts are 0 to 1"):
        Wrong().partition(random_graph(5, 5, 0), 2)


def test_a_partitioner_says_whether_edges_get_owners() -> None:
    class Silent(RandomPartitioner):
        def assign(self, graph: Graph, num_parts: int) -> Owners:
            nodes = super().assign(graph, num_parts).nodes
            return Owners(nodes, nodes[graph.destinations().long()])

    class Boasting(RandomPartitioner):
        vertex_cut = True

    class Right(Silent):
        vertex_cut = True

    for wrong in (Silent(), Boasting()):
        with pytest.raises(DataError, match="vertex_cut"):
            wrong.partition(random_graph(5, 5, 0), 2)
    assert Right().partition(random_graph(5, 5, 0), 2).edge_owner is not None


def test_a_paradigm_that_takes_a_vertex_cut_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose(["paradigm=split_parallel", "partitioner=libra"]).config
    (problem,) = check_config(config)
    assert (problem.key, problem.value) == ("partitioner", "libra") and "split_parallel" in problem.allowed
    monkeypatch.setattr(SplitParallel, "takes_vertex_cut", True)
    assert check_config(config) == []


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 400), st.integers(1, 12), st.integers(0, 9))
def test_balanced_random_parts_differ_by_one_vertex(num_nodes: int, num_parts: int, seed: int) -> None:
    num_parts = min(num_parts, num_nodes)
    sizes = RandomPartitioner(seed=seed).partition(random_graph(num_nodes, 0, 0), num_parts).part_sizes()
    assert int(sizes.max() - sizes.min()) <= 1


@pytest.mark.parametrize("balanced", [True, False])
def test_random_owners_are_uniform_and_independent_of_the_id(balanced: bool) -> None:
    num_nodes, num_parts = 40_000, 8
    owner = RandomPartitioner(balanced=balanced).partition(random_graph(num_nodes, 0, 0), num_parts).node_owner.long()
    # Pairs of consecutive ids over 64 cells, 63 degrees of freedom: beyond 130 has a probability of 1e-6.
    pairs = torch.bincount(owner[0::2] * num_parts + owner[1::2], minlength=num_parts**2).double()
    expected = num_nodes / 2 / num_parts**2
    assert float(((pairs - expected) ** 2 / expected).sum()) < 130
    # Another seed gives owners that agree as often as chance has it: 1 in 8, 6 standard deviations.
    other = RandomPartitioner(balanced=balanced, seed=1).partition(random_graph(num_nodes, 0, 0), num_parts)
    agree = float((owner == other.node_owner).double().mean())
    assert abs(agree - 1 / num_parts) < 6 * (7 / 64 / num_nodes) ** 0.5


@settings(max_examples=60, deadline=None)
@given(graphs(), st.sampled_from(["vertices", "edges"]), st.data())
def test_ranges_are_contiguous_and_as_even_as_said(graph: Graph, balance: str, data: st.DataObject) -> None:
    num_parts = data.draw(st.integers(1, graph.num_nodes))
    partition = RangePartitioner(balance=balance).partition(graph, num_parts)  # type: ignore[arg-type]
    steps = partition.node_owner.diff()
    assert bool(((steps == 0) | (steps == 1)).all())
    assert (int(partition.node_owner[0]), int(partition.node_owner[-1])) == (0, num_parts - 1)
    sizes = partition.part_sizes()
    if balance == "vertices":
        assert int(sizes.max() - sizes.min()) <= 1
        return
    edges = torch.zeros(num_parts, dtype=torch.int64)
    edges.index_add_(0, partition.node_owner.long(), graph.in_degree)
    # Both bounds of a range are off by half a vertex's edges at most, where no bound had to make room for a vertex.
    if bool((sizes > 1).all()):
        assert int(edges.max()) <= graph.num_edges // num_parts + 1 + int(graph.in_degree.max())


def test_ranges_by_edges_split_a_skewed_graph_evenly() -> None:
    draws = np.random.default_rng(0)
    dst = (draws.random(20_000) ** 3 * 1000).astype(np.int64)
    graph = csc(1000, draws.integers(0, 1000, 20_000), dst)
    by_edges = quality(graph, RangePartitioner(balance="edges").partition(graph, 4))
    by_vertices = quality(graph, RangePartitioner().partition(graph, 4))
    assert by_edges["balance_edges"] < 1.2
    assert by_vertices["balance_edges"] > 2
