"""SPRING: streaming clustering, merging by richest neighbours, assignment to parts (SDT-GNN, Algorithm 1).

A cluster has the id of a vertex: the one that it starts with. So every vertex can be in a cluster of its own from the
start, with its degree as volume, as Algorithm 1 makes one where a vertex is first met. All that is known of a vertex
lies side by side: its degree, its cluster, its richest neighbour and that one's degree. With more vertices than fit in
a cache, an edge costs a line of memory per end, and one per cluster's volume.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.graph.stream import ask_for_clusters

# Columns of a vertex's record.
DEGREE, CLUSTER, RICHEST, RICHEST_DEGREE = 0, 1, 2, 3
FIELDS = 4


@compiled(nogil=True)
def start(degrees: np.ndarray, records: np.ndarray, volumes: np.ndarray) -> None:
    """Every vertex a cluster of its own; `degrees` `[V]`, `records` `[4 V]` int32, `volumes` `[V]` int64."""
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
    """The vertex whose record is at `at` joins another cluster, unless that has `max_size` vertices."""
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
    """Keep the richer one of the richest neighbour so far and this one."""
    if streamed and records[at + RICHEST] >= 0:
        records[at + RICHEST_DEGREE] = records[FIELDS * np.int64(records[at + RICHEST]) + DEGREE]
    if records[at + RICHEST_DEGREE] < degree:
        records[at + RICHEST] = neighbour
        records[at + RICHEST_DEGREE] = degree


@compiled(nogil=True)
def cluster_edges(
    sources: np.ndarray, destinations: np.ndarray, records: np.ndarray, volumes: np.ndarray, sizes: np.ndarray,
    max_volume: float, max_size: float, streamed: bool,
) -> None:
    """Lines 2 to 17 for a chunk of edges.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        records: `[4 V]` see `start`.
        volumes: `[V]` sum of degrees of every cluster.
        sizes: `[V]` int32 vertices of every cluster, or empty if they are not bounded.
        max_volume: clusters with more neither take nor give a vertex.
        max_size: vertices that a cluster takes at most, where sizes are kept.
        streamed: degrees are those of the stream so far, this edge included, instead of known ones.
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
    """Give clusters the numbers 0, 1, ... in the order of their ids, in the records too; how many there are.

    `numbers` `[V]` int32 is room to work in.
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
    """Sizes of the clusters `[k]`; lines 18 to 20: representatives, and the degree of their richest neighbours.

    The representative is the vertex whose richest neighbour has the largest degree, the lowest id on ties; -1 without
    any neighbour.
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


@compiled(inline="always")
def _before(sizes: np.ndarray, one: int, other: int) -> bool:
    """Whether a cluster is scanned before another: the smaller one, the lower number on ties."""
    return sizes[one] < sizes[other] or (sizes[one] == sizes[other] and one < other)


@compiled(nogil=True)
def _sift_down(heap: np.ndarray, places: np.ndarray, count: int, place: int, sizes: np.ndarray) -> None:
    moving = heap[place]
    while 2 * place + 1 < count:
        child = 2 * place + 1
        if child + 1 < count and _before(sizes, heap[child + 1], heap[child]):
            child += 1
        if not _before(sizes, heap[child], moving):
            break
        heap[place] = heap[child]
        places[heap[place]] = place
        place = child
    heap[place] = moving
    places[moving] = place


@compiled(nogil=True)
def _sift_up(heap: np.ndarray, places: np.ndarray, place: int, sizes: np.ndarray) -> None:
    moving = heap[place]
    while place > 0:
        parent = (place - 1) // 2
        if not _before(sizes, moving, heap[parent]):
            break
        heap[place] = heap[parent]
        places[heap[place]] = place
        place = parent
    heap[place] = moving
    places[moving] = place


@compiled(nogil=True)
def find(joined: np.ndarray, cluster: int) -> int:
    """The cluster that `cluster` is merged into by now; paths are halved."""
    while joined[cluster] != cluster:
        joined[cluster] = joined[joined[cluster]]
        cluster = joined[cluster]
    return cluster


@compiled(nogil=True)
def merge_clusters(
    records: np.ndarray, sizes: np.ndarray, richest: np.ndarray, representatives: np.ndarray, joined: np.ndarray,
    max_size: float,
) -> int:
    """Lines 21 to 26; how many clusters are left.

    The smallest cluster goes into that of its representative's richest neighbour, if both together have at most
    `max_size` vertices. What comes of it is ranked again by its size, even if it had its turn before: with another
    size and another representative it is another cluster.

    Args:
        records: `[4 V]` whose clusters are numbered.
        sizes: `[k]` int32, changed.
        richest: `[k]` int32 degree of the representative's richest neighbour, changed.
        representatives: `[k]` int32, changed.
        joined: `[k]` int32, receives the cluster that each is in (`find`).
        max_size: beta V / p.
    """
    count = left = sizes.size
    heap, places = np.arange(count).astype(np.int32), np.arange(count).astype(np.int32)
    for cluster in range(count):
        joined[cluster] = cluster
    for place in range(count // 2 - 1, -1, -1):
        _sift_down(heap, places, count, place, sizes)
    while count > 0:
        cluster = heap[0]
        count -= 1
        places[cluster] = -1
        if count > 0:
            heap[0] = heap[count]
            _sift_down(heap, places, count, 0, sizes)
        vertex = representatives[cluster]
        if vertex < 0:
            continue
        neighbour = np.int64(records[FIELDS * np.int64(vertex) + RICHEST])
        target = find(joined, records[FIELDS * neighbour + CLUSTER])
        if target == cluster or np.int64(sizes[target]) + sizes[cluster] > max_size:
            continue
        joined[cluster] = target
        left -= 1
        sizes[target] += sizes[cluster]
        sizes[cluster] = 0
        better = richest[cluster] > richest[target]
        if better or (richest[cluster] == richest[target] and vertex < representatives[target]):
            richest[target], representatives[target] = richest[cluster], vertex
        if places[target] >= 0:
            _sift_down(heap, places, count, places[target], sizes)
        else:
            heap[count] = target
            count += 1
            _sift_up(heap, places, count - 1, sizes)
    return left


@compiled(nogil=True)
def assign_clusters(order: np.ndarray, sizes: np.ndarray, num_parts: int, parts: np.ndarray) -> None:
    """Lines 27 to 30: clusters in `order`, largest first, each to the part with the fewest vertices, the lowest one.

    `parts` `[k]` receives the part of every cluster that has vertices.
    """
    loads, tree = np.zeros(num_parts, np.int64), np.arange(num_parts)
    for cluster in order:
        if sizes[cluster] == 0:
            continue
        part = tree[0]
        parts[cluster] = part
        loads[part] += sizes[cluster]
        place = 0
        while 2 * place + 1 < num_parts:
            child = 2 * place + 1
            if child + 1 < num_parts:
                a, b = tree[child], tree[child + 1]
                if loads[b] < loads[a] or (loads[b] == loads[a] and b < a):
                    child += 1
            other = tree[child]
            if loads[part] < loads[other] or (loads[part] == loads[other] and part < other):
                break
            tree[place] = other
            place = child
        tree[place] = part


@compiled(nogil=True)
def owners_of_vertices(records: np.ndarray, joined: np.ndarray, parts: np.ndarray, owners: np.ndarray) -> None:
    """The part of every vertex's cluster into `owners` `[V]`."""
    for vertex in range(owners.size):
        owners[vertex] = parts[find(joined, records[FIELDS * vertex + CLUSTER])]


def warm_up() -> None:
    """Compile them for common types."""
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
