"""One pass over a stream of edges that gives each to a part where its ends already are."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled


@compiled(nogil=True)
def _degrees(sources: np.ndarray, destinations: np.ndarray, num_nodes: int) -> np.ndarray:
    """`[V]` int64, in- and out-edges together; a self loop counts twice, as one of each."""
    degrees = np.zeros(num_nodes, np.int64)
    for edge in range(sources.size):
        degrees[sources[edge]] += 1
        degrees[destinations[edge]] += 1
    return degrees


@compiled(nogil=True)
def _least_loaded(bits: np.ndarray, one: int, other: int, loads: np.ndarray) -> int:
    """The part with the fewest edges among those that hold both vertices, the lowest on ties; -1 if there is none."""
    best = -1
    for word in range(bits.shape[1]):
        both = bits[one, word] & bits[other, word]
        part = 64 * word
        while both != np.uint64(0):
            if both & np.uint64(1) and (best < 0 or loads[part] < loads[best]):
                best = part
            both >>= np.uint64(1)
            part += 1
    return best


@compiled(nogil=True)
def place_edges(
    sources: np.ndarray, destinations: np.ndarray, order: np.ndarray, num_nodes: int, num_parts: int, owner: np.ndarray
) -> None:
    """Write the part of every edge into `owner`.

    Candidates are the parts that hold both ends; where there are none, those of the end with fewer edges in the whole
    graph (in and out together, the destination on ties); where it is in none, those of the other end; else all parts.
    The candidate with the fewest edges by then takes the edge, the lowest on ties. The parts of a self loop's only end
    are those that hold both. Takes 8 bytes per vertex for degrees and 8 ceil(num_parts / 64) for a bit set of parts.

    Args:
        sources: `[E]` ids.
        destinations: `[E]` ids.
        order: `[E]` int64, the edges as they are streamed; empty for 0, 1, 2, ...
        num_nodes: V.
        num_parts: number of parts.
        owner: `[E]` of a dtype that holds every part.
    """
    degrees = _degrees(sources, destinations, num_nodes)
    bits = np.zeros((num_nodes, (num_parts + 63) // 64), np.uint64)
    loads = np.zeros(num_parts, np.int64)
    for i in range(owner.size):
        edge = order[i] if order.size else i
        src, dst = np.int64(sources[edge]), np.int64(destinations[edge])
        part = _least_loaded(bits, src, dst, loads)
        if part < 0:
            fewer, more = (src, dst) if degrees[src] < degrees[dst] else (dst, src)
            part = _least_loaded(bits, fewer, fewer, loads)
            if part < 0:
                part = _least_loaded(bits, more, more, loads)
            if part < 0:
                part = np.argmin(loads)
        owner[edge] = part
        loads[part] += 1
        bit = np.uint64(1) << np.uint64(part & 63)
        bits[src, part >> 6] |= bit
        bits[dst, part >> 6] |= bit


def warm_up() -> None:
    """Compile it for common types."""
    ids = np.zeros(1, np.int32)
    place_edges(ids, ids, np.empty(0, np.int64), 1, 1, np.empty(1, np.int16))
