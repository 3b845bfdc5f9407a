"""Cut a graph into ranges of destinations: find the bounds, and number the sources of each range from 0."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled


@compiled(nogil=True)
def cut_by_cost(
    indptr: np.ndarray, sources: np.ndarray, num_src: int, per_dst: int, per_edge: int, per_src: int, budget: int
) -> tuple[np.ndarray, int]:
    """Bounds of ranges of destinations, each as large as `budget` allows; a range of one destination may exceed it.

    Args:
        indptr: `[D + 1]` int64 bounds of each destination's edges.
        sources: `[E]` positions below `num_src`; destination i is source i.
        num_src: S, the number of sources.
        per_dst, per_edge, per_src: cost of one destination, one edge and one distinct source of a range.
        budget: largest cost of a range.

    Returns:
        `(bounds [n + 1] int64, largest cost of a single destination)`.
    """
    num_dst = indptr.size - 1
    seen = np.full(num_src, -1, np.int64)
    bounds, dearest, cost = [0], 0, 0
    number = 0
    for dst in range(num_dst):
        added = per_dst + per_edge * (indptr[dst + 1] - indptr[dst])
        alone = added
        fresh = 0
        if seen[dst] != number:
            fresh += 1
            seen[dst] = number
        for edge in range(indptr[dst], indptr[dst + 1]):
            if seen[sources[edge]] != number:
                fresh += 1
                seen[sources[edge]] = number
        alone += per_src * min(num_src, 1 + indptr[dst + 1] - indptr[dst])
        dearest = max(dearest, alone)
        if cost > 0 and cost + added + per_src * fresh > budget:
            bounds.append(dst)
            number += 1
            cost = added
            # This destination begins a new range: count all of its sources again for that range.
            seen[dst] = number
            cost += per_src
            for edge in range(indptr[dst], indptr[dst + 1]):
                if seen[sources[edge]] != number:
                    cost += per_src
                    seen[sources[edge]] = number
        else:
            cost += added + per_src * fresh
    bounds.append(num_dst)
    return np.array(bounds, np.int64), dearest


@compiled(nogil=True)
def compact(
    sources: np.ndarray, first_dst: int, num_dst: int, place: np.ndarray, renumbered: np.ndarray, rows: np.ndarray
) -> int:
    """Number the sources of a range: its destinations first, then the others in order of first appearance.

    Args:
        sources: `[E]` positions in the whole block.
        first_dst, num_dst: first destination of the range, and their number; destination i is source i of the block.
        place: `[S]` int32 working memory, all -1 before and after.
        renumbered: `[E]` int32, filled with the new number of each edge's source.
        rows: filled with the position in the whole block of each numbered source; length `num_dst + E` or S suffices.

    Returns:
        Number of distinct sources.
    """
    count = 0
    for dst in range(first_dst, first_dst + num_dst):
        place[dst] = count
        rows[count] = dst
        count += 1
    for edge in range(sources.size):
        source = sources[edge]
        if place[source] < 0:
            place[source] = count
            rows[count] = source
            count += 1
        renumbered[edge] = place[source]
    for row in range(count):
        place[rows[row]] = -1
    return count
