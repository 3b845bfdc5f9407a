"""Edges of a stream on their way to the parts that hold them."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled


@compiled(inline="always")
def _holders(source: int, destination: int, edge_part: int, mode: int) -> tuple[int, int]:
    """The one or two parts that hold an edge, -1 for none; see `count_held`."""
    if mode == 2:
        return edge_part, -1
    if mode == 1:
        return (destination, -1) if source == destination else (-1, -1)
    return destination, (source if source != destination else -1)


@compiled(nogil=True)
def count_held(
    sources: np.ndarray, destinations: np.ndarray, owners: np.ndarray, edge_parts: np.ndarray, mode: int,
    counts: np.ndarray,
) -> None:
    """Add how many edges each part holds to `counts` `[p]` int64.

    Args:
        sources: `[n]`.
        destinations: `[n]`.
        owners: `[V]` part of each vertex.
        edge_parts: `[n]` part of each edge, empty unless `mode` is 2.
        mode: 0: the parts of both ends hold an edge; 1: one part does that owns both ends; 2: the edge's own part.
        counts: `[p]`.
    """
    for edge in range(sources.size):
        part = np.int64(edge_parts[edge]) if mode == 2 else np.int64(-1)
        for holder in _holders(np.int64(owners[sources[edge]]), np.int64(owners[destinations[edge]]), part, mode):
            if holder >= 0:
                counts[holder] += 1


@compiled(nogil=True)
def sort_by_part(
    sources: np.ndarray, destinations: np.ndarray, owners: np.ndarray, edge_parts: np.ndarray, mode: int,
    starts: np.ndarray, order: np.ndarray,
) -> None:
    """Write the edges that each part holds one after the other into `order`, as they come.

    Args:
        sources: `[n]`.
        destinations: `[n]`.
        owners: `[V]`.
        edge_parts: `[n]` or empty.
        mode: see `count_held`.
        starts: `[p]` int64 where each part begins in `order`; afterwards where it ends.
        order: `[m]` int64, from 0 to n - 1, m of `count_held`.
    """
    for edge in range(sources.size):
        part = np.int64(edge_parts[edge]) if mode == 2 else np.int64(-1)
        for holder in _holders(np.int64(owners[sources[edge]]), np.int64(owners[destinations[edge]]), part, mode):
            if holder >= 0:
                order[starts[holder]] = edge
                starts[holder] += 1


def warm_up() -> None:
    """Compile them for common types."""
    ids, owners = np.zeros(1, np.int32), np.zeros(1, np.int16)
    for parts in (np.empty(0, np.int16), np.zeros(1, np.int16)):
        count_held(ids, ids, owners, parts, 2 * parts.size, np.zeros(1, np.int64))
        sort_by_part(ids, ids, owners, parts, 2 * parts.size, np.zeros(1, np.int64), np.zeros(1, np.int64))
