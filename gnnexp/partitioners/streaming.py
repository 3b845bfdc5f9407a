"""Partitioners that see a graph as a stream of edges and keep O(V) state (SDT-GNN, section III-B).

To add a rule, write a subclass of one of these classes:

- `StreamPartitioner`: the rule decides the owners of vertices.
- `VertexCut`: the rule places edges in several passes.
- `EdgePlacer`: the rule places edges chunk by chunk, in one pass.
- `EdgeScorer`: the rule gives each part a score, for one edge at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition, owner_dtype
from gnnexp.graph.stream import EdgeStream, GraphStream, StreamOrder, check_degrees
from gnnexp.kernels.partitioners.homes import count_by_part, keep_last, keep_most, place_homeless
from gnnexp.partitioners.base import Owners, Partitioner

NumParts = int | Literal["auto"]
Home = Literal["most", "last"]
Degrees = Literal["exact", "streamed"]
# Memory in one pass for the counts of edges per vertex and part, 4 bytes each. A pass counts at least 8 parts, even if
# these need more memory.
HOMES_BYTES = 1 << 30
HOMES_PER_PASS = 8
# Peak memory of a shuffled stream, while its order is sorted: 20.0 measured on R-MAT, 200,000 vertices, 10 M edges.
SHUFFLED_BYTES_PER_EDGE = 20


class StreamPartitioner(Partitioner):
    """A partitioner that reads the graph in passes over a stream of edges.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        order: order in which the edges of a graph are streamed: `stored` (by destination), or `shuffled`.
        seed: seed of the shuffle.
    """

    def __init__(self, num_parts: NumParts = "auto", order: StreamOrder = "stored", seed: int = 0) -> None:
        self.num_parts, self.order, self.seed = num_parts, order, seed

    @property
    def bytes_per_edge(self) -> int:
        """Memory of a shuffled stream per edge, in bytes; a stored stream needs none."""
        return SHUFFLED_BYTES_PER_EDGE if self.order == "shuffled" else 0

    @final
    def stream(self, graph: Graph) -> EdgeStream:
        """The edges of the graph as a stream in the order `order`."""
        return GraphStream(graph, self.order, self.seed)

    @final
    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners from the stream of the graph's edges."""
        return self.assign_stream(self.stream(graph), num_parts)

    @final
    def partition_stream(self, stream: EdgeStream, num_parts: int, key: str = "") -> Partition:
        """Split the vertices of a stream, and in a vertex-cut its edges by position, in the order of the stream.

        Args:
            stream: the edges.
            num_parts: from 1 to V.
            key: content key of the stream, kept in the partition.

        Raises:
            ConfigError: `order` is not `stored`, or there are more parts than vertices.
        """
        if self.order != "stored":
            raise ConfigError(
                Problem(
                    "partitioner.order", self.order, "a stream comes in its own order", "set partitioner.order=stored"
                )
            )
        return self.timed(lambda: self.assign_stream(stream, num_parts), stream, num_parts, key)

    @abstractmethod
    def assign_stream(self, stream: EdgeStream, num_parts: int) -> Owners:
        """Owners of all vertices, and in a vertex-cut owners of the edges by position; 1 <= num_parts <= V."""


class VertexCut(StreamPartitioner):
    """A partitioner that gives every edge a part, and every vertex a home among the parts of its edges.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        order: see `StreamPartitioner`.
        seed: seed of the shuffle.
        home: the owner of a vertex: the part with `most` of its edges (lowest on ties), or the part of its `last`
            streamed in-edge, as in the published artifact of SDT-GNN. Vertices without such an edge go to the parts
            with the fewest vertices.
    """

    vertex_cut = True

    def __init__(
        self, num_parts: NumParts = "auto", order: StreamOrder = "stored", seed: int = 0, home: Home = "most"
    ) -> None:
        super().__init__(num_parts, order, seed)
        self.home = home

    @property
    def bytes_per_edge(self) -> int:
        """Memory per edge, in bytes: of a shuffled stream while it is sorted, else 2 for the owners of edges."""
        return super().bytes_per_edge or 2

    @abstractmethod
    def place_all(self, stream: EdgeStream, num_parts: int, parts: np.ndarray) -> Mapping[str, float]:
        """Write the part of every edge to `parts` `[E]` by position; returns facts about the run by name."""

    @final
    def assign_stream(self, stream: EdgeStream, num_parts: int) -> Owners:
        """Place every edge, then find the home of every vertex."""
        parts = np.empty(stream.num_edges, torch.zeros(0, dtype=owner_dtype(num_parts)).numpy().dtype)
        facts = self.place_all(stream, num_parts, parts)
        return Owners(torch.from_numpy(homes_of(stream, parts, num_parts, self.home)), torch.from_numpy(parts), facts)


