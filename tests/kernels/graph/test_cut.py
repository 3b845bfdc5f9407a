"""Ranges within a budget, counted one by one in plain Python, and the numbering of a range's sources."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from gnnexp.graph.graph import Graph
from gnnexp.kernels.graph.cut import compact, cut_by_cost
from gnnexp.testing.graphs import csc, edge_list
from gnnexp.testing.strategies import graphs

COSTS = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9))
STAR = csc(4, np.array([1, 2, 3, 1, 1]), np.array([0, 0, 0, 0, 2]))


def bounds_of(graph: Graph, costs: tuple[int, int, int], budget: int) -> tuple[list[int], int]:
    bounds, dearest = cut_by_cost(graph.indptr.numpy(), graph.indices.numpy(), graph.num_nodes, *costs, budget)
    return bounds.tolist(), int(dearest)


def cost_of(graph: Graph, first: int, last: int, costs: tuple[int, int, int]) -> int:
    edges = [source for source, dst in edge_list(graph) if first <= dst < last]
    return costs[0] * (last - first) + costs[1] * len(edges) + costs[2] * len({*edges, *range(first, last)})


@given(graphs(), COSTS, st.integers(1, 300))
@example(STAR, (1, 1, 1), 10)
def test_ranges_are_in_order_within_the_budget_and_as_large_as_it_allows(
    graph: Graph, costs: tuple[int, int, int], budget: int
) -> None:
    bounds, _ = bounds_of(graph, costs, budget)
    assert bounds[0] == 0 and bounds[-1] == graph.num_nodes
    for first, last in pairwise(bounds):
        assert first < last, "every destination in exactly one range, none empty"
        assert last == first + 1 or cost_of(graph, first, last, costs) <= budget
        assert last == graph.num_nodes or cost_of(graph, first, last + 1, costs) > budget


@given(graphs(), COSTS, st.integers(1, 300))
def test_a_budget_of_the_dearest_destination_fits_every_range(
    graph: Graph, costs: tuple[int, int, int], budget: int
) -> None:
    """Parallel edges may make it look a little dearer than it is, never cheaper."""
    _, dearest = bounds_of(graph, costs, budget)
    alone = [cost_of(graph, dst, dst + 1, costs) for dst in range(graph.num_nodes)]
    degree = np.diff(graph.indptr.numpy()).tolist()
    most = [costs[0] + costs[1] * d + costs[2] * min(graph.num_nodes, d + 1) for d in degree]
    assert max(alone) <= dearest == max(most)
    bounds, same = bounds_of(graph, costs, dearest)
    assert same == dearest
    assert all(cost_of(graph, first, last, costs) <= dearest for first, last in pairwise(bounds))


def test_a_graph_without_destinations():
    bounds, dearest = bounds_of(csc(0, np.empty(0, int), np.empty(0, int)), (1, 1, 1), 5)
    assert (set(bounds), dearest) == ({0}, 0)


@given(graphs(), st.data())
def test_sources_of_a_range_are_numbered_destinations_first(graph: Graph, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, graph.num_nodes - 1))
    last = data.draw(st.integers(first, graph.num_nodes))
    sources = graph.indices[graph.indptr[first] : graph.indptr[last]].numpy()
    place, renumbered = np.full(graph.num_nodes, -1, np.int32), np.empty(sources.size, np.int32)
    rows = np.empty(min(graph.num_nodes, last - first + sources.size), np.int64)
    count = compact(sources, first, last - first, place, renumbered, rows)
    others = list(dict.fromkeys(source for source in sources.tolist() if not first <= source < last))
    assert rows[:count].tolist() == [*range(first, last), *others]
    assert rows[renumbered].tolist() == sources.tolist()
    assert (place == -1).all(), "left as it was, for the next range"
