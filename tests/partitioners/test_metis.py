"""METIS: its objective is our edge cut, all balances hold at once, limits are named before it is called."""

from __future__ import annotations

import builtins
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings

from gnnexp.errors import ConfigError
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.quality import quality
from gnnexp.kernels.graph.undirected import undirected
from gnnexp.partitioners.metis import MetisPartitioner
from gnnexp.partitioners.metis_library import check_limits, metis_dtype, part_graph
from gnnexp.partitioners.random import RandomPartitioner
from gnnexp.testing.graphs import csc, edge_list
from gnnexp.testing.strategies import graphs

NONE = torch.empty(0, dtype=torch.int64)


def communities(num_nodes: int = 3000, num_edges: int = 30_000, seed: int = 0) -> Graph:
    """24 planted communities with skewed in-degrees and all training vertices in five of them."""
    draws = np.random.default_rng(seed)
    member = np.sort(draws.integers(0, 24, num_nodes))
    starts = np.searchsorted(member, np.arange(25))
    src = draws.integers(0, num_nodes, num_edges)
    group, where = member[src], draws.random(num_edges) ** 2
    inside = starts[group] + (where * (starts[group + 1] - starts[group])).astype(np.int64)
    dst = np.where(draws.random(num_edges) < 0.85, inside, draws.integers(0, num_nodes, num_edges))
    shuffle = draws.permutation(num_nodes)
    train = np.sort(shuffle[np.flatnonzero(member < 5)])
    return replace(csc(num_nodes, shuffle[src], shuffle[dst]), splits=Splits(torch.from_numpy(train), NONE, NONE))


@settings(max_examples=80, deadline=None)
@given(graphs())
def test_the_undirected_view_counts_every_edge_once_per_end(graph: Graph) -> None:
    starts, neighbours, weights = undirected(graph.indptr.numpy(), graph.indices.numpy(), np.dtype(np.int64))
    expected: Counter[tuple[int, int]] = Counter()
    for src, dst in edge_list(graph):
        if src != dst:
            expected[src, dst] += 1
            expected[dst, src] += 1
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(starts))
    found = list(zip(rows.tolist(), neighbours.tolist(), strict=True))
    assert found == sorted(expected)
    assert weights.tolist() == [expected[pair] for pair in found]


@pytest.mark.parametrize("recursive", [True, False])
def test_its_objective_is_the_reported_edge_cut(recursive: bool) -> None:
    graph = communities()
    starts, neighbours, edge_weights = undirected(graph.indptr.numpy(), graph.indices.numpy(), metis_dtype())
    ones = np.ones((graph.num_nodes, 1), metis_dtype())
    _, cut = part_graph(starts, neighbours, ones, edge_weights, 4, recursive=recursive, imbalance=0.03, seed=0)
    partition = MetisPartitioner(balance=["vertices"], recursive=recursive).partition(graph, 4)
    assert round(quality(graph, partition)["edge_cut"] * graph.num_edges) == cut


@pytest.mark.parametrize("num_parts", [2, 4, 8])
def test_it_cuts_far_less_than_random_and_balances_everything_at_once(num_parts: int) -> None:
    graph = communities()
    found = quality(graph, MetisPartitioner(imbalance=0.05).partition(graph, num_parts))
    chance = quality(graph, RandomPartitioner().partition(graph, num_parts))
    assert found["edge_cut"] < 0.6 * chance["edge_cut"]
    assert found["replication_full"] < chance["replication_full"]
    for what in ("vertices", "edges", "train"):
        assert found[f"balance_{what}"] < 1.1, what


def test_only_what_is_asked_for_is_balanced() -> None:
    graph = communities()
    found = quality(graph, MetisPartitioner(balance=["vertices"]).partition(graph, 8))
    assert found["balance_vertices"] < 1.05
    assert found["balance_train"] > 1.5


def test_parts_are_a_function_of_the_seed() -> None:
    graph = communities()
    owners = [MetisPartitioner(seed=seed).partition(graph, 4).node_owner for seed in (0, 0, 1)]
    assert torch.equal(owners[0], owners[1])
    assert not torch.equal(owners[0], owners[2])


@pytest.mark.parametrize("balance", [["train"], ["edges"], ["vertices", "edges", "train"]])
def test_graphs_with_nothing_to_balance(balance: list[str]) -> None:
    graph = csc(12, np.empty(0, np.int64), np.empty(0, np.int64))
    partition = MetisPartitioner(balance=balance).partition(graph, 5)  # type: ignore[arg-type]
    assert int(partition.part_sizes().min()) >= 1


def test_disconnected_and_star_graphs_leave_no_part_empty() -> None:
    star = csc(30, np.arange(1, 30), np.zeros(29, np.int64))
    pairs = csc(30, np.arange(0, 30, 2), np.arange(1, 30, 2))
    for graph in (star, pairs):
        for num_parts in (2, 7, 29, 30):
            assert int(MetisPartitioner().partition(graph, num_parts).part_sizes().min()) >= 1


def test_limits_are_named_before_metis_is_called() -> None:
    weights = np.array([[2**30, 1], [2**30, 1]])
    check_limits(2, 100, weights, np.dtype(np.int64))
    with pytest.raises(ConfigError) as caught:
        check_limits(2, 2**31, weights, np.dtype(np.int32))
    text = str(caught.value)
    assert "int32, up to 2147483647" in text
    assert "2147483648 adjacency entries" in text
    assert "2147483648 total vertex weight" in text
    assert "vertices are" not in text


def test_too_little_memory_is_said_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(ConfigError, match="GiB are free"):
        MetisPartitioner().partition(communities(), 4)


def test_a_missing_pymetis_is_said_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name == "pymetis":
            raise ModuleNotFoundError("No module named 'pymetis'")
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="pip install"):
        MetisPartitioner().partition(communities(), 4)


def test_bad_options_are_refused_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        MetisPartitioner(balance=[], imbalance=0.0, seed=-1)
    assert [problem.key for problem in caught.value.problems] == [
        "partitioner.balance",
        "partitioner.imbalance",
        "partitioner.seed",
    ]
    with pytest.raises(ConfigError, match="each once"):
        MetisPartitioner(balance=["edges", "edges"])


def test_several_vertex_weights_need_our_own_call() -> None:
    """Why `metis_library` exists: pymetis reads the first V numbers of `[V, 2]` weights, in silence."""
    pymetis = pytest.importorskip("pymetis")
    graph = replace(communities(), edge_types=None)
    starts, neighbours, _ = undirected(graph.indptr.numpy(), graph.indices.numpy(), metis_dtype())
    adjacency = pymetis.CSRAdjacency(starts, neighbours)
    weights = np.ones(2 * graph.num_nodes, metis_dtype())
    weights[graph.num_nodes :] = 10**6
    plain = pymetis.part_graph(4, adjacency, vweights=weights[: graph.num_nodes], recursive=False)
    double = pymetis.part_graph(4, adjacency, vweights=weights, recursive=False)
    assert list(plain.vertex_part) == list(double.vertex_part)
