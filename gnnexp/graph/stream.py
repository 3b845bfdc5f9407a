"""A stream of edges, with which a partitioner reads a graph that does not fit in memory (SDT-GNN, section III-A).

A pass over the stream yields chunks of bounded size. The reader decides how many passes it takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from gnnexp.errors import DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.kernels.counter import Purpose, permutation, stream
from gnnexp.kernels.graph.edges import edge_destinations
from gnnexp.kernels.graph.stream import add_degrees, expand_destinations, largest_id

# Edges per chunk, 16 MiB of int32 pairs. The disk limits the speed of a pass, so larger chunks gain nothing.
CHUNK_EDGES = 1 << 21
StreamOrder = Literal["stored", "shuffled"]


class EdgeChunk(NamedTuple):
    """Some edges of a stream.

    Attributes:
        sources: `[n]` int32 or int64 ids.
        destinations: `[n]` ids of the same type.
        positions: positions of the edges in the graph or file behind the stream: a slice of length n, or `[n]` int64.
    """

    sources: np.ndarray
    destinations: np.ndarray
    positions: slice | np.ndarray


class EdgeStream(ABC):
    """Directed edges, chunk by chunk; an undirected edge is two of them. All passes yield the same edges in one order.

    Attributes:
        name: name of the stream, the first word of messages.
    """

    name: str

    @abstractmethod
    def chunks(self) -> Iterator[EdgeChunk]:
        """One pass. The arrays of a chunk are valid until the next chunk is read, which may use the same memory.

        Raises:
            DataError: an edge is not valid; raised when the pass reaches the edge.
        """

    @property
    @abstractmethod
    def num_nodes(self) -> int:
        """V; all ids are below V. May take a pass."""

    @property
    @abstractmethod
    def num_edges(self) -> int:
        """Number of edges of a pass. May take a pass."""

    def sequential(self) -> EdgeStream:
        """The same edges in the order in which a pass is cheapest."""
        return self

    @cached_property
    def degrees(self) -> np.ndarray:
        """`[V]` int32 number of in-edges plus out-edges of every vertex (a self loop counts twice); takes a pass.

        Raises:
            DataError: a vertex has 2^31 edges or more.
        """
        degrees = np.zeros(self.num_nodes, np.int32)
        for chunk in self.sequential().chunks():
            add_degrees(chunk.sources, chunk.destinations, degrees)
        check_degrees(degrees, self.name)
        return degrees


class GraphStream(EdgeStream):
    """The edges of a graph, which may be memory-mapped.

    Args:
        graph: the graph.
        order: `stored` (by destination), which holds one chunk in memory; or `shuffled`, a random permutation. The
            stream keeps the permutation and the permuted edges, 16 bytes per edge (20 while they are made).
        seed: seed of the permutation.
        chunk_edges: number of edges of a chunk.
    """

    def __init__(
        self, graph: Graph, order: StreamOrder = "stored", seed: int = 0, chunk_edges: int = CHUNK_EDGES
    ) -> None:
        self.name, self.graph = graph.name, graph
        self._order, self._seed, self._chunk = order, seed, chunk_edges

    @property
    def num_nodes(self) -> int:
        """V."""
        return self.graph.num_nodes

    @property
    def num_edges(self) -> int:
        """E."""
        return self.graph.num_edges

    def sequential(self) -> EdgeStream:
        """The same edges in stored order."""
        return GraphStream(self.graph, chunk_edges=self._chunk)

    @cached_property
    def _shuffled(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sources, destinations and positions `[E]` in shuffled order; kept, because random reads are slow."""
        positions = permutation(stream(self._seed, Purpose.PARTITION, 1), self.num_edges)
        indptr, indices = self.graph.indptr.numpy(), self.graph.indices.numpy()
        return indices[positions], edge_destinations(indptr, indices)[positions], positions

    def chunks(self) -> Iterator[EdgeChunk]:
        """One pass; positions are those of the canonical edge order."""
        indptr, indices = self.graph.indptr.numpy(), self.graph.indices.numpy()
        # One buffer serves all chunks. With one per chunk, peak memory would depend on the number of chunks.
        buffer = np.empty(min(self._chunk, self.num_edges) if self._order == "stored" else 0, indices.dtype)
        for start in range(0, self.num_edges, self._chunk):
            stop = min(start + self._chunk, self.num_edges)
            if self._order == "stored":
                destinations = buffer[: stop - start]
                expand_destinations(indptr, start, destinations)
                yield EdgeChunk(indices[start:stop], destinations, slice(start, stop))
            else:
                yield EdgeChunk(*(array[start:stop] for array in self._shuffled))


