"""Degree-based hashing: an edge goes to the part that the hash of its lower-degree end selects."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import draw
from gnnexp.kernels.graph.stream import AHEAD
from gnnexp.kernels.prefetch import prefetch

_S32 = np.uint64(32)


@compiled(inline="always")
def hashed_part(key: np.uint64, vertex: int, num_parts: int) -> int:
    """A part below `num_parts` (at most 2^31), a pure function of `key` and `vertex`."""
    part: int = np.int64(((draw(key, np.uint64(vertex)) >> _S32) * np.uint64(num_parts)) >> _S32)
    return part


@compiled(nogil=True)
def place_by_hash(
    sources: np.ndarray,
    destinations: np.ndarray,
    degrees: np.ndarray,
    streamed: bool,
    key: np.uint64,
    num_parts: int,
    parts: np.ndarray,
) -> None:
    """Write the part of every edge to `parts` `[n]`: the hash of the end with fewer edges, of the destination on ties.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        degrees: `[V]` edges of every vertex, in and out.
        streamed: whether `degrees` are those of the stream so far; each edge is then counted before it is placed.
        key: key of the hash.
        num_parts: p.
        parts: `[n]`, filled.
    """
    last = sources.size - 1
    for edge in range(sources.size):
        ahead = min(edge + AHEAD, last)
        prefetch(degrees, sources[ahead])
        prefetch(degrees, destinations[ahead])
        src, dst = sources[edge], destinations[edge]
        if streamed:
            degrees[src] += 1
            degrees[dst] += 1
        parts[edge] = hashed_part(key, src if degrees[src] < degrees[dst] else dst, num_parts)


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    ids = np.zeros(1, np.int32)
    place_by_hash(ids, ids, ids.copy(), True, np.uint64(0), 1, np.empty(1, np.int16))
