"""HDRF against its formula in plain Python, and what lambda is for."""

from __future__ import annotations

import numpy as np
import pytest
from edge_streams import ORDERS, PARTS, Edges, degrees_of, expect, parts_of
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.datasets.generated.rmat import Rmat
from gnnexp.errors import ConfigError
from gnnexp.graph.graph import Graph
from gnnexp.graph.quality import quality
from gnnexp.graph.stream import ArrayStream, StreamOrder
from gnnexp.partitioners.hdrf import HdrfPartitioner
from gnnexp.partitioners.streaming import Degrees
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.strategies import graphs

DEGREES: list[Degrees] = ["streamed", "exact"]


def hdrf_by_formula(
    edges: Edges, num_nodes: int, num_parts: int, weight: float, epsilon: float, degrees: Degrees
) -> list[int]:
    loads, held = [0] * num_parts, [set[int]() for _ in range(num_nodes)]
    degree = degrees_of(edges, num_nodes) if degrees == "exact" else [0] * num_nodes
    found = []
    for u, v in edges:
        if degrees == "streamed":
            degree[u] += 1
            degree[v] += 1
        share = degree[u] / (degree[u] + degree[v])
        balance = weight / (epsilon + (max(loads) - min(loads)))

        def score(part: int, u: int = u, v: int = v, share: float = share, balance: float = balance) -> float:
            gain = (2 - share) * (part in held[u])
            gain += (1 + share) * (part in held[v])
            return gain + balance * (max(loads) - loads[part])

        part = max(range(num_parts), key=lambda one: (score(one), -one))
        found.append(part)
        loads[part] += 1
        held[u].add(part)
        held[v].add(part)
    return found


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("degrees", DEGREES)
@given(graph=graphs(), num_parts=PARTS, weight=st.sampled_from([0.3, 1.0, 4.0]), epsilon=st.sampled_from([0.001, 1.0]))
def test_the_rule_on_any_graph(
    degrees: Degrees, order: StreamOrder, graph: Graph, num_parts: int, weight: float, epsilon: float
) -> None:
    rule = HdrfPartitioner(lambda_=weight, epsilon=epsilon, degrees=degrees, order=order)
    expect(
        rule,
        graph,
        num_parts,
        lambda edges: hdrf_by_formula(edges, graph.num_nodes, num_parts, weight, epsilon, degrees),
    )


@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("num_parts", [1, 2, 8, 64, 65, 130])
def test_the_rule_where_every_trap_is(degrees: Degrees, num_parts: int) -> None:
    graph = nasty_graph(num_nodes=140, num_edges=1500)
    rule = HdrfPartitioner(degrees=degrees, order="shuffled")
    expect(rule, graph, num_parts, lambda edges: hdrf_by_formula(edges, 140, num_parts, 1.0, 1.0, degrees))


def test_of_two_ends_the_one_with_more_edges_is_replicated() -> None:
    # Part 0 gets 3->2 and 4->2, part 1 gets 1->0 and 6->5. 0->2: both are as full, 0 has 2 edges, 2 has 3: to 0's part.
    stream = ArrayStream(np.array([[3, 2], [1, 0], [4, 2], [6, 5], [0, 2]]))
    assert parts_of(HdrfPartitioner(degrees="exact").assign_stream(stream, 2)) == [0, 1, 0, 1, 1]


def test_a_large_lambda_balances_and_copies_more() -> None:
    graph = Rmat(num_nodes=5000, num_edges=60_000, num_features=4).load()
    found = [quality(graph, HdrfPartitioner(lambda_=weight).partition(graph, 8)) for weight in (1.0, 100.0)]
    assert found[1]["balance_edges"] < 1.001
    assert found[0]["replication_cut"] < 0.8 * found[1]["replication_cut"]


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        HdrfPartitioner(lambda_=0, epsilon=float("nan"))
    assert [problem.key for problem in raised.value.problems] == ["partitioner.lambda_", "partitioner.epsilon"]
