"""2PS-L: streaming clustering by volume; then edges go to the parts of their ends' clusters."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.graph.stream import ask_for_clusters, ask_for_ends
from gnnexp.kernels.partitioners.dbh import hashed_part
from gnnexp.kernels.partitioners.parts import ONE, place_edge

# Columns of a vertex's record.
DEGREE, CLUSTER = 0, 1
FIELDS = 2


@compiled(nogil=True)
def put_alone(degrees: np.ndarray, records: np.ndarray, volumes: np.ndarray) -> None:
    """Put every vertex in a cluster of its own; `degrees` `[V]`, `records` `[2 V]` int32, `volumes` `[V]` int64."""
    for vertex in range(degrees.size):
        records[FIELDS * vertex + DEGREE] = degrees[vertex]
        records[FIELDS * vertex + CLUSTER] = vertex
        volumes[vertex] = degrees[vertex]


@compiled(nogil=True)
def cluster_by_volume(
    sources: np.ndarray, destinations: np.ndarray, records: np.ndarray, volumes: np.ndarray, max_volume: float
) -> None:
    """For every edge, move one end to the cluster of the other end, if volumes allow.

    Without the end that moves, its cluster has the smaller volume; on ties the source moves.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        records: `[2 V]`, see `put_alone`; changed.
        volumes: `[V]` sum of degrees of every cluster, changed.
        max_volume: a cluster with a larger volume neither gives nor takes a vertex, and no cluster grows beyond it.
    """
    for edge in range(sources.size):
        ask_for_clusters(sources, destinations, edge, records, FIELDS, CLUSTER, volumes)
        at_u, at_v = FIELDS * np.int64(sources[edge]), FIELDS * np.int64(destinations[edge])
        c_u, c_v = records[at_u + CLUSTER], records[at_v + CLUSTER]
        if c_u == c_v or volumes[c_u] > max_volume or volumes[c_v] > max_volume:
            continue
        d_u, d_v = records[at_u + DEGREE], records[at_v + DEGREE]
        if volumes[c_u] - d_u <= volumes[c_v] - d_v:
            if volumes[c_v] + d_u <= max_volume:
                volumes[c_u] -= d_u
                volumes[c_v] += d_u
                records[at_u + CLUSTER] = c_v
        elif volumes[c_u] + d_v <= max_volume:
            volumes[c_v] -= d_v
            volumes[c_u] += d_v
            records[at_v + CLUSTER] = c_u


@compiled(nogil=True)
def parts_of_vertices(records: np.ndarray, parts_of_clusters: np.ndarray, parts: np.ndarray) -> None:
    """Write the part of every vertex, which is the part of its cluster, to `parts` `[V]`; `parts_of_clusters` `[V]`."""
    for vertex in range(parts.size):
        parts[vertex] = parts_of_clusters[records[FIELDS * vertex + CLUSTER]]


@compiled(inline="always")
def _overflow(key: np.uint64, vertex: int, loads: np.ndarray, capacity: int, least: int) -> int:
    """The part of an edge whose own part is full: the part that the hash of `vertex` selects, or `least`.

    `vertex` is the end with the higher degree. `least` is taken if the selected part is full too.
    """
    part = hashed_part(key, vertex, loads.size)
    return part if loads[part] < capacity else least


@compiled(nogil=True)
def place_within(
    sources: np.ndarray,
    destinations: np.ndarray,
    records: np.ndarray,
    homes: np.ndarray,
    replicas: np.ndarray,
    loads: np.ndarray,
    capacity: int,
    key: np.uint64,
    parts: np.ndarray,
) -> int:
    """Place the edges whose two ends have clusters in the same part; other edges get part -1.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        records: `[2 V]`, see `put_alone`.
        homes: `[V]` part of every vertex's cluster.
        replicas: `[V, words]` uint64, set of the parts that hold each vertex, changed.
        loads: `[p]` int64 edges of every part, changed.
        capacity: most edges of a part; p times this number must be enough for all edges.
        key: key of the hash of vertices.
        parts: `[n]`, filled.

    Returns:
        Number of edges whose part was full.
    """
    words, held = replicas.shape[1], replicas.reshape(-1)
    least, overflow = np.argmin(loads), 0
    for edge in range(sources.size):
        ask_for_ends(sources, destinations, edge, homes, held, words)
        src, dst = np.int64(sources[edge]), np.int64(destinations[edge])
        part = np.int64(homes[src])
        if part != homes[dst]:
            parts[edge] = -1
            continue
        if loads[part] >= capacity:
            higher = src if records[FIELDS * src + DEGREE] > records[FIELDS * dst + DEGREE] else dst
            part = _overflow(key, higher, loads, capacity, least)
            overflow += 1
        parts[edge] = part
        least = place_edge(held, words * src, words * dst, part, loads, least)
    return overflow


@compiled(inline="always")
def _holds(held: np.ndarray, first_word: int, part: int) -> bool:
    return (held[first_word + (part >> 6)] >> np.uint64(part & 63)) & ONE != np.uint64(0)


@compiled(inline="always")
def _better_part(
    held: np.ndarray, at_src: int, at_dst: int, p_src: int, p_dst: int, by_degree: float, by_volume: float
) -> int:
    """The better of `p_src` and `p_dst`, the parts of the ends' clusters; the lower one on ties.

    `by_degree` is the source's share of both degrees, `by_volume` the share of its cluster in both volumes.
    """
    gain_src, gain_dst = 2.0 - by_degree, 1.0 + by_degree
    score_src = _holds(held, at_src, p_src) * (gain_src + by_volume) + _holds(held, at_dst, p_src) * gain_dst
    score_dst = _holds(held, at_dst, p_dst) * (gain_dst + (1.0 - by_volume)) + _holds(held, at_src, p_dst) * gain_src
    # No branch here: it could not be predicted.
    better = (score_src > score_dst) | ((score_src == score_dst) & (p_src < p_dst))
    return p_dst + better * (p_src - p_dst)


@compiled(nogil=True)
def place_between(
    sources: np.ndarray,
    destinations: np.ndarray,
    records: np.ndarray,
    volumes: np.ndarray,
    homes: np.ndarray,
    replicas: np.ndarray,
    loads: np.ndarray,
    capacity: int,
    key: np.uint64,
    parts: np.ndarray,
) -> int:
    """Place the edges that `place_within` has left out, which have -1 in `parts` `[n]`.

    Candidates are the parts of the ends' clusters. A candidate scores 2 - t for each end that it holds, where t is the
    degree of the end over the sum of both degrees. If the cluster of that end is in the candidate, the share of the
    cluster in the sum of both volumes is added. The lower part wins ties. If a candidate is full, the edge overflows.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        records: `[2 V]`, see `put_alone`.
        volumes: `[V]` sum of degrees of every cluster.
        homes: `[V]` part of every vertex's cluster.
        replicas: `[V, words]` uint64, set of the parts that hold each vertex, changed.
        loads: `[p]` int64 edges of every part, changed.
        capacity: most edges of a part.
        key: key of the hash of vertices.
        parts: `[n]`, changed.

    Returns:
        Number of edges with a full candidate.
    """
    words, held = replicas.shape[1], replicas.reshape(-1)
    least, overflow = np.argmin(loads), 0
    for edge in range(sources.size):
        # Placed edges are prefetched too: a branch to skip them would cost more, because it cannot be predicted.
        ask_for_ends(sources, destinations, edge, homes, held, words)
        ask_for_clusters(sources, destinations, edge, records, FIELDS, CLUSTER, volumes)
        if parts[edge] >= 0:
            continue
        src, dst = np.int64(sources[edge]), np.int64(destinations[edge])
        at_src, at_dst = words * src, words * dst
        d_src, d_dst = np.int64(records[FIELDS * src + DEGREE]), np.int64(records[FIELDS * dst + DEGREE])
        p_src, p_dst = np.int64(homes[src]), np.int64(homes[dst])
        if loads[p_src] >= capacity or loads[p_dst] >= capacity:
            part = _overflow(key, src if d_src > d_dst else dst, loads, capacity, least)
            overflow += 1
        else:
            v_src, v_dst = volumes[records[FIELDS * src + CLUSTER]], volumes[records[FIELDS * dst + CLUSTER]]
            part = _better_part(held, at_src, at_dst, p_src, p_dst, d_src / (d_src + d_dst), v_src / (v_src + v_dst))
        parts[edge] = part
        least = place_edge(held, at_src, at_dst, part, loads, least)
    return overflow


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    ids, replicas, loads, key = np.zeros(1, np.int32), np.zeros((1, 1), np.uint64), np.zeros(1, np.int64), np.uint64(0)
    records, volumes, parts = np.zeros(2, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int16)
    put_alone(ids, records, volumes)
    cluster_by_volume(ids, ids, records, volumes, 1.0)
    parts_of_vertices(records, ids, parts)
    place_within(ids, ids, records, parts, replicas, loads, 2, key, parts.copy())
    place_between(ids, ids, records, volumes, parts, replicas, loads, 2, key, parts.copy())
