"""Label propagation and contraction, against sets and dictionaries."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.graph.graph import Graph
from gnnexp.kernels.partitioners import clusters
from gnnexp.partitioners.multilevel import CoarseGraph
from gnnexp.testing.graphs import csc, edge_list
from gnnexp.testing.strategies import graphs


def level_of(graph: Graph) -> CoarseGraph:
    return CoarseGraph.of_graph(graph.indptr.numpy(), graph.indices.numpy())


def weighted(graph: Graph, draw: np.random.Generator) -> CoarseGraph:
    level = level_of(graph)
    return CoarseGraph(
        level.indptr,
        level.indices,
        draw.integers(1, 5, level.indices.size),
        draw.integers(1, 4, level.num_nodes),
        draw.integers(0, 9, level.num_nodes),
    )


@pytest.mark.parametrize("falling", [False, True])
@given(graph=graphs())
def test_vertices_by_degree(falling: bool, graph: Graph) -> None:
    degree = graph.in_degree.numpy()
    wanted = np.argsort(-degree if falling else degree, kind="stable")
    assert level_of(graph).order(falling=falling).tolist() == wanted.tolist()


@given(graph=graphs(), seed=st.integers(0, 9), max_size=st.integers(1, 12))
def test_one_round_of_label_propagation(graph: Graph, seed: int, max_size: int) -> None:
    level = weighted(graph, np.random.default_rng(seed))
    V, order = graph.num_nodes, np.random.default_rng(seed).permutation(graph.num_nodes).astype(np.int32)
    labels, sizes = np.arange(V, dtype=np.int32), level.masses.copy()
    clusters.join_clusters(
        level.indptr,
        level.indices,
        level.weights,
        level.masses,
        order,
        labels,
        sizes,
        max_size,
        np.zeros(V, np.int64),
        np.empty(max(1, graph.num_edges), np.int32),
    )
    wanted, held = list(range(V)), level.masses.tolist()
    for vertex in order.tolist():
        row = range(level.indptr[vertex], level.indptr[vertex + 1])
        found: Counter[int] = Counter()
        for edge in row:
            if level.indices[edge] != vertex:
                found[wanted[level.indices[edge]]] += int(level.weights[edge])
        own, mass = wanted[vertex], int(level.masses[vertex])
        better = [
            (-weight, held[label], place, label)
            for place, (label, weight) in enumerate(found.items())
            if label != own and weight > found[own] and held[label] + mass <= max_size
        ]
        if better:
            wanted[vertex] = min(better)[3]
            held[own] -= mass
            held[wanted[vertex]] += mass
    assert labels.tolist() == wanted and sizes.tolist() == held


@given(graph=graphs(), seed=st.integers(0, 9), max_size=st.integers(1, 12))
def test_a_level_of_clusters(graph: Graph, seed: int, max_size: int) -> None:
    for level in (level_of(graph), weighted(graph, np.random.default_rng(seed))):
        labels, coarse = level.contracted(max_size)
        masses, loads, weights = level.all_masses(), level.all_loads(), level.all_weights()
        count = int(labels.max()) + 1
        assert coarse.num_nodes == count and set(labels.tolist()) == set(range(count))
        assert coarse.masses.tolist() == [masses[labels == c].sum() for c in range(count)]
        assert coarse.loads.tolist() == [loads[labels == c].sum() for c in range(count)]
        assert all(coarse.masses[c] <= max_size or (labels == c).sum() == 1 for c in range(count))
        wanted: Counter[tuple[int, int]] = Counter()
        for (src, dst), weight in zip(edge_list(graph), weights.tolist(), strict=True):
            if labels[src] != labels[dst]:
                wanted[labels[src], labels[dst]] += weight
        found = {
            (int(coarse.indices[edge]), dst): int(coarse.weights[edge])
            for dst in range(count)
            for edge in range(coarse.indptr[dst], coarse.indptr[dst + 1])
        }
        assert found == wanted and coarse.indices.size == len(found)


def test_leaves_of_a_full_hub_and_vertices_without_neighbours_are_gathered() -> None:
    leaves = np.arange(1, 41)
    star = csc(60, np.concatenate([np.zeros(40, np.int64), leaves]), np.concatenate([leaves, np.zeros(40, np.int64)]))
    labels, coarse = level_of(star).contracted(10)
    assert coarse.num_nodes <= 8 and coarse.masses.max() == 10
    assert np.unique(labels[41:]).size == 2, "19 without neighbours, by tens"
