"""The home of every vertex in a vertex-cut, computed from a stream of edges and their parts."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.graph.stream import AHEAD
from gnnexp.kernels.partitioners.parts import next_least
from gnnexp.kernels.prefetch import prefetch


@compiled(nogil=True)
def keep_last(destinations: np.ndarray, parts: np.ndarray, homes: np.ndarray) -> None:
    """Set the home of every destination to the part of its last in-edge; `homes` `[V]`."""
    for edge in range(destinations.size):
        homes[destinations[edge]] = parts[edge]


@compiled(nogil=True)
def count_by_part(
    sources: np.ndarray, destinations: np.ndarray, parts: np.ndarray, first: int, counts: np.ndarray
) -> None:
    """Count the edges of every vertex by part in `counts` `[V, g]`, for the parts `first` to `first + g - 1`.

    A self loop counts once.
    """
    group, flat = counts.shape[1], counts.reshape(-1)
    last = sources.size - 1
    for edge in range(sources.size):
        ahead = min(edge + AHEAD, last)
        shift = np.int64(parts[ahead]) - first
        prefetch(flat, group * np.int64(sources[ahead]) + shift)
        prefetch(flat, group * np.int64(destinations[ahead]) + shift)
        column = np.int64(parts[edge]) - first
        if 0 <= column < group:
            source, destination = np.int64(sources[edge]), np.int64(destinations[edge])
            flat[group * destination + column] += 1
            if source != destination:
                flat[group * source + column] += 1


@compiled(nogil=True)
def keep_most(counts: np.ndarray, first: int, most: np.ndarray, homes: np.ndarray) -> None:
    """Set the home to the part with the most edges so far; parts come in ascending order, so the lowest wins ties."""
    for vertex in range(counts.shape[0]):
        for column in range(counts.shape[1]):
            if counts[vertex, column] > most[vertex]:
                most[vertex] = counts[vertex, column]
                homes[vertex] = first + column


@compiled(nogil=True)
def place_homeless(homes: np.ndarray, num_parts: int) -> None:
    """Give each vertex with home -1, by ascending id, to the part with the fewest vertices then; the lowest on ties."""
    sizes = np.zeros(num_parts, np.int64)
    for vertex in range(homes.size):
        if homes[vertex] >= 0:
            sizes[homes[vertex]] += 1
    least = np.argmin(sizes)
    for vertex in range(homes.size):
        if homes[vertex] < 0:
            homes[vertex] = least
            sizes[least] += 1
            least = next_least(sizes, least)


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    ids, parts, homes = np.zeros(1, np.int32), np.zeros(1, np.int16), np.zeros(1, np.int16)
    counts, most = np.zeros((1, 1), np.int32), np.zeros(1, np.int32)
    keep_last(ids, parts, homes)
    count_by_part(ids, ids, parts, 0, counts)
    keep_most(counts, 0, most, homes)
    place_homeless(homes, 1)
