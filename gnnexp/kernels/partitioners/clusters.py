"""Clusters of bounded size by label propagation, and the graph of clusters.

Sources: Meyerhenke, Sanders & Schulz, "Partitioning complex networks via size-constrained clustering" (SEA 2014);
Akhremtsev, Sanders & Schulz, "(Semi-)external algorithms for graph partitioning and clustering" (ALENEX 2015). The
graph is read row by row. Other arrays take a few words per vertex.

A graph consists of `indptr` `[n + 1]` int64, `indices` `[m]` in-neighbours, and `weights` `[m]` int64 of edges, empty
for 1 each. The masses of vertices are `masses` `[n]` int64, empty for 1 each.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.prefetch import prefetch

# How many vertices ahead the place in `indptr`, the row, and the neighbours of a vertex are prefetched. A pass over
# 12 M edges and 245 k vertices in the order of degrees takes 0.17 s with these prefetches, 0.34 s without.
_FAR, _NEAR, _NEXT = 16, 8, 3
# Number of ids of a row that are prefetched. The hardware prefetcher fetches the rest of longer rows.
_ROW_IDS, _IDS_PER_LINE = 64, 16


@compiled(inline="always")
def ask_ahead(indptr: np.ndarray, indices: np.ndarray, order: np.ndarray, place: int, known: np.ndarray) -> None:
    """Prefetch data of the vertices soon after `order[place]`: their rows, and `known` of their neighbours."""
    last = order.size - 1
    prefetch(indptr, order[min(place + _FAR, last)])
    near = np.int64(order[min(place + _NEAR, last)])
    for edge in range(indptr[near], min(indptr[near + 1], indptr[near] + _ROW_IDS), _IDS_PER_LINE):
        prefetch(indices, edge)
    soon = np.int64(order[min(place + _NEXT, last)])
    for edge in range(indptr[soon], min(indptr[soon + 1], indptr[soon] + _ROW_IDS)):
        prefetch(known, indices[edge])


@compiled(nogil=True)
def order_by_degree(indptr: np.ndarray, falling: bool, order: np.ndarray) -> None:
    """Write the vertices to `order` `[n]`: fewest in-edges first, most first if `falling`, lower ids first on ties."""
    most = np.int64(0)
    for vertex in range(order.size):
        most = max(most, indptr[vertex + 1] - indptr[vertex])
    starts = np.zeros(most + 2, np.int64)
    for vertex in range(order.size):
        degree = indptr[vertex + 1] - indptr[vertex]
        starts[(most - degree if falling else degree) + 1] += 1
    for degree in range(most + 1):
        starts[degree + 1] += starts[degree]
    for vertex in range(order.size):
        degree = indptr[vertex + 1] - indptr[vertex]
        at = most - degree if falling else degree
        order[starts[at]] = vertex
        starts[at] += 1


@compiled(inline="always")
def _sum_row(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray,
    vertex: int,
    labels: np.ndarray,
    sums: np.ndarray,
    touched: np.ndarray,
) -> int:
    """Add the weights of the in-edges of `vertex` to `sums` by cluster of the source; self loops do not count.

    Returns the number of these clusters, which are written to `touched`.
    """
    count, weighted = 0, weights.size > 0
    for edge in range(indptr[vertex], indptr[vertex + 1]):
        if indices[edge] == vertex:
            continue
        label = labels[indices[edge]]
        if sums[label] == 0:
            touched[count] = label
            count += 1
        sums[label] += weights[edge] if weighted else 1
    return count


@compiled(nogil=True)
def join_clusters(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray,
    masses: np.ndarray,
    order: np.ndarray,
    labels: np.ndarray,
    sizes: np.ndarray,
    max_size: int,
    sums: np.ndarray,
    touched: np.ndarray,
) -> int:
    """Move every vertex to the cluster with the most edges to it, if the vertex fits; returns how many have moved.

    On ties a vertex stays in its cluster. Otherwise the smaller cluster wins, then the cluster found first.

    Args:
        indptr: see the module.
        indices: see the module.
        weights: see the module.
        masses: see the module.
        order: `[n]` order in which vertices are visited.
        labels: `[n]` cluster of each vertex, changed.
        sizes: `[n]` sum of masses of every cluster, changed.
        max_size: largest sum of masses of a cluster.
        sums: `[n]` zeros, working memory; its type must hold the total weight of a row.
        touched: working memory with space for the longest row.
    """
    moved = 0
    for place in range(order.size):
        ask_ahead(indptr, indices, order, place, labels)
        vertex = np.int64(order[place])
        count = _sum_row(indptr, indices, weights, vertex, labels, sums, touched)
        own, mass = labels[vertex], masses[vertex] if masses.size > 0 else 1
        best, most = own, sums[own]
        for slot in range(count):
            label = touched[slot]
            weight, sums[label] = sums[label], 0
            if weight < most or label == own or sizes[label] + mass > max_size:
                continue
            if weight > most or (best != own and sizes[label] < sizes[best]):
                best, most = label, weight
        if best != own:
            labels[vertex] = best
            sizes[own] -= mass
            sizes[best] += mass
            moved += 1
    return moved


@compiled(nogil=True)
def join_leftovers(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray,
    masses: np.ndarray,
    labels: np.ndarray,
    sizes: np.ndarray,
    max_size: int,
    sums: np.ndarray,
    touched: np.ndarray,
) -> None:
    """Group vertices that are alone in their cluster and prefer the same other cluster, which has no room for them.

    So the leaves of a hub, and vertices without neighbours, form few clusters instead of many. Arguments as in
    `join_clusters`.
    """
    num_nodes = indptr.size - 1
    gathering = np.full(num_nodes + 1, -1, labels.dtype)
    for vertex in range(num_nodes):
        mass = masses[vertex] if masses.size > 0 else 1
        if sizes[labels[vertex]] != mass:
            continue
        count = _sum_row(indptr, indices, weights, vertex, labels, sums, touched)
        liked, most = num_nodes, np.int64(0)
        for slot in range(count):
            label = touched[slot]
            weight, sums[label] = np.int64(sums[label]), 0
            if weight > most and label != labels[vertex]:
                liked, most = np.int64(label), weight
        own, target = labels[vertex], gathering[liked]
        if target >= 0 and target != own and sizes[target] + mass <= max_size:
            labels[vertex] = target
            sizes[own] -= mass
            sizes[target] += mass
        else:
            gathering[liked] = own


@compiled(nogil=True)
def number_labels(labels: np.ndarray) -> int:
    """Number the clusters 0, 1, ... in the order of their first vertices; returns the number of clusters."""
    numbers, count = np.full(labels.size, -1, labels.dtype), 0
    for vertex in range(labels.size):
        label = labels[vertex]
        if numbers[label] < 0:
            numbers[label] = count
            count += 1
        labels[vertex] = numbers[label]
    return count


@compiled(nogil=True)
def group_by_label(labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The vertices of every cluster, ascending: `starts` `[count + 1]` and `members` `[n]`."""
    starts, members = np.zeros(count + 1, np.int64), np.empty(labels.size, labels.dtype)
    for vertex in range(labels.size):
        starts[labels[vertex] + 1] += 1
    for cluster in range(count):
        starts[cluster + 1] += starts[cluster]
    ends = starts[:-1].copy()
    for vertex in range(labels.size):
        members[ends[labels[vertex]]] = vertex
        ends[labels[vertex]] += 1
    return starts, members


