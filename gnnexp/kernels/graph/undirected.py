"""The simple undirected view of a directed multigraph, which METIS partitions."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.graph.transpose import transpose_csc


@compiled(nogil=True)
def _merge(
    in_ptr: np.ndarray,
    in_ids: np.ndarray,
    out_ptr: np.ndarray,
    out_ids: np.ndarray,
    out_edges: np.ndarray,
    edge_weights: np.ndarray,
    starts: np.ndarray,
    neighbours: np.ndarray,
    weights: np.ndarray,
) -> None:
    """Merge the two sorted neighbour lists of every vertex.

    With empty `neighbours` it only counts, into `starts[v + 1]`. Otherwise it writes row v from `starts[v]` on. Edges
    have the weights `edge_weights`, or 1 each if these are empty. Neighbours with weight 0 are left out.
    """
    fill, weighted = neighbours.size > 0, edge_weights.size > 0
    for v in range(in_ptr.size - 1):
        i, o = in_ptr[v], out_ptr[v]
        slot = starts[v]
        count = 0
        while i < in_ptr[v + 1] or o < out_ptr[v + 1]:
            take_in = o >= out_ptr[v + 1] or (i < in_ptr[v + 1] and in_ids[i] <= out_ids[o])
            other = np.int64(in_ids[i]) if take_in else np.int64(out_ids[o])
            weight = np.int64(0)
            while i < in_ptr[v + 1] and in_ids[i] == other:
                weight += edge_weights[i] if weighted else 1
                i += 1
            while o < out_ptr[v + 1] and out_ids[o] == other:
                weight += edge_weights[out_edges[o]] if weighted else 1
                o += 1
            if other == v or weight == 0:
                continue
            if fill:
                neighbours[slot + count] = other
                weights[slot + count] = weight
            count += 1
        if not fill:
            starts[v + 1] = count


def undirected(
    indptr: np.ndarray, indices: np.ndarray, dtype: np.dtype[np.signedinteger], edge_weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Neighbours of every vertex in either direction, each once, ascending, without self loops.

    Args:
        indptr: `[V + 1]` int64, in-edges of each vertex in a CSC graph in canonical order.
        indices: `[E]` sources.
        dtype: data type of the returned arrays, int32 or int64.
        edge_weights: `[E]` weights of directed edges, or None for 1 each; a pair with total weight 0 is left out.

    Returns:
        `starts [V + 1]`, `neighbours [M]` and `weights [M]` (the sum over the directed edges (u, v) and (v, u)), all of
        `dtype`, which must hold 2 E.
    """
    num_nodes = indptr.size - 1
    out_ptr, out_ids, out_edges = transpose_csc(indptr, indices, num_nodes)
    own_weights = np.empty(0, np.int32) if edge_weights is None else edge_weights
    starts = np.zeros(num_nodes + 1, np.int64)
    none = np.empty(0, dtype)
    _merge(indptr, indices, out_ptr, out_ids, out_edges, own_weights, starts, none, none)
    np.cumsum(starts, out=starts)
    neighbours, weights = np.empty(starts[-1], dtype), np.empty(starts[-1], dtype)
    if neighbours.size:
        _merge(indptr, indices, out_ptr, out_ids, out_edges, own_weights, starts, neighbours, weights)
    return starts.astype(dtype), neighbours, weights
