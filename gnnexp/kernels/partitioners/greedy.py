"""Greedy vertex-cuts, PowerGraph's and Libra's: an edge goes to a part where its ends already are."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.graph.stream import ask_for_ends
from gnnexp.kernels.partitioners.parts import held_or_least, put


@compiled(nogil=True)
def place_edges(
    sources: np.ndarray, destinations: np.ndarray, degrees: np.ndarray, replicas: np.ndarray, loads: np.ndarray,
    unassigned: bool, parts: np.ndarray,
) -> None:
    """Write the part of every edge into `parts` `[n]`: always the least loaded candidate, the lowest on ties.

    Candidates are the parts that hold both ends; where there are none, those of the end that goes first; where it is in
    none, those of the other end; else all parts. First goes the end with more edges that are still to be placed
    (PowerGraph), or the end with fewer edges (Libra); the destination on ties. The parts of a self loop's only end are
    those that hold both.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        degrees: `[V]` edges of every vertex, in and out.
        replicas: `[V, words]` uint64 sets of parts, changed.
        loads: `[p]` int64, changed.
        unassigned: PowerGraph's rule: `degrees` are of edges that are not placed yet, and counted down here.
        parts: `[n]`.
    """
    words, held, least = replicas.shape[1], replicas.reshape(-1), np.argmin(loads)
    for edge in range(sources.size):
        ask_for_ends(sources, destinations, edge, degrees, held, words)
        src, dst = np.int64(sources[edge]), np.int64(destinations[edge])
        at_src, at_dst = words * src, words * dst
        source_first = degrees[src] > degrees[dst] if unassigned else degrees[src] < degrees[dst]
        first, second = (at_src, at_dst) if source_first else (at_dst, at_src)
        part = held_or_least(held, first, second, words, loads, least)
        parts[edge] = part
        if unassigned:
            degrees[src] -= 1
            degrees[dst] -= 1
        least = put(held, at_src, at_dst, part, loads, least)


def warm_up() -> None:
    """Compile it for common types."""
    ids, replicas = np.zeros(1, np.int32), np.zeros((1, 1), np.uint64)
    place_edges(ids, ids, ids.copy(), replicas, np.zeros(1, np.int64), True, np.empty(1, np.int16))