def homes_of(stream: EdgeStream, parts: np.ndarray, num_parts: int, home: Home) -> np.ndarray:
    """The home `[V]` of every vertex, in the dtype of `parts`; see `VertexCut`.

    `most` takes 4 bytes per vertex and part. One pass counts the parts that fit in 1 GiB, at least 8. A self loop
    counts once, parallel edges count each.

    Args:
        stream: the edges.
        parts: `[E]` part of every edge, by position.
        num_parts: p.
        home: rule for the home, `most` or `last`.
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
                count_by_part(chunk.sources, chunk.destinations, parts[chunk.positions], first, counts)
            keep_most(counts, first, most, homes)
    place_homeless(homes, num_parts)
    return homes


@dataclass(eq=False)
class Placement:
    """The state of a rule while it places edges.

    Attributes:
        num_parts: p.
        degrees: `[V]` int32 degrees of the whole graph, or of the edges streamed so far.
        replicas: `[V, ceil(p / 64)]` uint64, bit set of the parts that hold each vertex.
        loads: `[p]` int64 edges of every part.
    """

    num_parts: int
    degrees: np.ndarray
    replicas: np.ndarray
    loads: np.ndarray

    @classmethod
    def empty(cls, degrees: np.ndarray, num_parts: int) -> Placement:
        """The state before the first edge is placed."""
        words = (num_parts + 63) // 64
        return cls(num_parts, degrees, np.zeros((degrees.size, words), np.uint64), np.zeros(num_parts, np.int64))

    def holders(self, vertex: int) -> np.ndarray:
        """Whether each part holds `vertex`, `[p]` bool."""
        bits = np.unpackbits(self.replicas[vertex].astype("<u8").view(np.uint8), bitorder="little")
        return bits[: self.num_parts].astype(bool)

    def put(self, source: int, destination: int, part: int) -> int:
        """Record that an edge is placed in `part`; returns `part`."""
        for vertex in (source, destination):
            self.replicas[vertex, part >> 6] |= np.uint64(1 << (part & 63))
        self.loads[part] += 1
        return part


class EdgePlacer(VertexCut):
    """A vertex-cut in one pass: edges are placed in the order of the stream, chunk by chunk.

    A subclass implements `place`. A subclass that counts degrees while edges are streamed returns zeros from
    `first_degrees`.
    """

    @abstractmethod
    def place(self, state: Placement, sources: np.ndarray, destinations: np.ndarray, parts: np.ndarray) -> None:
        """Write the part of each edge to `parts` `[n]`, and update `state.replicas` and `state.loads`."""

    def first_degrees(self, stream: EdgeStream) -> np.ndarray:
        """Initial `Placement.degrees` `[V]` int32: by default those of the whole stream, which must not be changed."""
        return stream.degrees

    def begin(self, stream: EdgeStream, num_parts: int) -> Placement:
        """The state before the first edge; a rule with more state returns a subclass of `Placement`."""
        return Placement.empty(self.first_degrees(stream), num_parts)

    @final
    def place_all(self, stream: EdgeStream, num_parts: int, parts: np.ndarray) -> Mapping[str, float]:
        """Place all edges in one pass; returns no facts."""
        state = self.begin(stream, num_parts)
        for chunk in stream.chunks():
            placed = np.empty(chunk.sources.size, parts.dtype)
            self.place(state, chunk.sources, chunk.destinations, placed)
            parts[chunk.positions] = placed
        check_degrees(state.degrees, stream.name)
        return {}


class EdgeScorer(EdgePlacer):
    """A vertex-cut by scores: an edge goes to the part with the best score, the lowest part on ties.

    Python code runs for every edge, so this places about ten thousand edges per second. For more speed, implement
    `EdgePlacer.place` with a kernel.
    """

    @abstractmethod
    def score(self, state: Placement, source: int, destination: int) -> np.ndarray:
        """The scores `[p]` of the parts for one edge; higher is better."""

    @final
    def place(self, state: Placement, sources: np.ndarray, destinations: np.ndarray, parts: np.ndarray) -> None:
        """Place the edges one by one."""
        for edge, (source, destination) in enumerate(zip(sources.tolist(), destinations.tolist(), strict=True)):
            parts[edge] = state.put(source, destination, int(np.argmax(self.score(state, source, destination))))
