"""Which parts need which vertices: bit sets per vertex, 64 parts at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnnexp.kernels.compiled import compiled

PARTS_PER_PASS = 64


@compiled(nogil=True)
def count_cut(indptr: np.ndarray, indices: np.ndarray, owner: np.ndarray) -> int:
    """Edges whose source and destination have different owners."""
    cut = 0
    for dst in range(indptr.size - 1):
        here = owner[dst]
        for edge in range(indptr[dst], indptr[dst + 1]):
            cut += owner[indices[edge]] != here
    return cut


@compiled(nogil=True)
def count_parts(owner: np.ndarray, num_parts: int) -> np.ndarray:
    """`[num_parts]` int64, how often each part occurs in `owner`; no temporaries, unlike `np.bincount`."""
    counts = np.zeros(num_parts, np.int64)
    for i in range(owner.size):
        counts[owner[i]] += 1
    return counts


@compiled(nogil=True)
def edges_of_owners(indptr: np.ndarray, owner: np.ndarray, num_parts: int) -> np.ndarray:
    """`[num_parts]` int64, in-edges of the vertices of each part."""
    counts = np.zeros(num_parts, np.int64)
    for dst in range(indptr.size - 1):
        counts[owner[dst]] += indptr[dst + 1] - indptr[dst]
    return counts


@compiled(inline="always")
def _bit(part: int, first_part: int) -> np.uint64:
    """The bit of `part` in a pass that starts at `first_part`, 0 when it belongs to another pass."""
    shift = part - first_part
    return np.uint64(1) << np.uint64(shift) if 0 <= shift < 64 else np.uint64(0)


@compiled(nogil=True)
def _mark_full(
    indptr: np.ndarray, indices: np.ndarray, owner: np.ndarray, first_part: int, bits: np.ndarray
) -> None:
    for dst in range(indptr.size - 1):
        bit = _bit(np.int64(owner[dst]), first_part)
        if bit == np.uint64(0):
            continue
        bits[dst] |= bit
        for edge in range(indptr[dst], indptr[dst + 1]):
            bits[indices[edge]] |= bit


@compiled(nogil=True)
def _mark_cut(
    indptr: np.ndarray,
    indices: np.ndarray,
    owner: np.ndarray,
    edge_owner: np.ndarray,
    first_part: int,
    bits: np.ndarray,
) -> None:
    for dst in range(indptr.size - 1):
        bits[dst] |= _bit(np.int64(owner[dst]), first_part)
        for edge in range(indptr[dst], indptr[dst + 1]):
            bit = _bit(np.int64(edge_owner[edge]), first_part)
            bits[dst] |= bit
            bits[indices[edge]] |= bit


@compiled(nogil=True)
def _add_bits(bits: np.ndarray, counts: np.ndarray) -> None:
    for vertex in range(bits.size):
        word = bits[vertex]
        part = 0
        while word != np.uint64(0):
            counts[part] += np.int64(word & np.uint64(1))
            word >>= np.uint64(1)
            part += 1


class Replicas(NamedTuple):
    """Distinct vertices that each part holds, `[num_parts]` int64.

    Attributes:
        full: the vertices it owns, and all their in-neighbours.
        cut: the vertices it owns, and both ends of its edges.
        either: what is in `full` or in `cut`.
    """

    full: np.ndarray
    cut: np.ndarray
    either: np.ndarray


def count_replicas(
    indptr: np.ndarray, indices: np.ndarray, owner: np.ndarray, edge_owner: np.ndarray | None, num_parts: int
) -> Replicas:
    """Vertices of every part; uses 8 bytes per vertex, 16 with owners of edges, and num_parts / 64 passes.

    Args:
        indptr: `[V + 1]` int64.
        indices: `[E]` sources.
        owner: `[V]` part of each vertex.
        edge_owner: `[E]` part of each edge; without it, that of its destination, and all three counts are the same.
        num_parts: number of parts; every owner is below it.
    """
    full, cut, either = (np.zeros(num_parts, np.int64) for _ in range(3))
    for first in range(0, num_parts, PARTS_PER_PASS):
        these = slice(first, first + PARTS_PER_PASS)
        bits = np.zeros(indptr.size - 1, np.uint64)
        _mark_full(indptr, indices, owner, first, bits)
        _add_bits(bits, full[these])
        if edge_owner is not None:
            bits_of_cut = np.zeros(indptr.size - 1, np.uint64)
            _mark_cut(indptr, indices, owner, edge_owner, first, bits_of_cut)
            _add_bits(bits_of_cut, cut[these])
            bits |= bits_of_cut
            _add_bits(bits, either[these])
    return Replicas(full, full, full) if edge_owner is None else Replicas(full, cut, either)