class SymmetricStream(EdgeStream):
    """Both directions of every edge of another stream: each chunk is followed by its reverse.

    Args:
        edges: stream that has each undirected edge once. Its chunks determine the order; self loops are not doubled.
    """

    def __init__(self, edges: EdgeStream) -> None:
        self.name, self._edges = edges.name, edges

    @property
    def num_nodes(self) -> int:
        """V."""
        return self._edges.num_nodes

    @cached_property
    def num_edges(self) -> int:
        """Number of edges in both directions, with self loops once; takes a pass."""
        return sum(chunk.sources.size for chunk in self.chunks())

    def chunks(self) -> Iterator[EdgeChunk]:
        """One pass; positions count the edges that this stream yields."""
        position = 0
        for chunk in self._edges.chunks():
            proper = chunk.sources != chunk.destinations
            back = (
                (chunk.destinations, chunk.sources)
                if proper.all()
                else (chunk.destinations[proper], chunk.sources[proper])
            )
            for sources, destinations in ((chunk.sources, chunk.destinations), back):
                yield EdgeChunk(sources, destinations, slice(position, position + sources.size))
                position += sources.size


class PairStream(EdgeStream):
    """Pairs with random access; a subclass implements `read`.

    Args:
        num_edges: E.
        num_nodes: V; None: the largest id + 1, which a pass finds.
        name: name of the file.
        chunk_edges: number of edges of a chunk.

    Raises:
        DataError: there are no edges.
    """

    def __init__(self, num_edges: int, num_nodes: int | None, name: str, chunk_edges: int) -> None:
        self.name, self._given, self._chunk, self._count = name, num_nodes, chunk_edges, num_edges
        if not num_edges:
            raise DataError(empty_stream(name))

    @abstractmethod
    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Sources and destinations of edges `start` to `stop - 1`, int32 or int64 and contiguous."""

    @cached_property
    def num_nodes(self) -> int:
        """V."""
        if self._given is not None:
            return self._given
        # V is 1 if no id is valid, so that the check of ids can name the first wrong one.
        return 1 + max(0, *(int(largest_id(chunk.sources, chunk.destinations)) for chunk in self._unchecked()))

    @property
    def num_edges(self) -> int:
        """E."""
        return self._count

    def chunks(self) -> Iterator[EdgeChunk]:
        """One pass."""
        for chunk in self._unchecked():
            check_ids(chunk, self.num_nodes, self.name)
            yield chunk

    def _unchecked(self) -> Iterator[EdgeChunk]:
        for start in range(0, self._count, self._chunk):
            stop = min(start + self._chunk, self._count)
            yield EdgeChunk(*self.read(start, stop), slice(start, stop))


class ArrayStream(PairStream):
    """Pairs in an array.

    Args:
        pairs: `[E, 2]` integers: source, destination.
        num_nodes: V; None: the largest id + 1, which a pass finds.
        name: name of the stream, for messages.
        chunk_edges: number of edges of a chunk.
    """

    def __init__(
        self, pairs: np.ndarray, num_nodes: int | None = None, name: str = "edges", chunk_edges: int = CHUNK_EDGES
    ) -> None:
        assert pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu"
        super().__init__(pairs.shape[0], num_nodes, name, chunk_edges)
        self._pairs = pairs

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Sources and destinations as contiguous copies."""
        sources, destinations = self._pairs[start:stop].T
        return as_ids(sources), as_ids(destinations)


def as_ids(column: np.ndarray) -> np.ndarray:
    """`column` as contiguous int32 if that type holds all values of its dtype, else as contiguous int64."""
    small = column.dtype.itemsize < 4 or column.dtype.newbyteorder("=") == np.int32
    return np.ascontiguousarray(column, np.int32 if small else np.int64)


def check_ids(chunk: EdgeChunk, num_nodes: int, name: str) -> None:
    """Check the ids of a chunk, because kernels trust ids.

    Raises:
        DataError: an id is negative or too large; names the first such edge.
    """
    ends = (chunk.sources, chunk.destinations)
    if not chunk.sources.size or (min(e.min() for e in ends) >= 0 and max(e.max() for e in ends) < num_nodes):
        return
    wrong = (np.minimum(*ends) < 0) | (np.maximum(*ends) >= num_nodes)
    first = int(np.flatnonzero(wrong)[0])
    places = chunk.positions
    position = places.start + first if isinstance(places, slice) else int(places[first])
    raise DataError(
        Problem(
            f"{name}, edge {position}",
            f"{ends[0][first]} -> {ends[1][first]}",
            f"ids must be 0 to {num_nodes - 1}",
            "renumber the ids, or set dataset.num_nodes",
        )
    )


def check_degrees(degrees: np.ndarray, name: str) -> None:
    """Check degrees `[V]` int32 that were counted without a check for overflow.

    Raises:
        DataError: a degree has overflowed.
    """
    if degrees.size and degrees.min() < 0:
        raise DataError(
            Problem(
                name,
                f"vertex {int(degrees.argmin())}",
                "must have fewer than 2^31 edges",
                "merge parallel edges before streaming them",
            )
        )


def check_record_ids(num_nodes: int, name: str) -> None:
    """Check that vertex ids fit in the int32 fields of records.

    Raises:
        DataError: there are more than 2^31 vertices.
    """
    if num_nodes > 1 << 31:
        raise DataError(
            Problem(
                name,
                f"{num_nodes} vertices",
                "must be 2^31 at most for clusters",
                "renumber the ids without gaps, or choose partitioner=hdrf or dbh",
            )
        )


def empty_stream(name: str) -> Problem:
    """The problem of a stream without edges."""
    return Problem(name, "0 edges", "a stream needs edges", "choose another file")
