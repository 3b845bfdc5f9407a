"""A stream of edges: what a partitioner needs of a graph that does not fit in memory (SDT-GNN, section III-A).

A pass yields chunks of bounded size; how often a stream is passed over is up to who reads it.
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

# 16 MiB of int32 pairs: as long as it is read at the disk's speed, larger chunks gain nothing.
CHUNK_EDGES = 1 << 21
StreamOrder = Literal["stored", "shuffled"]


class EdgeChunk(NamedTuple):
    """A few edges.

    Attributes:
        sources: `[n]` int32 or int64.
        destinations: `[n]`.
        positions: where they stand in what the stream was made from: a slice of n, or `[n]` int64.
    """

    sources: np.ndarray
    destinations: np.ndarray
    positions: slice | np.ndarray


class EdgeStream(ABC):
    """Directed edges, chunk by chunk; an undirected edge is two of them. Every pass yields the same ones in order.

    Attributes:
        name: the first word of messages.
    """

    name: str

    @abstractmethod
    def chunks(self) -> Iterator[EdgeChunk]:
        """One pass; the arrays of a chunk hold until the next one is asked for, which may lie in the same memory.

        Raises:
            DataError: what is wrong with the data, where it is met.
        """

    @property
    @abstractmethod
    def num_nodes(self) -> int:
        """V; ids are below it. May take a pass."""

    @property
    @abstractmethod
    def num_edges(self) -> int:
        """Edges of a pass. May take one."""

    def sequential(self) -> EdgeStream:
        """The same edges in the order that is cheapest to pass over."""
        return self

    @cached_property
    def degrees(self) -> np.ndarray:
        """`[V]` int32 edges at every vertex, in and out together (a self loop is two); takes a pass.

        Raises:
            DataError: a vertex has 2^31 edges or more.
        """
        found = np.zeros(self.num_nodes, np.int32)
        for chunk in self.sequential().chunks():
            add_degrees(chunk.sources, chunk.destinations, found)
        check_degrees(found, self.name)
        return found


class GraphStream(EdgeStream):
    """The edges of a graph, which may be memory-mapped.

    Args:
        graph: any.
        order: `stored`, by destination, with nothing held but a chunk; or `shuffled`, in a random permutation, which is
            held with the edges in that order (16 bytes per edge; 20 while it is made).
        seed: of the permutation.
        chunk_edges: of a chunk.
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
        """In stored order."""
        return GraphStream(self.graph, chunk_edges=self._chunk)

    @cached_property
    def _shuffled(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sources, destinations and positions `[E]`: kept, so that later passes do not go through memory at random."""
        positions = permutation(stream(self._seed, Purpose.PARTITION, 1), self.num_edges)
        indptr, indices = self.graph.indptr.numpy(), self.graph.indices.numpy()
        return indices[positions], edge_destinations(indptr, indices)[positions], positions

    def chunks(self) -> Iterator[EdgeChunk]:
        """One pass; positions are canonical."""
        indptr, indices = self.graph.indptr.numpy(), self.graph.indices.numpy()
        # One for all chunks: with one for each, how many the allocator holds at a time depends on how many there are.
        buffer = np.empty(min(self._chunk, self.num_edges) if self._order == "stored" else 0, indices.dtype)
        for start in range(0, self.num_edges, self._chunk):
            stop = min(start + self._chunk, self.num_edges)
            if self._order == "stored":
                destinations = buffer[: stop - start]
                expand_destinations(indptr, start, destinations)
                yield EdgeChunk(indices[start:stop], destinations, slice(start, stop))
            else:
                yield EdgeChunk(*(array[start:stop] for array in self._shuffled))


class Symmetrized(EdgeStream):
    """Every chunk followed by its reverse: both directions of edges of which each is there once.

    Args:
        edges: a stream that has them once; a self loop is not doubled. Its chunks decide the order.
    """

    def __init__(self, edges: EdgeStream) -> None:
        self.name, self._edges = edges.name, edges

    @property
    def num_nodes(self) -> int:
        """V."""
        return self._edges.num_nodes

    @cached_property
    def num_edges(self) -> int:
        """Twice as many, self loops once; takes a pass."""
        return sum(chunk.sources.size for chunk in self.chunks())

    def chunks(self) -> Iterator[EdgeChunk]:
        """One pass; positions count what is yielded."""
        position = 0
        for chunk in self._edges.chunks():
            proper = chunk.sources != chunk.destinations
            back = (chunk.destinations, chunk.sources) if proper.all() else (
                chunk.destinations[proper], chunk.sources[proper])
            for sources, destinations in ((chunk.sources, chunk.destinations), back):
                yield EdgeChunk(sources, destinations, slice(position, position + sources.size))
                position += sources.size


class PairStream(EdgeStream):
    """Pairs that can be read anywhere: a subclass says how.

    Args:
        num_edges: E.
        num_nodes: V; None = the largest id + 1, found by a pass.
        name: of the file.
        chunk_edges: of a chunk.

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
        # Without any id that is right a pass has still to say which one is wrong.
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
        pairs: `[E, 2]` whole numbers: source, destination.
        num_nodes: V; None = the largest id + 1, found by a pass.
        name: of what is streamed.
        chunk_edges: of a chunk.
    """

    def __init__(
        self, pairs: np.ndarray, num_nodes: int | None = None, name: str = "edges", chunk_edges: int = CHUNK_EDGES
    ) -> None:
        assert pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu"
        super().__init__(pairs.shape[0], num_nodes, name, chunk_edges)
        self._pairs = pairs

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Copies of the columns."""
        sources, destinations = self._pairs[start:stop].T
        return as_ids(sources), as_ids(destinations)


def as_ids(column: np.ndarray) -> np.ndarray:
    """As int32 where that holds all values of the dtype, else as int64; contiguous."""
    small = column.dtype.itemsize < 4 or column.dtype.newbyteorder("=") == np.int32
    return np.ascontiguousarray(column, np.int32 if small else np.int64)


def check_ids(chunk: EdgeChunk, num_nodes: int, name: str) -> None:
    """Kernels trust ids.

    Raises:
        DataError: the first edge whose ids are negative or too large.
    """
    ends = (chunk.sources, chunk.destinations)
    if not chunk.sources.size or (min(e.min() for e in ends) >= 0 and max(e.max() for e in ends) < num_nodes):
        return
    wrong = (np.minimum(*ends) < 0) | (np.maximum(*ends) >= num_nodes)
    first = int(np.flatnonzero(wrong)[0])
    places = chunk.positions
    position = places.start + first if isinstance(places, slice) else int(places[first])
    raise DataError(Problem(f"{name}, edge {position}", f"{ends[0][first]} -> {ends[1][first]}",
                            f"ids must be 0 to {num_nodes - 1}", "renumber the ids, or set dataset.num_nodes"))


def check_degrees(degrees: np.ndarray, name: str) -> None:
    """Degrees `[V]` int32 that were counted without looking.

    Raises:
        DataError: one has left the type.
    """
    if degrees.size and degrees.min() < 0:
        raise DataError(Problem(name, f"vertex {int(degrees.argmin())}", "must have fewer than 2^31 edges",
                                "merge parallel edges before streaming them"))


def check_record_ids(num_nodes: int, name: str) -> None:
    """What keeps ids of vertices in int32 beside each other, to save memory, cannot take more.

    Raises:
        DataError: there are 2^31 vertices or more.
    """
    if num_nodes > 1 << 31:
        raise DataError(Problem(name, f"{num_nodes} vertices", "must be 2^31 at most for clusters", "renumber the ids "
                                "without gaps, or choose partitioner=hdrf or dbh"))


def empty_stream(name: str) -> Problem:
    """That there is nothing to partition."""
    return Problem(name, "0 edges", "a stream needs edges", "choose another file")
