"""Which copy of a vertex is its master in a vertex-cut: the one in the part that has most of its edges."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled


@compiled(nogil=True)
def _count_edges(
    indptr: np.ndarray, indices: np.ndarray, edge_owner: np.ndarray, part: int, counts: np.ndarray
) -> None:
    """Edges of `part` at every vertex, in and out; a self loop is one edge, parallel edges are several."""
    counts[:] = 0
    for dst in range(indptr.size - 1):
        incoming = 0
        for edge in range(indptr[dst], indptr[dst + 1]):
            if edge_owner[edge] == part:
                incoming += 1
                src = np.int64(indices[edge])
                if src != dst:
                    counts[src] += 1
        counts[dst] += incoming


@compiled(nogil=True)
def _keep_most(counts: np.ndarray, part: int, most: np.ndarray, master: np.ndarray) -> None:
    for vertex in range(counts.size):
        # Parts come in ascending order, so that the lowest one stays on ties.
        if counts[vertex] > most[vertex]:
            most[vertex] = counts[vertex]
            master[vertex] = part


@compiled(nogil=True)
def _place_isolated(most: np.ndarray, num_parts: int, master: np.ndarray) -> None:
    sizes = np.zeros(num_parts, np.int64)
    for vertex in range(most.size):
        if most[vertex] > 0:
            sizes[master[vertex]] += 1
    for vertex in range(most.size):
        if most[vertex] == 0:
            part = np.argmin(sizes)
            master[vertex] = part
            sizes[part] += 1


def masters(indptr: np.ndarray, indices: np.ndarray, edge_owner: np.ndarray, num_parts: int) -> np.ndarray:
    """The part of every vertex's master, `[V]` in the dtype of `edge_owner`.

    A vertex belongs to the part that owns most of its edges, in- and out-edges together (a self loop counts once), to
    the lowest such part on ties. Vertices without edges follow in the order of their ids, each to the part that has
    the fewest vertices by then, the lowest on ties. Takes 8 bytes per vertex beside the result, whatever the number of
    parts, and one pass over the edges for every part.

    Args:
        indptr: `[V + 1]` int64.
        indices: `[E]` sources.
        edge_owner: `[E]` part of each edge, below `num_parts`.
        num_parts: number of parts.
    """
    num_nodes = indptr.size - 1
    master = np.zeros(num_nodes, edge_owner.dtype)
    counts, most = np.zeros(num_nodes, np.int32), np.zeros(num_nodes, np.int32)
    for part in range(num_parts):
        _count_edges(indptr, indices, edge_owner, part, counts)
        _keep_most(counts, part, most, master)
    _place_isolated(most, num_parts, master)
    return master


def warm_up() -> None:
    """Compile it for common types."""
    masters(np.zeros(2, np.int64), np.empty(0, np.int32), np.empty(0, np.int16), 1)
