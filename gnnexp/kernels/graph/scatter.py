"""Count and sort the edges of one piece of an edge stream by the parts that hold them."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled


@compiled(inline="always")
def _holders(source: int, destination: int, edge_part: int, mode: int) -> tuple[int, int]:
    """The parts that hold an edge, at most two, -1 in place of a missing one; see `count_held`."""
    if mode == 2:
        return edge_part, -1
    if mode == 1:
        return (destination, -1) if source == destination else (-1, -1)
    return destination, (source if source != destination else -1)


@compiled(nogil=True)
def count_held(
    sources: np.ndarray,
    destinations: np.ndarray,
    owners: np.ndarray,
    edge_parts: np.ndarray,
    mode: int,
    counts: np.ndarray,
) -> None:
    """Add the number of edges that each part holds to `counts` `[p]` int64.

    Args:
        sources: `[n]` source of each edge.
        destinations: `[n]` destination of each edge.
        owners: `[V]` part of each vertex.
        edge_parts: `[n]` part of each edge, empty unless `mode` is 2.
        mode: 0: the parts of both ends hold an edge; 1: a part holds an edge if it owns both ends; 2: the part in
            `edge_parts` holds it.
        counts: `[p]` int64, increased.
    """
    for edge in range(sources.size):
        part = np.int64(edge_parts[edge]) if mode == 2 else np.int64(-1)
        for holder in _holders(np.int64(owners[sources[edge]]), np.int64(owners[destinations[edge]]), part, mode):
            if holder >= 0:
                counts[holder] += 1


@compiled(nogil=True)
def sort_by_part(
    sources: np.ndarray,
    destinations: np.ndarray,
    owners: np.ndarray,
    edge_parts: np.ndarray,
    mode: int,
    starts: np.ndarray,
    order: np.ndarray,
) -> None:
    """Sort the edges by the part that holds them into `order`, in the order of the stream within a part.

    Args:
        sources: `[n]` source of each edge.
        destinations: `[n]` destination of each edge.
        owners: `[V]` part of each vertex.
        edge_parts: `[n]` part of each edge, empty unless `mode` is 2.
        mode: see `count_held`.
        starts: `[p]` int64, start of each part in `order`; after the call the end of each part.
        order: `[m]` int64, filled with positions of edges in this piece. m is the sum of `counts` of
            `count_held`: in mode 0, an edge between two parts is there twice.
    """
    for edge in range(sources.size):
        part = np.int64(edge_parts[edge]) if mode == 2 else np.int64(-1)
        for holder in _holders(np.int64(owners[sources[edge]]), np.int64(owners[destinations[edge]]), part, mode):
            if holder >= 0:
                order[starts[holder]] = edge
                starts[holder] += 1


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    ids, owners = np.zeros(1, np.int32), np.zeros(1, np.int16)
    for parts in (np.empty(0, np.int16), np.zeros(1, np.int16)):
        count_held(ids, ids, owners, parts, 2 * parts.size, np.zeros(1, np.int64))
        sort_by_part(ids, ids, owners, parts, 2 * parts.size, np.zeros(1, np.int64), np.zeros(1, np.int64))
