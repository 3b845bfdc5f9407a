"""Vertex-cut rules on streams, and what they are compared with: the same rules in plain Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from gnnexp.graph.graph import Graph
from gnnexp.graph.stream import GraphStream, StreamOrder
from gnnexp.kernels.counter import GOLDEN, Purpose, mix, stream
from gnnexp.partitioners.base import Owners
from gnnexp.partitioners.dbh import HASH
from gnnexp.partitioners.streaming import VertexCut
from gnnexp.testing.graphs import edge_list

Edges = list[tuple[int, int]]
PARTS = st.sampled_from([1, 2, 3, 5, 63, 64, 65, 130])
ORDERS: list[StreamOrder] = ["stored", "shuffled"]


def streamed(graph: Graph, order: StreamOrder, seed: int = 0) -> tuple[Edges, list[int]]:
    """Edges as they are streamed, and their positions in the graph."""
    edges, positions = edge_list(graph), []
    for chunk in GraphStream(graph, order, seed).chunks():
        places = chunk.positions
        positions += list(range(places.start, places.stop)) if isinstance(places, slice) else places.tolist()
    return [edges[at] for at in positions], positions


def parts_of(owners: Owners) -> list[int]:
    """Of the edges."""
    assert owners.edges is not None
    return owners.edges.tolist()  # type: ignore[no-any-return]


def expect(
    rule: VertexCut, graph: Graph, num_parts: int, by_hand: Callable[[Edges], list[int]], seed: int = 0
) -> list[int]:
    """That `rule` places edges as `by_hand` does, which is given them in the order of the stream; parts by position."""
    edges, positions = streamed(graph, rule.order, seed)
    wanted = np.empty(len(edges), np.int64)
    wanted[positions] = by_hand(edges)
    found = parts_of(rule.assign(graph, num_parts))
    assert found == wanted.tolist()
    return found


def degrees_of(edges: Edges, num_nodes: int) -> list[int]:
    """Edges at every vertex, in and out; a self loop is two."""
    return [sum((src == vertex) + (dst == vertex) for src, dst in edges) for vertex in range(num_nodes)]


def hashed(vertex: int, seed: int, num_parts: int) -> int:
    """The part that a partitioner's hash sends `vertex` to."""
    return (mix(stream(seed, Purpose.PARTITION, HASH) + (vertex + 1) * GOLDEN) >> 32) * num_parts >> 32
