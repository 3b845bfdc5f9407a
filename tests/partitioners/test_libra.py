"""Libra: its rule, what it guarantees on any graph, and what it is good for on real ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.cli.main import run_command
from gnnexp.datasets.base import ROOT_VARIABLE
from gnnexp.datasets.generated.rmat import Rmat
from gnnexp.datasets.published.planetoid import Planetoid
from gnnexp.errors import ConfigError
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition, open_partition
from gnnexp.graph.quality import quality
from gnnexp.graph.stream import GraphStream
from gnnexp.kernels.counter import Purpose, permutation, stream
from gnnexp.partitioners.libra import LibraPartitioner
from gnnexp.partitioners.streaming import homes_of
from gnnexp.preparation.artifacts import prepare_partition, read_quality
from gnnexp.testing.graphs import csc, edge_list, nasty_graph, random_graph
from gnnexp.testing.strategies import graphs

ORDERS = ["shuffled", "stored"]
PARTS = st.sampled_from([1, 2, 3, 5, 63, 64, 65, 130])


def owners_of(graph: Graph, num_parts: int, order: str, seed: int = 0) -> tuple[list[int], list[int]]:
    partition = LibraPartitioner(order=order, seed=seed).partition(graph, num_parts)  # type: ignore[arg-type]
    assert partition.edge_owner is not None
    return partition.node_owner.tolist(), partition.edge_owner.tolist()


def libra_by_sets(graph: Graph, num_parts: int, order: list[int]) -> list[int]:
    edges, loads = edge_list(graph), [0] * num_parts
    held: list[set[int]] = [set() for _ in range(graph.num_nodes)]
    owner = [-1] * len(edges)
    degree = Counter(end for edge in edges for end in edge)
    for edge in order:
        src, dst = edges[edge]
        low, high = (src, dst) if degree[src] < degree[dst] else (dst, src)
        candidates = held[src] & held[dst] or held[low] or held[high] or set(range(num_parts))
        part = min(candidates, key=lambda one: (loads[one], one))
        owner[edge] = part
        loads[part] += 1
        held[src].add(part)
        held[dst].add(part)
    return owner


def stream_of(graph: Graph, order: str, seed: int) -> list[int]:
    if order == "stored":
        return list(range(graph.num_edges))
    return permutation(stream(seed, Purpose.PARTITION, 1), graph.num_edges).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("order", ORDERS)
@given(graph=graphs(), num_parts=PARTS, seed=st.integers(0, 2**63 - 1))
def test_the_rule_on_any_graph(order: str, graph: Graph, num_parts: int, seed: int) -> None:
    num_parts = min(num_parts, graph.num_nodes)
    _, edges = owners_of(graph, num_parts, order, seed)
    assert edges == libra_by_sets(graph, num_parts, stream_of(graph, order, seed))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("num_parts", [1, 2, 8, 63, 64, 65, 130])
def test_the_rule_where_every_trap_is(order: str, num_parts: int) -> None:
    graph = nasty_graph(num_nodes=140, num_edges=3000)
    _, edges = owners_of(graph, num_parts, order)
    assert edges == libra_by_sets(graph, num_parts, stream_of(graph, order, 0))


# Edges in stored order, and their parts of two. In all, 1->0 opens part 0 and 3->2 the emptier part 1.
BY_HAND = {
    # 0->3: no common part, 0 has the lower degree: part 0. 1->3: both are in part 0, the fuller one.
    "common": ([(1, 0), (3, 2), (0, 3), (1, 3)], [0, 1, 0, 0]),
    # 0->3: 2 edges each, and the parts are as full: the destination's.
    "equal degrees": ([(1, 0), (3, 2), (0, 3)], [0, 1, 1]),
    # 4->0: 4 has the lower degree, but no part: that of 0. 0->3: 3 edges at 0, but 4 at 3, the loop is two of them.
    # 3->3: 3 is in both parts now, the emptier one.
    "self loop": ([(1, 0), (4, 0), (3, 2), (0, 3), (3, 3)], [0, 0, 1, 0, 1]),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_rule_by_hand(name: str) -> None:
    pairs, parts = BY_HAND[name]
    src, dst = np.array(pairs).T
    graph = csc(5, src, dst)
    assert edge_list(graph) == pairs
    assert owners_of(graph, 2, "stored")[1] == parts


@pytest.mark.parametrize("order", ORDERS)
def test_a_star_is_not_cut(order: str) -> None:
    star = csc(30, np.arange(1, 30), np.zeros(29, np.int64))
    assert set(owners_of(star, 4, order)[1]) == {0}


def test_the_stored_order_can_leave_everything_to_one_part() -> None:
    pairs = np.divmod(np.arange(40 * 40), 40)
    balance = {}
    for order in ORDERS:
        _, edges = owners_of(csc(40, *pairs), 4, order)
        balance[order] = max(map(edges.count, range(4))) / 400
    assert balance["stored"] == 4 and balance["shuffled"] < 1.1


@pytest.mark.parametrize("order", ORDERS)
@given(graph=graphs(), num_parts=PARTS)
def test_what_holds_on_any_graph(order: str, graph: Graph, num_parts: int) -> None:
    num_parts = min(num_parts, graph.num_nodes)
    partition = LibraPartitioner(order=order).partition(graph, num_parts, "key")  # type: ignore[arg-type]
    owner, edges = partition.node_owner, partition.edge_owner
    assert edges is not None and owner.dtype == edges.dtype == torch.int16
    assert (owner.shape, edges.shape) == ((graph.num_nodes,), (graph.num_edges,))
    held: list[set[int]] = [set() for _ in range(graph.num_nodes)]
    for (src, dst), part in zip(edge_list(graph), edges.tolist(), strict=True):
        held[src].add(part)
        held[dst].add(part)
    assert all(part in parts for part, parts in zip(owner.tolist(), held, strict=True) if parts), "masters hold edges"
    assert (partition.method, partition.graph_key) == ("libra", "key")
    assert owners_of(graph, num_parts, order) == (owner.tolist(), edges.tolist())


def test_vertices_are_at_home_where_most_of_their_edges_are() -> None:
    graph = nasty_graph()
    nodes, edges = owners_of(graph, 3, "shuffled")
    assert nodes == homes_of(GraphStream(graph), np.array(edges, np.int16), 3, "most").tolist()


def test_a_graph_without_edges_is_spread_over_the_parts() -> None:
    nodes, edges = owners_of(random_graph(7, 0, 0), 3, "shuffled")
    assert (nodes, edges) == ([0, 1, 2, 0, 1, 2, 0], [])


def test_many_parts_need_wider_owners() -> None:
    # There is a pass over the vertices for every 8 parts: few vertices, and parts that are too many for 16 bits.
    partition = LibraPartitioner().assign(random_graph(40, 10, 0), 33_000)
    assert partition.edges is not None
    assert partition.nodes.dtype == partition.edges.dtype == torch.int32
    assert int(partition.edges.max()) < 33_000


def test_the_shuffle_is_a_function_of_the_seed_and_the_stored_order_of_nothing() -> None:
    graph = random_graph(60, 500, 0)
    assert owners_of(graph, 4, "shuffled", 1) == owners_of(graph, 4, "shuffled", 1)
    assert owners_of(graph, 4, "shuffled", 1) != owners_of(graph, 4, "shuffled", 2)
    assert owners_of(graph, 4, "stored", 1) == owners_of(graph, 4, "stored", 2)
    keys = {
        LibraPartitioner(order=order, seed=seed).key("graph", 4)  # type: ignore[arg-type]
        for order in ORDERS
        for seed in (0, 1)
    }
    assert len(keys) == 4


@pytest.mark.parametrize("num_parts", [0, 31])
def test_more_parts_than_vertices_are_refused(num_parts: int) -> None:
    with pytest.raises(ConfigError, match="must be 1 to 30"):
        LibraPartitioner().partition(random_graph(30, 60, 0), num_parts)


def rmat() -> Graph:
    return Rmat(num_nodes=5000, num_edges=60_000, num_features=4).load()


def cora() -> Graph:
    if not os.environ.get(ROOT_VARIABLE):
        pytest.skip(f"needs the files of cora: set {ROOT_VARIABLE} to their root")
    return Planetoid(name="cora").load()


# Upper bounds of copies per vertex and of `balance_edges`. Measured with 16 parts (both are lower with 4): R-MAT 2.870
# and 1.0006, 2.481 and 1.0051; Cora 1.641 and 1.0277, 1.455 and 1.0777. Edges at random: 10.07 and 5.50 copies.
@pytest.mark.parametrize(
    ("load", "order", "copies", "balance"),
    [
        (rmat, "shuffled", 2.9, 1.001),
        (rmat, "stored", 2.5, 1.006),
        (cora, "shuffled", 1.65, 1.028),
        (cora, "stored", 1.46, 1.078),
    ],
)
def test_it_copies_few_vertices_and_balances_edges(
    load: Callable[[], Graph], order: str, copies: float, balance: float
) -> None:
    graph = load()
    for num_parts in (4, 16):
        drawn = np.random.default_rng(0).integers(0, num_parts, graph.num_edges).astype(np.int16)
        owner = homes_of(GraphStream(graph), drawn, num_parts, "most")
        random = quality(graph, Partition(torch.from_numpy(owner), num_parts, torch.from_numpy(drawn)))
        found = quality(graph, LibraPartitioner(order=order).partition(graph, num_parts))  # type: ignore[arg-type]
        assert found["replication_cut"] < min(copies, 0.55 * random["replication_cut"])
        assert found["balance_edges"] < balance


def test_it_is_kept_and_opened(tmp_path: Path) -> None:
    graph = random_graph(60, 500, 0)
    made = LibraPartitioner().partition(graph, 4)
    partition, folder = prepare_partition(LibraPartitioner(), graph, "key", 4, tmp_path)
    opened = open_partition(folder, graph=graph, graph_key="key", verify="checksums")
    assert made.edge_owner is not None
    for found in (partition, opened):
        assert found.edge_owner is not None
        assert torch.equal(found.node_owner, made.node_owner) and torch.equal(found.edge_owner, made.edge_owner)
    report = read_quality(folder)
    assert report["replication_cut"] == quality(graph, made)["replication_cut"]
    assert sum(report[f"part{part}/edges"] for part in range(4)) == 500


def test_the_command_line_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert run_command(["partition", "partitioner=libra", "dataset=digits", "partitioner.num_parts=4"]) == 0
    assert "replication_cut" in capsys.readouterr().out
    (folder,) = (tmp_path / "cache" / "partitions").iterdir()
    assert folder.name.startswith("libra-4-")
    assert read_quality(folder)["balance_edges"] < 1.02
