"""HDRF: an edge goes to the part with the best score, which depends on replicas of the ends and on the load."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.graph.stream import ask_for_ends
from gnnexp.kernels.partitioners.parts import IN, NOT_IN, least_loaded, place_edge


@compiled(inline="always")
def _is_better(best: int, best_score: float, part: int, score: float) -> bool:
    """Whether `part` is better than the best part so far; -1 is no part, and its score has no meaning."""
    return part >= 0 and (score > best_score or (score == best_score and part < best))


@compiled(inline="always")
def _best_part(
    held: np.ndarray,
    at_src: int,
    at_dst: int,
    words: int,
    loads: np.ndarray,
    gain_src: float,
    gain_dst: float,
    balance: float,
    most: int,
    least: int,
) -> int:
    """The part with the best score, the lowest on ties.

    Among parts that hold the same ends, the least loaded part has the best score. Two searches can be left out:

    - Parts without an end: only the least loaded part of all is compared. If that part holds an end, its score is
      better, because an end adds 1 or more.
    - Parts with one end, if they cannot reach the best part with both ends. With `weight` of 1 or less they never can.
    """
    emptiest = balance * (most - loads[least])
    best, best_score = least, emptiest
    part = least_loaded(held, at_src, at_dst, IN, words, loads)
    score = gain_src + gain_dst + balance * (most - loads[part])
    if _is_better(best, best_score, part, score):
        best, best_score = part, score
    if best_score <= max(gain_src, gain_dst) + emptiest:
        part = least_loaded(held, at_src, at_dst, NOT_IN, words, loads)
        score = gain_src + balance * (most - loads[part])
        if _is_better(best, best_score, part, score):
            best, best_score = part, score
        part = least_loaded(held, at_dst, at_src, NOT_IN, words, loads)
        score = gain_dst + balance * (most - loads[part])
        if _is_better(best, best_score, part, score):
            best, best_score = part, score
    return best


@compiled(nogil=True)
def place_by_score(
    sources: np.ndarray,
    destinations: np.ndarray,
    degrees: np.ndarray,
    replicas: np.ndarray,
    loads: np.ndarray,
    weight: float,
    epsilon: float,
    streamed: bool,
    parts: np.ndarray,
) -> None:
    """Write the part of every edge to `parts` `[n]`.

    The score of a part is the sum of 2 - t for each end that it holds, plus
    weight (most - load) / (epsilon + most - fewest). Here t is the degree of the end over the sum of both degrees, and
    most and fewest are the loads of the fullest and of the emptiest part.

    Args:
        sources: `[n]` ids.
        destinations: `[n]` ids.
        degrees: `[V]` edges of every vertex, in and out.
        replicas: `[V, words]` uint64, set of the parts that hold each vertex, changed.
        loads: `[p]` int64 edges of every part, changed.
        weight: weight of the balance term, above 0.
        epsilon: above 0; keeps the balance term finite.
        streamed: whether `degrees` are those of the stream so far; each edge is then counted before it is placed.
        parts: `[n]`, filled.
    """
    words, held = replicas.shape[1], replicas.reshape(-1)
    least, most = np.argmin(loads), loads.max()
    for edge in range(sources.size):
        ask_for_ends(sources, destinations, edge, degrees, held, words)
        src, dst = np.int64(sources[edge]), np.int64(destinations[edge])
        at_src, at_dst = words * src, words * dst
        if streamed:
            degrees[src] += 1
            degrees[dst] += 1
        share = degrees[src] / (np.int64(degrees[src]) + degrees[dst])
        balance = weight / (epsilon + (most - loads[least]))
        part = _best_part(held, at_src, at_dst, words, loads, 2.0 - share, 1.0 + share, balance, most, least)
        parts[edge] = part
        least = place_edge(held, at_src, at_dst, part, loads, least)
        most = max(most, loads[part])


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    ids, replicas = np.zeros(1, np.int32), np.zeros((1, 1), np.uint64)
    place_by_score(ids, ids, ids.copy(), replicas, np.zeros(1, np.int64), 1.0, 1.0, True, np.empty(1, np.int16))
