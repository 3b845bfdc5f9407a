"""Libra's rule: an edge goes to a part where its ends already are."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.parts import held_or_least, hold, next_least
from gnnexp.kernels.prefetch import prefetch
from gnnexp.kernels.stream import AHEAD


@compiled(nogil=True)
def place_edges(
    sources: np.ndarray, destinations: np.ndarray, degrees: np.ndarray, replicas: np.ndarray, loads: np.ndarray,
    parts: np.ndarray,
) -> None:
    """Write the part of every edge into `parts` `[n]`.

    Candidates are the parts that hold both ends; where there are none, those of the end with fewer edges (the
    destination on ties); where it is in none, those of the other end; else all parts. The candidate with the fewest
    edges by then takes the edge, the lowest on ties. The parts of a self loop's only end are those that hold both.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        degrees: `[V]` edges of every vertex, in and out.
        replicas: `[V, words]` uint64 sets of parts, changed.
        loads: `[p]` int64, changed.
        parts: `[n]`.
    """
    words, held = replicas.shape[1], replicas.reshape(-1)
    last, least = sources.size - 1, np.argmin(loads)
    for edge in range(sources.size):
        ahead = min(edge + AHEAD, last)
        for vertex in (np.int64(sources[ahead]), np.int64(destinations[ahead])):
            prefetch(degrees, vertex)
            prefetch(held, words * vertex)
        src, dst = np.int64(sources[edge]), np.int64(destinations[edge])
        at_src, at_dst = words * src, words * dst
        first, second = (at_src, at_dst) if degrees[src] < degrees[dst] else (at_dst, at_src)
        part = held_or_least(held, first, second, words, loads, least)
        parts[edge] = part
        hold(held, at_src, part)
        hold(held, at_dst, part)
        loads[part] += 1
        if part == least:
            least = next_least(loads, least)


def warm_up() -> None:
    """Compile it for common types."""
    ids, replicas = np.zeros(1, np.int32), np.zeros((1, 1), np.uint64)
    place_edges(ids, ids, ids, replicas, np.zeros(1, np.int64), np.empty(1, np.int16))
