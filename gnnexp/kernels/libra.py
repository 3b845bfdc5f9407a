"""One pass over a stream of edges that gives each the least loaded part of those that hold one of its ends."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def _least_loaded(bits: np.ndarray, src: int, dst: int, loads: np.ndarray) -> int:
    """The part with the fewest edges among those that hold `src` or `dst`, or of all if none does; lowest on ties."""
    best = -1
    for word in range(bits.shape[1]):
        relevant = bits[src, word] | bits[dst, word]
        part = 64 * word
        while relevant != np.uint64(0):
            if relevant & np.uint64(1) and (best < 0 or loads[part] < loads[best]):
                best = part
            relevant >>= np.uint64(1)
            part += 1
    if best < 0:
        best = np.argmin(loads)
    return best


@numba.njit(nogil=True, cache=True)
def place_edges(
    sources: np.ndarray, destinations: np.ndarray, order: np.ndarray, num_nodes: int, num_parts: int, owner: np.ndarray
) -> None:
    """Write the part of every edge into `owner`; keeps a bit set of parts per vertex, 8 ceil(num_parts / 64) bytes.

    Args:
        sources: `[E]` ids.
        destinations: `[E]` ids.
        order: `[E]` int64, the edges as they are streamed; empty for 0, 1, 2, ...
        num_nodes: V.
        num_parts: number of parts.
        owner: `[E]` of a dtype that holds every part.
    """
    bits = np.zeros((num_nodes, (num_parts + 63) // 64), np.uint64)
    loads = np.zeros(num_parts, np.int64)
    for i in range(owner.size):
        edge = order[i] if order.size else i
        src, dst = np.int64(sources[edge]), np.int64(destinations[edge])
        part = _least_loaded(bits, src, dst, loads)
        owner[edge] = part
        loads[part] += 1
        bit = np.uint64(1) << np.uint64(part & 63)
        bits[src, part >> 6] |= bit
        bits[dst, part >> 6] |= bit


def warm_up() -> None:
    """Compile it for common types."""
    ids = np.zeros(1, np.int32)
    place_edges(ids, ids, np.empty(0, np.int64), 1, 1, np.empty(1, np.int16))
