"""Kernels that process one chunk of a stream of edges."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.prefetch import prefetch

# The vertices of an edge are prefetched this many edges ahead: a random DRAM access takes about as long as 30 edges.
AHEAD = 32


@compiled(inline="always")
def ask_for_ends(
    sources: np.ndarray, destinations: np.ndarray, edge: int, values: np.ndarray, held: np.ndarray, words: int
) -> None:
    """Prefetch `values` `[V]` and `held` `[V words]` of both ends of the edge `AHEAD` edges later."""
    ahead = min(edge + AHEAD, sources.size - 1)
    for vertex in (np.int64(sources[ahead]), np.int64(destinations[ahead])):
        prefetch(values, vertex)
        prefetch(held, words * vertex)


@compiled(inline="always")
def ask_for_clusters(
    sources: np.ndarray,
    destinations: np.ndarray,
    edge: int,
    records: np.ndarray,
    fields: int,
    column: int,
    volumes: np.ndarray,
) -> None:
    """Prefetch `records` `[fields V]` of both ends of a later edge, then `volumes` of the clusters in these records.

    The clusters are in `column` of the records. Records are prefetched 2 `AHEAD` edges ahead, volumes `AHEAD` edges.
    """
    last = sources.size - 1
    far, near = min(edge + 2 * AHEAD, last), min(edge + AHEAD, last)
    for vertex in (np.int64(sources[far]), np.int64(destinations[far])):
        prefetch(records, fields * vertex)
    for vertex in (np.int64(sources[near]), np.int64(destinations[near])):
        prefetch(volumes, records[fields * vertex + column])


@compiled(nogil=True)
def add_degrees(sources: np.ndarray, destinations: np.ndarray, degrees: np.ndarray) -> None:
    """Count every edge at both of its ends; `degrees` `[V]`."""
    last = sources.size - 1
    for edge in range(sources.size):
        ahead = min(edge + AHEAD, last)
        prefetch(degrees, sources[ahead])
        prefetch(degrees, destinations[ahead])
        degrees[sources[edge]] += 1
        degrees[destinations[edge]] += 1


@compiled(nogil=True)
def expand_destinations(indptr: np.ndarray, start: int, destinations: np.ndarray) -> None:
    """Write the destinations of edges `start`, `start + 1`, ... of a CSC graph into `destinations` `[n]`."""
    dst = np.searchsorted(indptr, start, side="right") - 1
    for position in range(destinations.size):
        while indptr[dst + 1] <= start + position:
            dst += 1
        destinations[position] = dst


@compiled(nogil=True)
def largest_id(sources: np.ndarray, destinations: np.ndarray) -> int:
    """The largest vertex id among the ends of all edges, or -1 without edges."""
    largest = np.int64(-1)
    for edge in range(sources.size):
        largest = max(largest, np.int64(sources[edge]), np.int64(destinations[edge]))
    return int(largest)


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    ids, indptr = np.zeros(2, np.int32), np.array([0, 2])
    add_degrees(ids, ids, np.zeros(1, np.int32))
    expand_destinations(indptr, 0, ids)
    largest_id(ids, ids)
