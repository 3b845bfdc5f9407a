"""SPRING against Algorithm 1 written down with sets, and what it guarantees on any graph."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.graph import Graph
from gnnexp.graph.stream import ArrayStream, GraphStream, SymmetricStream
from gnnexp.kernels.partitioners import spring
from gnnexp.partitioners.spring import SpringPartitioner
from gnnexp.testing.graphs import csc, edge_list, nasty_graph
from gnnexp.testing.strategies import graphs

Degrees = Literal["exact", "streamed"]
PARTS = st.sampled_from([1, 2, 3, 5, 17])


class Clusters:
    """Lines 1 to 17; a cluster is named by the vertex that founds it."""

    def __init__(
        self, num_nodes: int, edges: list[tuple[int, int]], most_volume: float, most_size: float, degrees: Degrees
    ) -> None:
        exact = Counter(end for edge in edges for end in edge)
        self.degree = (
            dict.fromkeys(range(num_nodes), 0) if degrees == "streamed" else {v: exact[v] for v in range(num_nodes)}
        )
        self.of: dict[int, int] = {}
        self.members: dict[int, set[int]] = {}
        self.richest: dict[int, int] = {}
        for u, v in edges:
            for end in (u, v):
                if degrees == "streamed":
                    self.degree[end] += 1
                if end not in self.of:
                    self.of[end] = end
                    self.members[end] = {end}
            if u == v:
                continue
            low, high = (u, v) if self.volume(u) <= self.volume(v) else (v, u)
            fits = max(self.volume(u), self.volume(v)) <= most_volume
            if self.of[u] != self.of[v] and fits and len(self.members[self.of[high]]) + 1 <= most_size:
                self.members[self.of[low]].remove(low)
                self.members[self.of[high]].add(low)
                self.of[low] = self.of[high]
            for one, other in ((u, v), (v, u)):
                if self.richest_degree(one) < self.degree[other]:
                    self.richest[one] = other
        for v in range(num_nodes):
            if v not in self.of:
                self.of[v], self.members[v] = v, {v}

    def volume(self, vertex: int) -> int:
        return sum(self.degree[v] for v in self.members[self.of[vertex]])

    def richest_degree(self, vertex: int) -> int:
        return self.degree[self.richest[vertex]] if vertex in self.richest else 0

    def merge(self, most: float) -> None:
        """Lines 18 to 26: the smallest cluster that was not scanned since it last grew, until there is none."""
        waiting = {name for name, members in self.members.items() if members}
        while waiting:
            one = min(waiting, key=lambda name: (len(self.members[name]), name))
            waiting.remove(one)
            representative = min(self.members[one], key=lambda v: (-self.richest_degree(v), v))
            if representative not in self.richest:
                continue
            target = self.of[self.richest[representative]]
            if target != one and len(self.members[one]) + len(self.members[target]) <= most:
                for v in self.members[one]:
                    self.of[v] = target
                self.members[target] |= self.members[one]
                self.members[one] = set()
                waiting.add(target)

    def assign(self, num_parts: int) -> list[int]:
        """Lines 27 to 30."""
        loads, part_of = [0] * num_parts, {}
        for name in sorted(self.members, key=lambda name: (-len(self.members[name]), name)):
            if self.members[name]:
                part_of[name] = loads.index(min(loads))
                loads[part_of[name]] += len(self.members[name])
        return [part_of[self.of[v]] for v in range(len(self.of))]


def by_sets(graph: Graph, edges: list[tuple[int, int]], num_parts: int, options: dict[str, Any]) -> list[int]:
    most = options["beta"] * graph.num_nodes / num_parts
    cap = options["alpha"] * 2 * graph.num_edges / num_parts
    clusters = Clusters(graph.num_nodes, edges, cap, most if options["bound_sizes"] else np.inf, options["degrees"])
    clusters.merge(most)
    return clusters.assign(num_parts)


OPTIONS = st.fixed_dictionaries(
    {
        "alpha": st.sampled_from([0.0, 0.1, 0.5, 3.0]),
        "beta": st.sampled_from([1.0, 1.05, 2.0]),
        "bound_sizes": st.booleans(),
        "degrees": st.sampled_from(["exact", "streamed"]),
    }
)


@given(graph=graphs(), num_parts=PARTS, options=OPTIONS)
def test_algorithm_1_on_any_graph(graph: Graph, num_parts: int, options: dict[str, Any]) -> None:
    num_parts = min(num_parts, graph.num_nodes)
    owners = SpringPartitioner(**options).partition(graph, num_parts).node_owner.tolist()
    assert owners == by_sets(graph, edge_list(graph), num_parts, options)


@pytest.mark.parametrize("degrees", ["exact", "streamed"])
@pytest.mark.parametrize("num_parts", [1, 2, 8, 64, 130])
def test_algorithm_1_where_every_trap_is(degrees: Degrees, num_parts: int) -> None:
    graph = nasty_graph(num_nodes=140, num_edges=1200)
    options: dict[str, Any] = {"alpha": 0.4, "beta": 1.05, "bound_sizes": True, "degrees": degrees}
    owners = SpringPartitioner(**options).partition(graph, num_parts).node_owner.tolist()
    assert owners == by_sets(graph, edge_list(graph), num_parts, options)


@given(graph=graphs(), order=st.sampled_from(["stored", "shuffled"]), seed=st.integers(0, 3), chunk=st.integers(1, 9))
def test_the_stream_is_taken_as_it_comes_whatever_its_chunks(graph, order, seed, chunk) -> None:
    options: dict[str, Any] = {"alpha": 0.5, "beta": 1.05, "bound_sizes": True, "degrees": "exact"}
    stream = GraphStream(graph, order, seed, chunk_edges=chunk)
    edges = [pair for it in stream.chunks() for pair in zip(it.sources.tolist(), it.destinations.tolist(), strict=True)]
    assert sorted(edges) == sorted(edge_list(graph)) and (order == "shuffled" or edges == edge_list(graph))
    owners = SpringPartitioner(**options).assign_stream(stream, min(2, graph.num_nodes)).nodes.tolist()
    assert owners == by_sets(graph, edges, min(2, graph.num_nodes), options)
    if edges:
        pairs = ArrayStream(np.array(edges, np.int64), graph.num_nodes, chunk_edges=chunk)
        again = SpringPartitioner(**options).assign_stream(pairs, min(2, graph.num_nodes)).nodes.tolist()
        assert again == owners


def test_a_streamed_degree_that_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun where degrees are about to leave their type."""
    begin = spring.start
    monkeypatch.setattr(spring, "start", lambda degrees, *rest: begin(degrees + np.int32(2**31 - 3), *rest))
    rule = SpringPartitioner(degrees="streamed")
    rule.assign_stream(ArrayStream(np.array([[0, 1], [0, 1]]), name="file"), 2)
    with pytest.raises(DataError, match=r"file='vertex 0': must have fewer than 2\^31 edges"):
        rule.assign_stream(ArrayStream(np.array([[0, 1], [0, 0]]), name="file"), 2)


