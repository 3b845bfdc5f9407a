"""Counting what sampled batches contain, for one thread."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.prefetch import prefetch

_U = np.uint64
_1, _AHEAD = _U(1), _U(64)


@compiled(nogil=True)
def tally_vertices(vertices: np.ndarray, num_dst: np.ndarray, destinations: np.ndarray, inputs: np.ndarray) -> None:
    """Count the vertices of a batch.

    Args:
        vertices: `[S]` input vertices; the destinations of every hop are a prefix of them.
        num_dst: `[L]` how long these prefixes are.
        destinations: `[V]` int64, +1 per hop in which a vertex is a destination.
        inputs: `[V]` int64, +1.
    """
    last = _U(vertices.size) - _1
    for i in range(_U(vertices.size)):
        prefetch(inputs, vertices[min(i + _AHEAD, last)])
        inputs[_U(vertices[i])] += 1
    for hop in range(num_dst.size):
        for i in range(_U(num_dst[hop])):
            destinations[_U(vertices[i])] += 1


@compiled(nogil=True)
def tally_positions(positions: np.ndarray, edges: np.ndarray) -> None:
    """Count edges by position `[n]`; -1 (an added self loop) is none of the graph's."""
    last = _U(positions.size) - _1
    for i in range(_U(positions.size)):
        prefetch(edges, max(positions[min(i + _AHEAD, last)], 0))
        if positions[i] >= 0:
            edges[_U(positions[i])] += 1


@compiled(nogil=True)
def tally_pairs(
    block_indptr: np.ndarray, sources: np.ndarray, vertices: np.ndarray, loops: int,
    indptr: np.ndarray, indices: np.ndarray, edges: np.ndarray,
) -> None:
    """Count edges of a block by their ends: for samplers that do not tell positions.

    Parallel edges count as the first of them; pairs that are no edge of the graph (a random walk's) are not counted.

    Args:
        block_indptr: `[D + 1]` of the block, whose destinations are `vertices[:D]`.
        sources: `[E]` positions in `vertices`.
        vertices: `[S]` ids.
        loops: 1 if the last edge of every destination is an added self loop.
        indptr: of the graph.
        indices: of the graph, ascending for every destination.
        edges: counts.
    """
    for dst in range(block_indptr.size - 1):
        first, end = indptr[vertices[dst]], indptr[vertices[dst] + 1]
        for edge in range(block_indptr[dst], block_indptr[dst + 1] - loops):
            wanted, low, high = vertices[sources[edge]], first, end
            while low < high:
                middle = (low + high) // 2
                if indices[middle] < wanted:
                    low = middle + 1
                else:
                    high = middle
            if low < end and indices[low] == wanted:
                edges[low] += 1


@compiled(nogil=True)
def movement(now: np.ndarray, before: np.ndarray, epochs: int) -> float:
    """Relative L1 distance of mean counts after `epochs` epochs from those one epoch `before`, which become `now`."""
    moved, total = 0.0, 0.0
    for i in range(now.size):
        mean = now[i] / epochs
        moved += abs(mean - before[i] / (epochs - 1))
        total += mean
        before[i] = now[i]
    return moved / total if total else 0.0


def warm_up() -> None:
    """Compile all of it for common types."""
    none, longs, counts = np.empty(0, np.int32), np.zeros(2, np.int64), np.zeros(1, np.int32)
    tally_vertices(none, longs[:0], longs, longs)
    tally_positions(longs[:0], counts)
    tally_pairs(longs[:1], none, none, 0, longs, none, counts)
    movement(longs, longs.copy(), 2)
    movement(counts, counts.copy(), 2)
