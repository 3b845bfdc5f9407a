"""PowerGraph's greedy rule against its cases in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from edge_streams import ORDERS, PARTS, Edges, degrees_of, expect, parts_of
from hypothesis import given

from gnnexp.graph.graph import Graph
from gnnexp.graph.stream import StreamOrder
from gnnexp.partitioners.greedy import GreedyPartitioner
from gnnexp.testing.graphs import csc, edge_list, nasty_graph
from gnnexp.testing.strategies import graphs


def greedy_by_cases(edges: Edges, num_nodes: int, num_parts: int) -> list[int]:
    loads, held = [0] * num_parts, [set[int]() for _ in range(num_nodes)]
    unassigned, found = degrees_of(edges, num_nodes), []
    for u, v in edges:
        if held[u] & held[v]:
            candidates = held[u] & held[v]
        elif held[u] and held[v]:
            candidates = held[u] if unassigned[u] > unassigned[v] else held[v]
        elif held[u] or held[v]:
            candidates = held[u] | held[v]
        else:
            candidates = set(range(num_parts))
        part = min(candidates, key=lambda one: (loads[one], one))
        found.append(part)
        loads[part] += 1
        unassigned[u] -= 1
        unassigned[v] -= 1
        held[u].add(part)
        held[v].add(part)
    return found


@pytest.mark.parametrize("order", ORDERS)
@given(graph=graphs(), num_parts=PARTS)
def test_the_rule_on_any_graph(order: StreamOrder, graph: Graph, num_parts: int) -> None:
    expect(
        GreedyPartitioner(order=order),
        graph,
        num_parts,
        lambda edges: greedy_by_cases(edges, graph.num_nodes, num_parts),
    )


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("num_parts", [1, 2, 8, 64, 65, 130])
def test_the_rule_where_every_trap_is(order: StreamOrder, num_parts: int) -> None:
    graph = nasty_graph(num_nodes=140, num_edges=3000)
    expect(GreedyPartitioner(order=order), graph, num_parts, lambda edges: greedy_by_cases(edges, 140, num_parts))


# Edges in stored order, and their parts of two. In all, 1->0 opens part 0 and 3->2 the emptier part 1.
BY_HAND = {
    # 0->3: no common part. 0 has one edge left, this one, and 3 has two: its part, though it has the higher degree.
    "more left": ([(1, 0), (3, 2), (0, 3), (3, 4)], [0, 1, 1, 1]),
    # 0->3: one edge each is left: the destination's part.
    "equally many left": ([(1, 0), (3, 2), (0, 3)], [0, 1, 1]),
    # 3->2 again: the common part, 1, though the other one is as full; 0->4: the only part that 0 has.
    "common, and one end": ([(1, 0), (3, 2), (3, 2), (0, 4)], [0, 1, 1, 0]),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_rule_by_hand(name: str) -> None:
    pairs, parts = BY_HAND[name]
    src, dst = np.array(pairs).T
    graph = csc(5, src, dst)
    assert edge_list(graph) == pairs
    assert parts_of(GreedyPartitioner().assign(graph, 2)) == parts


def test_degrees_of_the_stream_are_left_as_they_are() -> None:
    # They are counted down while edges are placed: from a copy.
    graph = nasty_graph()
    rule = GreedyPartitioner()
    assert parts_of(rule.assign(graph, 3)) == parts_of(rule.assign(graph, 3))