def test_both_directions_of_edges_that_are_there_once() -> None:
    pairs = np.array([[0, 1], [1, 2], [3, 3], [4, 0]])
    stream = SymmetricStream(ArrayStream(pairs, chunk_edges=3))
    seen = [(int(s), int(d)) for it in stream.chunks() for s, d in zip(it.sources, it.destinations, strict=True)]
    assert seen == [(0, 1), (1, 2), (3, 3), (1, 0), (2, 1), (4, 0), (0, 4)]
    assert stream.num_edges == 7 and stream.num_nodes == 5
    assert stream.degrees.tolist() == [4, 4, 2, 2, 2]


def test_clusters_are_told_before_and_after_merging() -> None:
    # A star whose leaves cannot join it by volume (degree 8 > cap), and two vertices on their own.
    leaves = np.arange(1, 9)
    graph = csc(11, np.concatenate([leaves, leaves * 0]), np.concatenate([leaves * 0, leaves]))
    facts = SpringPartitioner(alpha=0.0, beta=1.05).partition(graph, 1).facts
    assert facts["clusters_clustered/count"] == 11 and facts["clusters_clustered/mean_size"] == 1
    # Merged up to 1.05 * 11: all leaves go to the hub's cluster, whose own richest neighbour lies in it.
    assert facts["clusters_merged/count"] == 3
    assert facts["clusters_merged/mean_size"] == pytest.approx(11 / 3)
    assert facts["clusters_merged/std_size"] == pytest.approx(np.std([9, 1, 1]))


def test_balance_on_a_graph_without_edges() -> None:
    graph = csc(13, np.empty(0, np.int64), np.empty(0, np.int64))
    partition = SpringPartitioner().partition(graph, 5)
    assert partition.part_sizes().tolist() == [3, 3, 3, 2, 2]
    assert partition.node_owner.dtype == torch.int16


def test_bad_options_are_named_together() -> None:
    with pytest.raises(ConfigError) as error:
        SpringPartitioner(alpha=-1, beta=0.5)
    assert [problem.key for problem in error.value.problems] == ["partitioner.alpha", "partitioner.beta"]
