"""2PS-L against its steps in plain Python, and what it guarantees."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from edge_streams import ORDERS, PARTS, Edges, degrees_of, expect, hashed, parts_of
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.errors import ConfigError
from gnnexp.graph.graph import Graph
from gnnexp.graph.quality import quality
from gnnexp.graph.stream import StreamOrder
from gnnexp.partitioners.two_ps_l import TwoPsLPartitioner
from gnnexp.testing.graphs import csc, nasty_graph
from gnnexp.testing.strategies import graphs


class ByHand:
    """The four steps, with the options of `TwoPsLPartitioner`."""

    def __init__(self, edges: Edges, num_nodes: int, num_parts: int, rule: TwoPsLPartitioner) -> None:
        self.edges, self.num_parts, self.rule = edges, num_parts, rule
        self.degree = degrees_of(edges, num_nodes)
        self.cluster, self.volume = list(range(num_nodes)), list(self.degree)
        self.held, self.loads = [set[int]() for _ in range(num_nodes)], [0] * num_parts
        E = len(edges)
        self.capacity = max(math.ceil(E / num_parts), int(rule.balance * E / num_parts))

    def place(self) -> list[int]:
        for _ in range(self.rule.passes):
            self.find_clusters()
        part = self.parts_of_clusters()
        home = [part[cluster] for cluster in self.cluster]
        found = [-1] * len(self.edges)
        for within in (True, False):
            for edge, (u, v) in enumerate(self.edges):
                if (home[u] == home[v]) == within:
                    found[edge] = self.put(u, v, home)
        return found

    def find_clusters(self) -> None:
        cap = self.rule.max_volume * 2 * len(self.edges) / self.num_parts
        for u, v in self.edges:
            one, other = self.cluster[u], self.cluster[v]
            if self.volume[one] > cap or self.volume[other] > cap:
                continue
            if self.volume[one] - self.degree[u] <= self.volume[other] - self.degree[v]:
                moved, target = u, other
            else:
                moved, target = v, one
            if one != other and self.volume[target] + self.degree[moved] <= cap:
                self.volume[self.cluster[moved]] -= self.degree[moved]
                self.volume[target] += self.degree[moved]
                self.cluster[moved] = target

    def parts_of_clusters(self) -> dict[int, int]:
        part, volumes = {}, [0] * self.num_parts
        for cluster in sorted(range(len(self.volume)), key=lambda one: (-self.volume[one], one)):
            part[cluster] = volumes.index(min(volumes)) if self.volume[cluster] else 0
            volumes[part[cluster]] += self.volume[cluster]
        return part

    def put(self, u: int, v: int, home: list[int]) -> int:
        candidates = {home[u], home[v]}
        if max(self.loads[part] for part in candidates) >= self.capacity:
            part = hashed(u if self.degree[u] > self.degree[v] else v, self.rule.seed, self.num_parts)
            if self.loads[part] >= self.capacity:
                part = self.loads.index(min(self.loads))
        else:
            part = max(candidates, key=lambda one: (self.score(u, v, one, home), -one))
        self.loads[part] += 1
        self.held[u].add(part)
        self.held[v].add(part)
        return part

    def score(self, u: int, v: int, part: int, home: list[int]) -> float:
        share = self.degree[u] / (self.degree[u] + self.degree[v])
        volumes = self.volume[self.cluster[u]], self.volume[self.cluster[v]]
        by_volume = volumes[0] / sum(volumes)
        of_u = (2 - share + by_volume * (home[u] == part)) * (part in self.held[u])
        return of_u + (1 + share + (1 - by_volume) * (home[v] == part)) * (part in self.held[v])


@pytest.mark.parametrize("order", ORDERS)
@given(
    graph=graphs(),
    num_parts=PARTS,
    max_volume=st.sampled_from([0.1, 1.0, 1.7]),
    passes=st.integers(1, 3),
    balance=st.sampled_from([1.0, 1.05, 2.0, 1e9]),
)
def test_the_steps_on_any_graph(
    order: StreamOrder, graph: Graph, num_parts: int, max_volume: float, passes: int, balance: float
) -> None:
    rule = TwoPsLPartitioner(max_volume=max_volume, passes=passes, balance=balance, order=order)
    found = expect(rule, graph, num_parts, lambda edges: ByHand(edges, graph.num_nodes, num_parts, rule).place())
    most = max(math.ceil(graph.num_edges / num_parts), balance * graph.num_edges / num_parts)
    assert max(Counter(found).values(), default=0) <= most


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("num_parts", [1, 2, 8, 64, 65, 130])
@pytest.mark.parametrize("balance", [1.0, 1e9])
def test_the_steps_where_every_trap_is(balance: float, num_parts: int, order: StreamOrder) -> None:
    graph = nasty_graph(num_nodes=140, num_edges=1500)
    rule = TwoPsLPartitioner(balance=balance, order=order, max_volume=0.5, passes=2)
    expect(rule, graph, num_parts, lambda edges: ByHand(edges, 140, num_parts, rule).place())


def cliques(count: int, size: int) -> Graph:
    """`count` cliques of `size` vertices, in a ring of single edges."""
    local = np.array([(a, b) for a in range(size) for b in range(size) if a != b])
    inside = np.concatenate([local + size * clique for clique in range(count)])
    heads = size * np.arange(count)
    src = np.concatenate([inside[:, 0], heads])
    dst = np.concatenate([inside[:, 1], np.roll(heads, 1)])
    return csc(count * size, src, dst)


@pytest.mark.parametrize("order", ORDERS)
def test_clusters_that_are_there_are_found(order: StreamOrder) -> None:
    graph = cliques(8, 12)
    owners = TwoPsLPartitioner(order=order, passes=2).assign(graph, 8)
    assert owners.facts == {"clusters": 8, "edges_within": 8 * 12 * 11, "edges_overflowed": 0}
    assert all(len(set(owners.nodes[12 * at : 12 * at + 12].tolist())) == 1 for at in range(8))
    found = quality(graph, TwoPsLPartitioner(order=order, passes=2).partition(graph, 8))
    assert found["replication_cut"] <= (96 + 8) / 96 and found["balance_vertices"] == 1


def test_one_cluster_overflows_to_other_parts() -> None:
    graph = csc(9, *np.divmod(np.arange(81), 9))
    owners = TwoPsLPartitioner(max_volume=100.0).assign(graph, 3)
    assert owners.facts == {"clusters": 1, "edges_within": 81, "edges_overflowed": 81 - 28}
    assert Counter(parts_of(owners))[0] == 28 == max(Counter(parts_of(owners)).values())


def test_a_graph_without_edges_is_spread_over_the_parts() -> None:
    graph = csc(5, np.empty(0, np.int64), np.empty(0, np.int64))
    assert TwoPsLPartitioner().assign(graph, 3).nodes.tolist() == [0, 1, 2, 0, 1]


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        TwoPsLPartitioner(max_volume=-0.1, passes=0, balance=0.9)
    assert [problem.key for problem in raised.value.problems] == [
        "partitioner.max_volume",
        "partitioner.passes",
        "partitioner.balance",
    ]
