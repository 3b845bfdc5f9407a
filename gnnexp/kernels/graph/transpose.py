"""Transpose a CSC structure by counting sort: O(E + S), and stable, so the same input gives the same order."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled


@compiled(nogil=True)
def transpose_csc(indptr: np.ndarray, sources: np.ndarray, num_src: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges grouped by source: `(indptr [S + 1] int64, destinations [E] int32, edges [E] int64)`.

    Edges with the same source stay in edge order.
    """
    starts = np.zeros(num_src + 1, np.int64)
    for edge in range(sources.size):
        starts[np.int64(sources[edge]) + 1] += 1
    for src in range(num_src):
        starts[src + 1] += starts[src]
    cursor = starts[:-1].copy()
    destinations = np.empty(sources.size, np.int32)
    edges = np.empty(sources.size, np.int64)
    for dst in range(indptr.size - 1):
        for edge in range(indptr[dst], indptr[dst + 1]):
            src = np.int64(sources[edge])
            slot = cursor[src]
            cursor[src] = slot + 1
            destinations[slot] = dst
            edges[slot] = edge
    return starts, destinations, edges
