"""Homes of vertices in a vertex-cut, against counting in plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.graph.graph import Graph
from gnnexp.graph.stream import ArrayStream, GraphStream
from gnnexp.partitioners import streaming
from gnnexp.partitioners.streaming import homes_of
from gnnexp.testing.graphs import csc, edge_list, nasty_graph
from gnnexp.testing.strategies import graphs


def most_by_counting(graph: Graph, owner: list[int], num_parts: int) -> list[int]:
    at: list[Counter[int]] = [Counter() for _ in range(graph.num_nodes)]
    for ends, part in zip(edge_list(graph), owner, strict=True):
        for end in set(ends):
            at[end][part] += 1
    return spread([min(parts, key=lambda part: (-parts[part], part)) if parts else -1 for parts in at], num_parts)


def last_by_dict(num_nodes: int, edges: list[tuple[int, int]], owner: list[int], num_parts: int) -> list[int]:
    last = {dst: part for (_, dst), part in zip(edges, owner, strict=True)}
    return spread([last.get(vertex, -1) for vertex in range(num_nodes)], num_parts)


def spread(found: list[int], num_parts: int) -> list[int]:
    sizes = [found.count(part) for part in range(num_parts)]
    for vertex, part in enumerate(found):
        if part < 0:
            found[vertex] = sizes.index(min(sizes))
            sizes[found[vertex]] += 1
    return found


def found(graph: Graph, owner: np.ndarray, num_parts: int) -> list[int]:
    return homes_of(GraphStream(graph, chunk_edges=7), owner, num_parts, "most").tolist()  # type: ignore[no-any-return]


@given(graphs(), st.sampled_from([1, 2, 3, 7, 64, 65, 130]), st.integers(0, 999))
def test_equals_counting(graph: Graph, num_parts: int, seed: int) -> None:
    owner = np.random.default_rng(seed).integers(0, num_parts, graph.num_edges).astype(np.int16)
    assert found(graph, owner, num_parts) == most_by_counting(graph, owner.tolist(), num_parts)


@pytest.mark.parametrize("num_parts", [1, 2, 5, 70])
def test_equals_counting_where_every_trap_is(num_parts: int) -> None:
    graph = nasty_graph()
    owner = np.random.default_rng(0).integers(0, num_parts, graph.num_edges).astype(np.int16)
    assert found(graph, owner, num_parts) == most_by_counting(graph, owner.tolist(), num_parts)


@pytest.mark.parametrize("num_parts", [8, 9, 70])
def test_equals_counting_in_several_passes(num_parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "HOMES_BYTES", 0)
    graph = nasty_graph()
    owner = np.random.default_rng(0).integers(0, num_parts, graph.num_edges).astype(np.int16)
    assert found(graph, owner, num_parts) == most_by_counting(graph, owner.tolist(), num_parts)


def test_a_self_loop_counts_once_and_the_lowest_part_wins_ties() -> None:
    # Edges in canonical order: 0->0 in part 1, 1->0 in part 0; 2->1 in part 1, 0->2 in part 2.
    graph = csc(3, np.array([0, 1, 2, 0]), np.array([0, 0, 1, 2]))
    assert found(graph, np.array([1, 0, 1, 2], np.int16), 3) == [0, 0, 1]


def test_vertices_without_edges_fill_the_emptiest_parts_in_order() -> None:
    graph = csc(7, np.array([0]), np.array([1]))
    assert found(graph, np.array([1], np.int16), 3) == [1, 1, 0, 2, 0, 2, 0]


@given(graphs(), st.sampled_from([1, 3, 65]), st.integers(0, 999))
def test_the_last_in_edge_of_the_stream(graph: Graph, num_parts: int, seed: int) -> None:
    owner = np.random.default_rng(seed).integers(0, num_parts, graph.num_edges).astype(np.int16)
    stream = GraphStream(graph, "shuffled", seed, chunk_edges=5)
    order = np.concatenate([chunk.positions for chunk in stream.chunks()] or [np.empty(0, np.int64)]).tolist()
    edges = edge_list(graph)
    expected = last_by_dict(graph.num_nodes, [edges[at] for at in order], owner[order].tolist(), num_parts)
    assert homes_of(stream, owner, num_parts, "last").tolist() == expected


def test_the_result_has_the_type_of_the_owners() -> None:
    stream = ArrayStream(np.array([[0, 1]]))
    for dtype in (np.int16, np.int32):
        assert homes_of(stream, np.zeros(1, dtype), 2, "most").dtype == dtype