@compiled(nogil=True)
def _longer(array: np.ndarray, used: int, size: int) -> np.ndarray:
    """A copy of the first `used` entries in an array of length `size`."""
    longer = np.empty(size, array.dtype)
    longer[:used] = array[:used]
    return longer


@compiled(nogil=True)
def contract(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, labels: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The graph of clusters: `indptr` `[count + 1]`, `indices` and `weights` `[m']`, without edges inside clusters.

    `labels` `[n]` are 0 to `count - 1`. Rows are not sorted.
    """
    starts, members = group_by_label(labels, count)
    sums, touched = np.zeros(count, np.int64), np.empty(count, labels.dtype)
    room = max(indices.size // 8, 1024)
    pointers, ids, totals = np.zeros(count + 1, np.int64), np.empty(room, labels.dtype), np.empty(room, np.int64)
    used, weighted = np.int64(0), weights.size > 0
    for cluster in range(count):
        degree = 0
        for place in range(starts[cluster], starts[cluster + 1]):
            ask_ahead(indptr, indices, members, place, labels)
            vertex = np.int64(members[place])
            for edge in range(indptr[vertex], indptr[vertex + 1]):
                other = labels[indices[edge]]
                if other == cluster:
                    continue
                if sums[other] == 0:
                    touched[degree] = other
                    degree += 1
                sums[other] += weights[edge] if weighted else 1
        if used + degree > room:
            room = max(room + room // 2, used + degree)
            ids, totals = _longer(ids, used, room), _longer(totals, used, room)
        for slot in range(degree):
            other = touched[slot]
            ids[used], totals[used] = other, sums[other]
            sums[other] = 0
            used += 1
        pointers[cluster + 1] = used
    return pointers, ids[:used], totals[:used]


@compiled(nogil=True)
def sum_by_label(values: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Sums `[count]` int64 of `values` `[n]` over the vertices of every cluster, or of every part."""
    totals = np.zeros(count, np.int64)
    for vertex in range(labels.size):
        totals[labels[vertex]] += values[vertex]
    return totals


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    indptr, ids, none = np.array([0, 1, 2]), np.array([1, 0], np.int32), np.empty(0, np.int64)
    labels, order, touched = np.arange(2, dtype=np.int32), np.zeros(2, np.int32), np.zeros(2, np.int32)
    order_by_degree(indptr, False, order)
    for weights, masses in ((none, none), (np.ones(2, np.int64), np.ones(2, np.int64))):
        sizes, sums = np.ones(2, np.int32), np.zeros(2, np.int32)
        join_clusters(indptr, ids, weights, masses, order, labels, sizes, 1, sums, touched)
        join_leftovers(indptr, ids, weights, masses, labels, sizes, 1, sums, touched)
        contract(indptr, ids, weights, labels, number_labels(labels))
    for owners in (labels, labels.astype(np.int16)):
        sum_by_label(np.ones(2, np.int64), owners, 2)
