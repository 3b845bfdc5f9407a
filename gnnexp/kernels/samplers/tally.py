"""Count the vertices and edges of sampled batches, for one thread."""

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
        num_dst: `[L]` number of destinations of each hop.
        destinations: `[V]` int64, increased by 1 per hop in which the vertex is a destination.
        inputs: `[V]` int64, increased by 1 for each input vertex.
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
    """Increase `edges` by 1 at each of the `positions` `[n]`; position -1, an added self loop, is not counted."""
    last = _U(positions.size) - _1
    for i in range(_U(positions.size)):
        prefetch(edges, max(positions[min(i + _AHEAD, last)], 0))
        if positions[i] >= 0:
            edges[_U(positions[i])] += 1


@compiled(nogil=True)
def tally_pairs(
    block_indptr: np.ndarray,
    sources: np.ndarray,
    vertices: np.ndarray,
    loops: int,
    indptr: np.ndarray,
    indices: np.ndarray,
    edges: np.ndarray,
) -> None:
    """Count edges of a block by their ends, for samplers that give no positions of edges.

    Each of several parallel edges counts for the first one. Pairs without an edge in the graph, such as those of a
    random walk, are not counted.

    Args:
        block_indptr: `[D + 1]` bounds of each destination's edges in the block; destinations are `vertices[:D]`.
        sources: `[E]` positions in `vertices`.
        vertices: `[S]` ids of the block's vertices.
        loops: 1 if the last edge of every destination is an added self loop, else 0.
        indptr: bounds of the edges of each vertex in the graph.
        indices: sources of the graph's edges, ascending for every destination.
        edges: counts per edge of the graph, increased.
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
    """Relative L1 distance between mean counts per epoch: `now` after `epochs` epochs, `before` one epoch earlier.

    The counts `now` are then copied to `before`.
    """
    moved, total = 0.0, 0.0
    for i in range(now.size):
        mean = now[i] / epochs
        moved += abs(mean - before[i] / (epochs - 1))
        total += mean
        before[i] = now[i]
    return moved / total if total else 0.0


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    none, longs, counts = np.empty(0, np.int32), np.zeros(2, np.int64), np.zeros(1, np.int32)
    tally_vertices(none, longs[:0], longs, longs)
    tally_positions(longs[:0], counts)
    tally_pairs(longs[:1], none, none, 0, longs, none, counts)
    movement(longs, longs.copy(), 2)
    movement(counts, counts.copy(), 2)
