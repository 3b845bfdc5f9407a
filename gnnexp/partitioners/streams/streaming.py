"""Partitioners that see a graph as a stream of edges and keep O(V) state (SDT-GNN, section III-B).

A rule of one's own is a subclass: of `StreamPartitioner` if it decides owners of vertices; of `VertexCut` if it takes
several passes to place edges, of `EdgePlacer` if it places them chunk by chunk in one, of `EdgeScorer` if it scores the
parts for one edge at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition, owner_dtype
from gnnexp.graph.stream import EdgeStream, GraphStream, StreamOrder, check_degrees
from gnnexp.kernels.partitioners.homes import count_edges, keep_last, keep_most, place_homeless
from gnnexp.partitioners.base import Owners, Partitioner

NumParts = int | Literal["auto"]
Home = Literal["most", "last"]
Degrees = Literal["exact", "streamed"]
# Homes are counted for as many parts per pass as this has room for, but for 8 at least, with 32 bytes per vertex.
HOMES_BYTES = 1 << 30
HOMES_PER_PASS = 8
# Peak of a shuffled stream, while its order is sorted: 20.0 measured on R-MAT, 200,000 vertices, 10 M edges.
SHUFFLED_BYTES_PER_EDGE = 20


class StreamPartitioner(Partitioner):
    """Decides from passes over a stream of edges.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        order: in which the edges of a graph are streamed: `stored` (by destination), or `shuffled`.
        seed: of the shuffle.
    """

    def __init__(self, num_parts: NumParts = "auto", order: StreamOrder = "stored", seed: int = 0) -> None:
        self.num_parts, self.order, self.seed = num_parts, order, seed

    @property
    def bytes_per_edge(self) -> int:
        """What a shuffled stream holds; a stored one holds nothing."""
        return SHUFFLED_BYTES_PER_EDGE if self.order == "shuffled" else 0

    def stream(self, graph: Graph) -> EdgeStream:
        """The graph's edges, in the order in which they are wanted."""
        return GraphStream(graph, self.order, self.seed)

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners from the stream of the graph's edges."""
        return self.assign_stream(self.stream(graph), num_parts)

    def partition_stream(self, stream: EdgeStream, num_parts: int, key: str = "") -> Partition:
        """Split the vertices (and in a vertex-cut the edges, by position) of a stream, in its order.

        Args:
            stream: any.
            num_parts: from 1 to V.
            key: content key of the stream, kept in the partition.

        Raises:
            ConfigError: the stream is to be shuffled, or there are more parts than vertices.
        """
        if self.order != "stored":
            raise ConfigError(Problem("partitioner.order", self.order, "a stream comes in its own order",
                                      "set partitioner.order=stored"))
        return self.timed(lambda: self.assign_stream(stream, num_parts), stream, num_parts, key)

    @abstractmethod
    def assign_stream(self, stream: EdgeStream, num_parts: int) -> Owners:
        """Owners of all vertices, and in a vertex-cut of the edges by position; 1 <= num_parts <= V."""


class VertexCut(StreamPartitioner):
    """Gives every edge a part, and every vertex a home by the parts of its edges.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        order: see `StreamPartitioner`.
        seed: of the shuffle.
        home: who owns a vertex: the part with `most` of its edges (lowest on ties), or the one of its `last` streamed
            in-edge (the published artifact of SDT-GNN); vertices without any go to the parts with the fewest.
    """

    vertex_cut = True

    def __init__(
        self, num_parts: NumParts = "auto", order: StreamOrder = "stored", seed: int = 0, home: Home = "most"
    ) -> None:
        super().__init__(num_parts, order, seed)
        self.home = home

    @property
    def bytes_per_edge(self) -> int:
        """Of owners where a stream holds nothing: sorting a shuffled one is the peak, before owners are written."""
        return super().bytes_per_edge or 2

    @abstractmethod
    def place_all(self, stream: EdgeStream, num_parts: int, parts: np.ndarray) -> Mapping[str, float]:
        """Write the part of every edge into `parts` `[E]` by position; what is told of it, by name."""

    def assign_stream(self, stream: EdgeStream, num_parts: int) -> Owners:
        """Place every edge, then say where vertices are at home."""
        parts = np.empty(stream.num_edges, torch.zeros(0, dtype=owner_dtype(num_parts)).numpy().dtype)
        facts = self.place_all(stream, num_parts, parts)
        return Owners(torch.from_numpy(homes_of(stream, parts, num_parts, self.home)), torch.from_numpy(parts), facts)


