"""PowerGraph's greedy rule, with its cases."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.parts import held_or_least, hold, next_least
from gnnexp.kernels.prefetch import prefetch
from gnnexp.kernels.stream import AHEAD


@compiled(nogil=True)
def place_edges(
    sources: np.ndarray, destinations: np.ndarray, unassigned: np.ndarray, replicas: np.ndarray, loads: np.ndarray,
    parts: np.ndarray,
) -> None:
    """Write the part of every edge into `parts` `[n]`: always the least loaded candidate, the lowest on ties.

    Candidates are the parts that hold both ends; where there are none, those of the end with more edges that are still
    to be placed (the destination on ties), or of the only end that is in any; else all parts.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        unassigned: `[V]` edges of every vertex that are not placed yet, these included; counted down.
        replicas: `[V, words]` uint64 sets of parts, changed.
        loads: `[p]` int64, changed.
        parts: `[n]`.
    """
    words, held = replicas.shape[1], replicas.reshape(-1)
    last, least = sources.size - 1, np.argmin(loads)
    for edge in range(sources.size):
        ahead = min(edge + AHEAD, last)
        for vertex in (np.int64(sources[ahead]), np.int64(destinations[ahead])):
            prefetch(unassigned, vertex)
            prefetch(held, words * vertex)
        src, dst = np.int64(sources[edge]), np.int64(destinations[edge])
        at_src, at_dst = words * src, words * dst
        first, second = (at_src, at_dst) if unassigned[src] > unassigned[dst] else (at_dst, at_src)
        part = held_or_least(held, first, second, words, loads, least)
        parts[edge] = part
        unassigned[src] -= 1
        unassigned[dst] -= 1
        hold(held, at_src, part)
        hold(held, at_dst, part)
        loads[part] += 1
        if part == least:
            least = next_least(loads, least)


def warm_up() -> None:
    """Compile it for common types."""
    ids, replicas = np.zeros(1, np.int32), np.zeros((1, 1), np.uint64)
    place_edges(ids, ids, ids.copy(), replicas, np.zeros(1, np.int64), np.empty(1, np.int16))
