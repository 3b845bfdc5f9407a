"""What a graph derives from its CSC arrays, against plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import full_graph

from gnnexp.graph.graph import Splits
from gnnexp.testing.graphs import edge_list, random_graph
from gnnexp.testing.strategies import graphs


@settings(max_examples=60, deadline=None)
@given(graphs(), st.booleans(), st.integers(0, 99))
def test_occurrence_numbers_parallel_edges(graph: object, typed: bool, seed: int) -> None:
    graph = random_graph(graph.num_nodes, graph.num_edges, seed, typed=True) if typed else graph  # type: ignore
    kinds = [0] * graph.num_edges if graph.edge_types is None else graph.edge_types.tolist()
    seen: Counter[tuple[int, int, int]] = Counter()
    expected = []
    for (src, dst), kind in zip(edge_list(graph), kinds, strict=True):
        expected.append(seen[src, dst, kind])
        seen[src, dst, kind] += 1
    if any(expected):
        assert graph.occurrence is not None
        assert graph.occurrence.tolist() == expected
    else:
        assert graph.occurrence is None


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_degrees_and_destinations(graph: object) -> None:
    edges = edge_list(graph)  # type: ignore[arg-type]
    assert graph.destinations().tolist() == [dst for _, dst in edges]  # type: ignore[attr-defined]
    assert graph.destinations().dtype == graph.indices.dtype  # type: ignore[attr-defined]
    for degree, end in ((graph.out_degree, 0), (graph.in_degree, 1)):  # type: ignore[attr-defined]
        counts = Counter(edge[end] for edge in edges)
        assert degree.tolist() == [counts[v] for v in range(graph.num_nodes)]  # type: ignore[attr-defined]
        assert degree.dtype == torch.int64


def test_sizes_and_kinds() -> None:
    graph = full_graph()
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.multilabel) == (40, 150, 6, False)
    assert full_graph(multilabel=True).multilabel
    assert full_graph(sparse=True).num_features == 6
    assert replace(graph, features=None).num_features == 0


def test_with_splits_changes_the_splits_only() -> None:
    graph, none = full_graph(), torch.empty(0, dtype=torch.int64)
    other = replace(graph, splits=Splits(torch.tensor([1]), none, none))
    assert other.splits.train.tolist() == [1]
    assert other.indptr is graph.indptr
    assert other.features is graph.features
    assert graph.splits.train.numel() == 20
