"""Moves between parts: gains and counts against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.graph.quality import quality
from gnnexp.kernels.partitioners import refine
from gnnexp.testing.graphs import csc, edge_list
from gnnexp.testing.strategies import graphs

PARTS = st.sampled_from([2, 3, 8, 9, 17, 65, 130])
NONE, ANY = np.empty(0, np.int64), np.iinfo(np.int64).max


def drawn(graph: Graph, num_parts: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, num_parts, graph.num_nodes).astype(np.int16)


def copies(graph: Graph, owner: np.ndarray, num_parts: int) -> int:
    report = quality(graph, Partition(torch.from_numpy(owner), num_parts))
    return round(report["replication_full"] * graph.num_nodes)


def sums(graph: Graph, owner: np.ndarray, num_parts: int) -> tuple[np.ndarray, np.ndarray]:
    degrees = graph.in_degree.numpy()
    return (
        np.bincount(owner, minlength=num_parts),
        np.bincount(owner, weights=degrees, minlength=num_parts).astype(np.int64),
    )


def pins_of(graph: Graph, owner: np.ndarray, num_parts: int) -> tuple[np.ndarray, np.ndarray]:
    stride = -(-num_parts // 8) * 8
    words = np.zeros(graph.num_nodes * stride // 8, np.uint64)
    refine.count_pins(graph.indptr.numpy(), graph.indices.numpy(), owner, stride, words.view(np.uint8))
    return words.view(np.uint8), words


def move_by_copies(
    graph: Graph,
    owner: np.ndarray,
    num_parts: int,
    most: int,
    max_load: int,
    tilt: float,
    order: np.ndarray | None = None,
) -> np.ndarray:
    pins, words = pins_of(graph, owner, num_parts)
    sizes, loads = sums(graph, owner, num_parts)
    order = np.arange(graph.num_nodes, dtype=np.int32) if order is None else order
    refine.move_by_copies(
        graph.indptr.numpy(), graph.indices.numpy(), order, owner, sizes, loads, most, max_load, pins, words, tilt
    )
    for found, wanted in zip((sizes, loads), sums(graph, owner, num_parts), strict=True):
        assert found.tolist() == wanted.tolist()
    return pins


@given(graph=graphs(), num_parts=PARTS, seed=st.integers(0, 9))
def test_pins_are_counted_and_kept(graph: Graph, num_parts: int, seed: int) -> None:
    owner = drawn(graph, num_parts, seed)
    kept = move_by_copies(graph, owner, num_parts, ANY, ANY, 0.1)
    stride = kept.size // graph.num_nodes
    wanted = np.zeros((graph.num_nodes, stride), np.uint8)
    wanted[np.arange(graph.num_nodes), owner] = 1
    for src, dst in edge_list(graph):
        if src != dst:
            wanted[src, owner[dst]] += 1
    assert kept.reshape(wanted.shape).tolist() == wanted.tolist()
    assert pins_of(graph, owner, num_parts)[0].tolist() == kept.tolist()


@given(graph=graphs(), num_parts=PARTS, seed=st.integers(0, 9), room=st.integers(0, 3), data=st.data())
def test_a_vertex_moves_where_the_fewest_copies_are(
    graph: Graph, num_parts: int, seed: int, room: int, data: st.DataObject
) -> None:
    before = drawn(graph, num_parts, seed)
    most = int(np.bincount(before).max()) + room
    vertex = data.draw(st.integers(0, graph.num_nodes - 1))
    after = before.copy()
    move_by_copies(graph, after, num_parts, most, ANY, 0.0, np.array([vertex], np.int32))
    ways = {int(before[vertex]): copies(graph, before, num_parts)}
    for part in np.flatnonzero(np.bincount(before, minlength=num_parts) < most).tolist():
        tried = before.copy()
        tried[vertex] = part
        ways[part] = copies(graph, tried, num_parts)
    assert np.flatnonzero(after != before).tolist() in ([], [vertex])
    assert ways[int(after[vertex])] == min(ways.values())


def test_pins_that_do_not_fit_in_a_byte_are_not_lost() -> None:
    # Vertex 0 has 300 out-neighbours in part 0; when 299 of them leave, the part must be taken to need it still.
    graph = csc(302, np.zeros(301, np.int64), np.arange(1, 302))
    owner = np.zeros(302, np.int16)
    owner[301] = 1
    pins = move_by_copies(graph, owner, 2, ANY, ANY, 0.0)
    assert pins.reshape(302, 8)[0, 0] == 255


@given(graph=graphs(), num_parts=PARTS, seed=st.integers(0, 9), max_load=st.integers(0, 40))
def test_caps_are_not_newly_broken(graph: Graph, num_parts: int, seed: int, max_load: int) -> None:
    before = drawn(graph, num_parts, seed)
    most = -(-graph.num_nodes // num_parts)
    for by_edges in (False, True):
        owner, (sizes, loads) = before.copy(), sums(graph, before, num_parts)
        order = np.arange(graph.num_nodes, dtype=np.int32)
        if by_edges:
            refine.move_by_edges(
                graph.indptr.numpy(),
                graph.indices.numpy(),
                NONE,
                NONE,
                NONE,
                order,
                owner,
                sizes,
                loads,
                most,
                max_load,
            )
        else:
            move_by_copies(graph, owner, num_parts, most, max_load, 0.1)
        for old, new, cap in zip(
            sums(graph, before, num_parts), sums(graph, owner, num_parts), (most, max_load), strict=True
        ):
            assert all(now <= max(cap, was) for was, now in zip(old.tolist(), new.tolist(), strict=True))


@pytest.mark.parametrize("with_weights", [False, True])
@given(graph=graphs(), num_parts=PARTS, seed=st.integers(0, 9))
def test_moves_by_edges_cut_less(with_weights: bool, graph: Graph, num_parts: int, seed: int) -> None:
    owner, (sizes, loads) = drawn(graph, num_parts, seed), sums(graph, drawn(graph, num_parts, seed), num_parts)
    weights = np.random.default_rng(seed).integers(1, 5, graph.num_edges) if with_weights else NONE
    indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
    # In-edges only: a move cuts less at the vertex itself.
    for vertex in range(graph.num_nodes):

        def joined(part: int, at: int = vertex) -> int:
            return sum(
                int(weights[edge]) if with_weights else 1
                for edge in range(indptr[at], indptr[at + 1])
                if indices[edge] != at and owner[indices[edge]] == part
            )

        wanted = max(joined(part) for part in range(num_parts))
        refine.move_by_edges(
            indptr, indices, weights, NONE, NONE, np.array([vertex], np.int32), owner, sizes, loads, ANY, ANY
        )
        assert joined(int(owner[vertex])) == wanted
    cut = sum(
        (int(weights[edge]) if with_weights else 1) * (owner[src] != owner[dst])
        for edge, (src, dst) in enumerate(edge_list(graph))
    )
    assert refine.cut_weight(indptr, indices, weights, owner) == cut
