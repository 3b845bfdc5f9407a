"""The greedy vertex-cuts of PowerGraph and Libra: an edge goes to a part that already holds its ends."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.graph.stream import ask_for_ends
from gnnexp.kernels.partitioners.parts import held_or_least, place_edge


@compiled(nogil=True)
def place_by_load(
    sources: np.ndarray,
    destinations: np.ndarray,
    degrees: np.ndarray,
    replicas: np.ndarray,
    loads: np.ndarray,
    unassigned: bool,
    parts: np.ndarray,
) -> None:
    """Write the part of every edge to `parts` `[n]`: the least loaded candidate, the lowest part on ties.

    Candidates are the parts that hold both ends. If there are none, candidates are the parts that hold the first end,
    then those that hold the second end, then all parts. The first end is the one with more edges still to be placed
    (PowerGraph), or the one with fewer edges (Libra). On ties the destination is first. A self loop has one vertex as
    both ends.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        degrees: `[V]` edges of every vertex, in and out.
        replicas: `[V, words]` uint64, set of the parts that hold each vertex, changed.
        loads: `[p]` int64 edges of every part, changed.
        unassigned: whether to use PowerGraph's rule; `degrees` then count edges not placed yet, and are decreased.
        parts: `[n]`, filled.
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
        least = place_edge(held, at_src, at_dst, part, loads, least)


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    ids, replicas = np.zeros(1, np.int32), np.zeros((1, 1), np.uint64)
    place_by_load(ids, ids, ids.copy(), replicas, np.zeros(1, np.int64), True, np.empty(1, np.int16))