def homes_of(stream: EdgeStream, parts: np.ndarray, num_parts: int, home: Home) -> np.ndarray:
    """The part `[V]` where every vertex is at home, in the dtype of `parts`; see `VertexCut`.

    `most` takes a pass per 1 GiB or 8 parts, with 4 bytes per vertex and part; a self loop counts once, parallel edges
    each.

    Args:
        stream: of the edges.
        parts: `[E]` of every edge, by position.
        num_parts: p.
        home: which part of its edges.
    """
    homes = np.full(stream.num_nodes, -1, parts.dtype)
    if home == "last":
        for chunk in stream.chunks():
            keep_last(chunk.destinations, parts[chunk.positions], homes)
    else:
        stream = stream.sequential()
        most = np.zeros(stream.num_nodes, np.int32)
        group = max(HOMES_PER_PASS, HOMES_BYTES // (4 * stream.num_nodes))
        for first in range(0, num_parts, group):
            counts = np.zeros((stream.num_nodes, min(group, num_parts - first)), np.int32)
            for chunk in stream.chunks():
                count_edges(chunk.sources, chunk.destinations, parts[chunk.positions], first, counts)
            keep_most(counts, first, most, homes)
    place_homeless(homes, num_parts)
    return homes


@dataclass(eq=False)
class Placement:
    """What a rule knows while it places edges.

    Attributes:
        num_parts: p.
        degrees: `[V]` int32: of the whole graph, or of what was streamed so far.
        replicas: `[V, ceil(p / 64)]` uint64, bit set of the parts that hold each vertex.
        loads: `[p]` int64 edges of every part.
    """

    num_parts: int
    degrees: np.ndarray
    replicas: np.ndarray
    loads: np.ndarray

    @classmethod
    def empty(cls, degrees: np.ndarray, num_parts: int) -> Placement:
        """Nothing is placed yet."""
        words = (num_parts + 63) // 64
        return cls(num_parts, degrees, np.zeros((degrees.size, words), np.uint64), np.zeros(num_parts, np.int64))

    def holders(self, vertex: int) -> np.ndarray:
        """`[p]` whether each part holds `vertex`."""
        bits = np.unpackbits(self.replicas[vertex].astype("<u8").view(np.uint8), bitorder="little")
        return bits[: self.num_parts].astype(bool)

    def put(self, source: int, destination: int, part: int) -> int:
        """An edge into `part`, which is returned."""
        for vertex in (source, destination):
            self.replicas[vertex, part >> 6] |= np.uint64(1 << (part & 63))
        self.loads[part] += 1
        return part


class EdgePlacer(VertexCut):
    """A vertex-cut in one pass: edges are placed in the order of the stream, chunk by chunk.

    A subclass implements `place`. If it counts degrees itself, as they are streamed, `first_degrees` gives it zeros.
    """

    @abstractmethod
    def place(self, state: Placement, sources: np.ndarray, destinations: np.ndarray, parts: np.ndarray) -> None:
        """Write the part of each edge into `parts` `[n]`, and keep `state.replicas` and `state.loads` true."""

    def first_degrees(self, stream: EdgeStream) -> np.ndarray:
        """`[V]` int32 that `Placement.degrees` starts with: those of the whole stream, not to be changed."""
        return stream.degrees

    def begin(self, stream: EdgeStream, num_parts: int) -> Placement:
        """State before the first edge; a rule that keeps more returns a subclass of `Placement`."""
        return Placement.empty(self.first_degrees(stream), num_parts)

    def place_all(self, stream: EdgeStream, num_parts: int, parts: np.ndarray) -> Mapping[str, float]:
        """In one pass."""
        state = self.begin(stream, num_parts)
        for chunk in stream.chunks():
            placed = np.empty(chunk.sources.size, parts.dtype)
            self.place(state, chunk.sources, chunk.destinations, placed)
            parts[chunk.positions] = placed
        check_degrees(state.degrees, stream.name)
        return {}


class EdgeScorer(EdgePlacer):
    """A vertex-cut by scores: an edge goes to the part that scores best, the lowest one on ties.

    Python code for every edge: some ten thousand edges a second. `EdgePlacer.place` takes a kernel.
    """

    @abstractmethod
    def score(self, state: Placement, source: int, destination: int) -> np.ndarray:
        """`[p]` scores of the parts for one edge, the higher the better."""

    def place(self, state: Placement, sources: np.ndarray, destinations: np.ndarray, parts: np.ndarray) -> None:
        """Edge by edge."""
        for edge, (source, destination) in enumerate(zip(sources.tolist(), destinations.tolist(), strict=True)):
            parts[edge] = state.put(source, destination, int(np.argmax(self.score(state, source, destination))))
