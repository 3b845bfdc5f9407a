"""DBH against hashing in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from edge_streams import ORDERS, PARTS, Edges, degrees_of, expect, hashed, parts_of
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.graph.graph import Graph
from gnnexp.graph.stream import StreamOrder
from gnnexp.partitioners.dbh import DbhPartitioner
from gnnexp.partitioners.streaming import Degrees
from gnnexp.testing.graphs import csc, nasty_graph, random_graph
from gnnexp.testing.strategies import graphs

DEGREES: list[Degrees] = ["exact", "streamed"]


def dbh_by_hand(edges: Edges, num_nodes: int, num_parts: int, seed: int, degrees: Degrees) -> list[int]:
    degree = degrees_of(edges, num_nodes) if degrees == "exact" else [0] * num_nodes
    found = []
    for u, v in edges:
        if degrees == "streamed":
            degree[u] += 1
            degree[v] += 1
        found.append(hashed(u if degree[u] < degree[v] else v, seed, num_parts))
    return found


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("degrees", DEGREES)
@given(graph=graphs(), num_parts=PARTS, seed=st.integers(0, 2**63 - 1))
def test_the_rule_on_any_graph(degrees: Degrees, order: StreamOrder, graph: Graph, num_parts: int, seed: int) -> None:
    expect(
        DbhPartitioner(degrees=degrees, order=order, seed=seed),
        graph,
        num_parts,
        lambda edges: dbh_by_hand(edges, graph.num_nodes, num_parts, seed, degrees),
        seed,
    )


@given(graph=graphs(), num_parts=PARTS)
def test_with_exact_degrees_the_order_changes_nothing(graph: Graph, num_parts: int) -> None:
    found = [parts_of(DbhPartitioner(order=order).assign(graph, num_parts)) for order in ORDERS]
    assert found[0] == found[1]


def test_only_hubs_are_cut() -> None:
    star = csc(4001, np.arange(1, 4001), np.zeros(4000, np.int64))
    found = np.array(parts_of(DbhPartitioner().assign(star, 8)))
    # Leaves are hashed: 4000 of them over 8 parts, 500 +- 21; beyond 6 deviations has a probability of 1e-8.
    assert abs(np.bincount(found, minlength=8) - 500).max() < 126
    owners = DbhPartitioner().assign(star, 8)
    assert owners.nodes[1:].tolist() == found.tolist()


def test_the_seed_is_that_of_the_hash() -> None:
    graph = nasty_graph()
    assert parts_of(DbhPartitioner(seed=1).assign(graph, 4)) != parts_of(DbhPartitioner(seed=2).assign(graph, 4))
    assert DbhPartitioner(seed=1).key("graph", 4) != DbhPartitioner(seed=2).key("graph", 4)


def test_many_parts() -> None:
    found = parts_of(DbhPartitioner().assign(random_graph(40_000, 400, 0), 33_000))
    assert max(found) > 31_000 and len(set(found)) > 150
