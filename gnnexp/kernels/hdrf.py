"""HDRF: an edge goes to the part that scores best for it, by replicas of its ends and by load."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.parts import ONE, hold, lowest_bit, next_least
from gnnexp.kernels.prefetch import prefetch
from gnnexp.kernels.stream import AHEAD


@compiled(inline="always")
def _best_part(
    held: np.ndarray, at_src: int, at_dst: int, words: int, loads: np.ndarray, gain_src: float, gain_dst: float,
    balance: float, most: int, least: int,
) -> int:
    """The part with the best score, the lowest on ties.

    Of the parts that hold neither end none scores better than the least loaded part of all: if that holds an end, it
    beats them, for replicas count 1 or more. So only parts that hold an end are looked at, and that one.
    """
    best, best_score = least, balance * (most - loads[least])
    for word in range(words):
        with_src, with_dst = held[at_src + word], held[at_dst + word]
        either = with_src | with_dst
        while either != np.uint64(0):
            bit = lowest_bit(either)
            either &= either - ONE
            part = 64 * word + bit
            score = gain_src * np.float64((with_src >> np.uint64(bit)) & ONE)
            score += gain_dst * np.float64((with_dst >> np.uint64(bit)) & ONE)
            score += balance * (most - loads[part])
            if score > best_score or (score == best_score and part < best):
                best, best_score = part, score
    return best


@compiled(nogil=True)
def place_edges(
    sources: np.ndarray, destinations: np.ndarray, degrees: np.ndarray, replicas: np.ndarray, loads: np.ndarray,
    weight: float, epsilon: float, streamed: bool, parts: np.ndarray,
) -> None:
    """Write the part of every edge into `parts` `[n]`.

    With t the share of an end in the degrees of both, a part scores 2 - t for each end that it holds, and
    weight (most - load) / (epsilon + most - fewest), with the loads of the fullest and of the emptiest part.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        degrees: `[V]` edges of every vertex, in and out.
        replicas: `[V, words]` uint64 sets of parts, changed.
        loads: `[p]` int64, changed.
        weight: above 0.
        epsilon: above 0.
        streamed: degrees are those of the stream so far; they are counted here, each edge before it is placed.
        parts: `[n]`.
    """
    words, held = replicas.shape[1], replicas.reshape(-1)
    last, least, most = sources.size - 1, np.argmin(loads), loads.max()
    for edge in range(sources.size):
        ahead = min(edge + AHEAD, last)
        for vertex in (np.int64(sources[ahead]), np.int64(destinations[ahead])):
            prefetch(degrees, vertex)
            prefetch(held, words * vertex)
        src, dst = np.int64(sources[edge]), np.int64(destinations[edge])
        at_src, at_dst = words * src, words * dst
        if streamed:
            degrees[src] += 1
            degrees[dst] += 1
        share = degrees[src] / (np.int64(degrees[src]) + degrees[dst])
        balance = weight / (epsilon + (most - loads[least]))
        part = _best_part(held, at_src, at_dst, words, loads, 2.0 - share, 1.0 + share, balance, most, least)
        parts[edge] = part
        hold(held, at_src, part)
        hold(held, at_dst, part)
        loads[part] += 1
        most = max(most, loads[part])
        if part == least:
            least = next_least(loads, least)


def warm_up() -> None:
    """Compile it for common types."""
    ids, replicas = np.zeros(1, np.int32), np.zeros((1, 1), np.uint64)
    place_edges(ids, ids, ids.copy(), replicas, np.zeros(1, np.int64), 1.0, 1.0, True, np.empty(1, np.int16))
