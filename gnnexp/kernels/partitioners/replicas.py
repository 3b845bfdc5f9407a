"""The parts that hold each vertex, as one bit set per vertex, for 64 parts at a time."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.graph.stream import AHEAD
from gnnexp.kernels.prefetch import prefetch

PARTS_PER_PASS = 64


@compiled(nogil=True)
def count_cut(sources: np.ndarray, destinations: np.ndarray, owner: np.ndarray) -> int:
    """The number of edges whose source and destination have different owners."""
    cut = 0
    for edge in range(sources.size):
        cut += owner[sources[edge]] != owner[destinations[edge]]
    return cut


@compiled(nogil=True)
def count_parts(owner: np.ndarray, num_parts: int) -> np.ndarray:
    """How often each part occurs in `owner`, `[num_parts]` int64; needs no temporaries, unlike `np.bincount`."""
    counts = np.zeros(num_parts, np.int64)
    for i in range(owner.size):
        counts[owner[i]] += 1
    return counts


@compiled(nogil=True)
def add_edges_of_owners(destinations: np.ndarray, owner: np.ndarray, counts: np.ndarray) -> None:
    """Add the in-edges of the vertices of each part to `counts` `[num_parts]` int64."""
    for edge in range(destinations.size):
        counts[owner[destinations[edge]]] += 1


@compiled(inline="always")
def _bit(part: int, first_part: int) -> np.uint64:
    """The bit of `part` in a pass that starts at `first_part`, or 0 if the part belongs to another pass."""
    shift = part - first_part
    return np.uint64(1) << np.uint64(shift) if 0 <= shift < 64 else np.uint64(0)


@compiled(nogil=True)
def mark_owned(owner: np.ndarray, first_part: int, bits: np.ndarray) -> None:
    """Set `bits` `[V]` to the owner of each vertex, for the 64 parts from `first_part` on."""
    for vertex in range(owner.size):
        bits[vertex] = _bit(np.int64(owner[vertex]), first_part)


@compiled(nogil=True)
def mark_full(
    sources: np.ndarray, destinations: np.ndarray, owner: np.ndarray, first_part: int, bits: np.ndarray
) -> None:
    """Mark the source of every edge as held by the owner of the edge's destination."""
    last = sources.size - 1
    for edge in range(sources.size):
        prefetch(bits, sources[min(edge + AHEAD, last)])
        bit = _bit(np.int64(owner[destinations[edge]]), first_part)
        if bit != np.uint64(0):
            bits[sources[edge]] |= bit


@compiled(nogil=True)
def mark_cut(
    sources: np.ndarray, destinations: np.ndarray, edge_owner: np.ndarray, first_part: int, bits: np.ndarray
) -> None:
    """Mark both ends of every edge as held by the owner of the edge."""
    for edge in range(sources.size):
        bit = _bit(np.int64(edge_owner[edge]), first_part)
        bits[sources[edge]] |= bit
        bits[destinations[edge]] |= bit


@compiled(nogil=True)
def add_bits(bits: np.ndarray, counts: np.ndarray) -> None:
    """Add the number of vertices that each part holds to `counts`, for the parts in `bits` `[V]`."""
    for vertex in range(bits.size):
        word = bits[vertex]
        part = 0
        while word != np.uint64(0):
            counts[part] += np.int64(word & np.uint64(1))
            word >>= np.uint64(1)
            part += 1


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    ids, owner, bits = np.zeros(1, np.int32), np.zeros(1, np.int16), np.zeros(1, np.uint64)
    count_cut(ids, ids, owner)
    count_parts(owner, 1)
    add_edges_of_owners(ids, owner, np.zeros(1, np.int64))
    mark_owned(owner, 0, bits)
    mark_full(ids, ids, owner, 0, bits)
    mark_cut(ids, ids, owner, 0, bits)
    add_bits(bits, np.zeros(1, np.int64))
