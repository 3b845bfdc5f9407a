"""Small passes over the edges of a CSC graph."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled


@compiled(nogil=True)
def edge_destinations(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The destination `[E]` of each edge, in the dtype of `indices`."""
    destinations = np.empty_like(indices)
    for dst in range(indptr.size - 1):
        for edge in range(indptr[dst], indptr[dst + 1]):
            destinations[edge] = dst
    return destinations


@compiled(nogil=True)
def count_sources(indices: np.ndarray, num_nodes: int) -> np.ndarray:
    """Number `[V]` int64 of out-edges of every vertex; needs no temporaries, unlike `np.bincount`."""
    counts = np.zeros(num_nodes, np.int64)
    for edge in range(indices.size):
        counts[indices[edge]] += 1
    return counts


@compiled(nogil=True)
def mark_sources(indptr: np.ndarray, indices: np.ndarray, ids: np.ndarray, marks: np.ndarray) -> None:
    """Set `marks` `[V]` bool to True for every source of an in-edge of the vertices `ids` `[n]`."""
    for place in range(ids.size):
        for edge in range(indptr[ids[place]], indptr[ids[place] + 1]):
            marks[indices[edge]] = True


@compiled(nogil=True)
def _has_parallel(indptr: np.ndarray, indices: np.ndarray, types: np.ndarray) -> bool:
    typed = types.size > 0
    for dst in range(indptr.size - 1):
        for edge in range(indptr[dst] + 1, indptr[dst + 1]):
            if indices[edge] == indices[edge - 1] and (not typed or types[edge] == types[edge - 1]):
                return True
    return False


@compiled(nogil=True)
def _occurrences(indptr: np.ndarray, indices: np.ndarray, types: np.ndarray) -> np.ndarray:
    typed = types.size > 0
    counts = np.zeros(indices.size, np.int32)
    for dst in range(indptr.size - 1):
        for edge in range(indptr[dst] + 1, indptr[dst + 1]):
            if indices[edge] == indices[edge - 1] and (not typed or types[edge] == types[edge - 1]):
                counts[edge] = counts[edge - 1] + 1
    return counts


def count_parallel(indptr: np.ndarray, indices: np.ndarray, types: np.ndarray | None) -> np.ndarray:
    """0-based index `[E]` int32 of each edge among its parallel edges; empty if the graph has no parallel edges."""
    kinds = np.empty(0, np.int32) if types is None else types
    return _occurrences(indptr, indices, kinds) if has_parallel(indptr, indices, types) else np.empty(0, np.int32)


def has_parallel(indptr: np.ndarray, indices: np.ndarray, types: np.ndarray | None) -> bool:
    """Whether two edges have the same source, destination and type."""
    return bool(_has_parallel(indptr, indices, np.empty(0, np.int32) if types is None else types))


@compiled(nogil=True)
def count_alike(indptr: np.ndarray, types: np.ndarray) -> np.ndarray:
    """For each edge, the number `[E]` int32 of edges with the same destination and type."""
    alike = np.empty(types.size, np.int32)
    counts = np.zeros(types.max() + 1 if types.size else 0, np.int32)
    for dst in range(indptr.size - 1):
        for edge in range(indptr[dst], indptr[dst + 1]):
            counts[types[edge]] += 1
        for edge in range(indptr[dst], indptr[dst + 1]):
            alike[edge] = counts[types[edge]]
        for edge in range(indptr[dst], indptr[dst + 1]):
            counts[types[edge]] = 0
    return alike


@compiled(nogil=True)
def sum_over_in_edges(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For every vertex, the sum `[V]` float64 of `values` `[V]` over the sources of its in-edges."""
    sums = np.zeros(indptr.size - 1, np.float64)
    for dst in range(sums.size):
        total = 0.0
        for edge in range(indptr[dst], indptr[dst + 1]):
            total += values[indices[edge]]
        sums[dst] = total
    return sums
