"""SPRING: streaming clustering, merging by richest neighbours, assignment to parts (SDT-GNN, Algorithm 1).

A cluster has the id of its first vertex. Every vertex starts in a cluster of its own, with its degree as volume;
Algorithm 1 makes that cluster when the vertex first appears. The record of a vertex is contiguous: its degree, its
cluster, its richest neighbour and the degree of that neighbour. If the records do not fit in a cache, an edge reads one
cache line per end, and one per volume of a cluster.
"""

from __future__ import annotations

import heapq

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.graph.stream import ask_for_clusters

# Columns of a vertex's record.
DEGREE, CLUSTER, RICHEST, RICHEST_DEGREE = 0, 1, 2, 3
FIELDS = 4


@compiled(nogil=True)
def start(degrees: np.ndarray, records: np.ndarray, volumes: np.ndarray) -> None:
    """Put every vertex in a cluster of its own; `degrees` `[V]`, `records` `[4 V]` int32, `volumes` `[V]` int64."""
    for vertex in range(degrees.size):
        at = FIELDS * vertex
        records[at + DEGREE] = degrees[vertex]
        records[at + CLUSTER] = vertex
        records[at + RICHEST] = -1
        records[at + RICHEST_DEGREE] = 0
        volumes[vertex] = degrees[vertex]


@compiled(inline="always")
def _move(
    records: np.ndarray, at: int, joined: int, degree: int, volumes: np.ndarray, sizes: np.ndarray, max_size: float
) -> None:
    """Move the vertex with the record at `at` to the cluster `joined`, unless the cluster is full (`max_size`)."""
    left = records[at + CLUSTER]
    if sizes.size > 0:
        if sizes[joined] + 1 > max_size:
            return
        sizes[joined] += 1
        sizes[left] -= 1
    records[at + CLUSTER] = joined
    volumes[joined] += degree
    volumes[left] -= degree


@compiled(inline="always")
def _note_neighbour(records: np.ndarray, at: int, neighbour: int, degree: int, streamed: bool) -> None:
    """Make `neighbour` the richest neighbour in the record at `at`, if its degree is larger than the recorded one."""
    if streamed and records[at + RICHEST] >= 0:
        records[at + RICHEST_DEGREE] = records[FIELDS * np.int64(records[at + RICHEST]) + DEGREE]
    if records[at + RICHEST_DEGREE] < degree:
        records[at + RICHEST] = neighbour
        records[at + RICHEST_DEGREE] = degree


@compiled(nogil=True)
def cluster_edges(
    sources: np.ndarray,
    destinations: np.ndarray,
    records: np.ndarray,
    volumes: np.ndarray,
    sizes: np.ndarray,
    max_volume: float,
    max_size: float,
    streamed: bool,
) -> None:
    """Lines 2 to 17 of Algorithm 1 for a chunk of edges.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        records: `[4 V]`, see `start`; changed.
        volumes: `[V]` sum of degrees of every cluster, changed.
        sizes: `[V]` int32 vertices of every cluster, changed; empty if sizes are not limited.
        max_volume: a cluster with a larger volume neither takes nor gives a vertex.
        max_size: most vertices of a cluster, if sizes are limited.
        streamed: whether degrees are those of the stream so far, with this edge, instead of the final degrees.
    """
    for edge in range(sources.size):
        ask_for_clusters(sources, destinations, edge, records, FIELDS, CLUSTER, volumes)
        u, v = np.int64(sources[edge]), np.int64(destinations[edge])
        at_u, at_v = FIELDS * u, FIELDS * v
        c_u, c_v = records[at_u + CLUSTER], records[at_v + CLUSTER]
        if streamed:
            records[at_u + DEGREE] += 1
            records[at_v + DEGREE] += 1
            volumes[c_u] += 1
            volumes[c_v] += 1
        if u == v:
            continue
        d_u, d_v = records[at_u + DEGREE], records[at_v + DEGREE]
        if c_u != c_v and volumes[c_u] <= max_volume and volumes[c_v] <= max_volume:
            if volumes[c_u] <= volumes[c_v]:
                _move(records, at_u, c_v, d_u, volumes, sizes, max_size)
            else:
                _move(records, at_v, c_u, d_v, volumes, sizes, max_size)
        _note_neighbour(records, at_u, v, d_v, streamed)
        _note_neighbour(records, at_v, u, d_u, streamed)


@compiled(nogil=True)
def number_clusters(records: np.ndarray, numbers: np.ndarray) -> int:
    """Number the clusters 0, 1, ... in the order of their ids, in the records; returns the number of clusters.

    `numbers` `[V]` int32 is working memory.
    """
    numbers[:] = -1
    for vertex in range(numbers.size):
        numbers[records[FIELDS * vertex + CLUSTER]] = 0
    count = 0
    for cluster in range(numbers.size):
        if numbers[cluster] == 0:
            numbers[cluster] = count
            count += 1
    for vertex in range(numbers.size):
        at = FIELDS * vertex + CLUSTER
        records[at] = numbers[records[at]]
    return count


@compiled(nogil=True)
def describe_clusters(
    records: np.ndarray, sizes: np.ndarray, richest: np.ndarray, representatives: np.ndarray, streamed: bool
) -> None:
    """Lines 18 to 20 of Algorithm 1: fill sizes, representatives and degrees of their richest neighbours, `[k]` each.

    The representative of a cluster is the vertex whose richest neighbour has the largest degree, the lowest id on ties.
    It is -1 if no vertex of the cluster has a neighbour.
    """
    sizes[:] = 0
    richest[:] = 0
    representatives[:] = -1
    for vertex in range(records.size // FIELDS):
        at = FIELDS * vertex
        cluster = records[at + CLUSTER]
        sizes[cluster] += 1
        if streamed and records[at + RICHEST] >= 0:
            records[at + RICHEST_DEGREE] = records[FIELDS * np.int64(records[at + RICHEST]) + DEGREE]
        if records[at + RICHEST_DEGREE] > richest[cluster]:
            richest[cluster] = records[at + RICHEST_DEGREE]
            representatives[cluster] = vertex


@compiled(nogil=True)
def find(joined: np.ndarray, cluster: int) -> int:
    """The cluster into which `cluster` is merged so far; path halving shortens later searches."""
    while joined[cluster] != cluster:
        joined[cluster] = joined[joined[cluster]]
        cluster = joined[cluster]
    return cluster


@compiled(nogil=True)
def merge_clusters(
    records: np.ndarray,
    sizes: np.ndarray,
    richest: np.ndarray,
    representatives: np.ndarray,
    joined: np.ndarray,
    max_size: float,
) -> int:
    """Lines 21 to 26 of Algorithm 1; returns the number of remaining clusters.

    The smallest cluster is merged into the cluster of its representative's richest neighbour, if both together have at
    most `max_size` vertices. The merged cluster is ranked again by its size, even if it was processed before: it may
    have another representative now.

    Args:
        records: `[4 V]` records with numbered clusters.
        sizes: `[k]` int32 vertices of each cluster, changed.
        richest: `[k]` int32 degree of the representative's richest neighbour, changed.
        representatives: `[k]` int32 representative of each cluster, changed.
        joined: `[k]` int32, filled: the cluster into which each cluster is merged, for `find`.
        max_size: most vertices of a merged cluster: beta V / p.
    """
    left = sizes.size
    for cluster in range(left):
        joined[cluster] = cluster
    # Entries whose size is not the current size of their cluster are outdated: the cluster has grown or is merged.
    heap = [(sizes[cluster], np.int32(cluster)) for cluster in range(left)]
    heapq.heapify(heap)
    while len(heap) > 0:
        size, cluster = heapq.heappop(heap)
        vertex = representatives[cluster]
        if size != sizes[cluster] or vertex < 0:
            continue
        neighbour = np.int64(records[FIELDS * np.int64(vertex) + RICHEST])
        target = find(joined, records[FIELDS * neighbour + CLUSTER])
        if target == cluster or np.int64(sizes[target]) + size > max_size:
            continue
        joined[cluster] = target
        left -= 1
        sizes[target] += size
        sizes[cluster] = 0
        better = richest[cluster] > richest[target]
        if better or (richest[cluster] == richest[target] and vertex < representatives[target]):
            richest[target], representatives[target] = richest[cluster], vertex
        heapq.heappush(heap, (sizes[target], np.int32(target)))
    return left


@compiled(nogil=True)
def assign_clusters(order: np.ndarray, sizes: np.ndarray, num_parts: int, parts: np.ndarray) -> None:
    """Lines 27 to 30 of Algorithm 1: each cluster goes to the part with the fewest vertices then, the lowest on ties.

    Clusters come in `order`, largest first. `parts` `[k]` receives the part of every cluster that has vertices.
    """
    heap = [(np.int64(0), part) for part in range(num_parts)]
    for cluster in order:
        if sizes[cluster] > 0:
            load, part = heap[0]
            parts[cluster] = part
            heapq.heapreplace(heap, (load + sizes[cluster], part))


@compiled(nogil=True)
def owners_of_vertices(records: np.ndarray, joined: np.ndarray, parts: np.ndarray, owners: np.ndarray) -> None:
    """Write the part of every vertex, which is the part of its cluster, to `owners` `[V]`."""
    for vertex in range(owners.size):
        owners[vertex] = parts[find(joined, records[FIELDS * vertex + CLUSTER])]


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    ids = np.array([0, 1], np.int32)
    records, volumes, room = np.zeros(8, np.int32), np.zeros(2, np.int64), np.zeros(2, np.int32)
    start(ids, records, volumes)
    cluster_edges(ids, ids, records, volumes, room[:0], 1.0, 1.0, False)
    count = number_clusters(records, room)
    sizes, richest, representatives, joined = (np.zeros(count, np.int32) for _ in range(4))
    describe_clusters(records, sizes, richest, representatives, False)
    merge_clusters(records, sizes, richest, representatives, joined, 1.0)
    assign_clusters(np.arange(count), sizes, 1, room)
    owners_of_vertices(records, joined, room, np.zeros(2, np.int16))
