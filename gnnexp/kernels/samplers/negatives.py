"""Draw negatives of links: every draw is a function of the batch, the link, the negative's number and the attempt."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import prange

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import absorb, bounded, draw
from gnnexp.kernels.graph.links import holds, may_hold

_U = np.uint64
_1 = _U(1)

# Most attempts per negative. If a head has links to a share q of all vertices, a share q ** TRIES of its negatives are
# still links.
TRIES = 16


class Replaced(IntEnum):
    """The end of a link that is drawn for a negative; the other end is kept."""

    HEAD = 0
    TAIL = 1
    EITHER = 2  # by a coin per negative
    BOTH = 3


_HEAD, _TAIL, _EITHER = int(Replaced.HEAD), int(Replaced.TAIL), int(Replaced.EITHER)


@compiled(nogil=True)
def _end(word: np.uint64, links: np.ndarray, others: np.ndarray, place: int, column: int, num_nodes: int) -> np.int64:
    """The vertex that `word` draws: an end of one of the links `others` except `others[place]`, or any vertex.

    Any vertex is drawn if there are fewer than two `others`.
    """
    if others.size < 2:
        return np.int64(bounded(word, _U(num_nodes)))
    other = np.int64(bounded(word, _U(others.size - 1)))
    return links[others[other + (other >= place)], column]


@compiled(nogil=True)
def _pair(
    links: np.ndarray,
    link: int,
    others: np.ndarray,
    place: int,
    num_nodes: int,
    replaced: int,
    words: np.uint64,
    attempt: int,
) -> tuple[np.int64, np.int64]:
    """Head and tail of a negative of `link` in its `attempt`-th attempt; `words` is the key of its draws."""
    last = links.shape[1] - 1
    head, tail, first = links[link, 0], links[link, last], _U(2 * attempt + 1)
    side = np.int64(draw(words, _U(0)) >> _U(63)) if replaced == _EITHER else replaced
    if side != _TAIL:
        head = _end(draw(words, first), links, others, place, 0, num_nodes)
    if side != _HEAD:
        tail = _end(draw(words, first + _1), links, others, place, last, num_nodes)
    return head, tail


@compiled(nogil=True)
def draw_negatives(
    links: np.ndarray,
    chosen: np.ndarray,
    others: np.ndarray,
    num_nodes: int,
    count: int,
    replaced: int,
    sieve: np.ndarray,
    indptr: np.ndarray,
    tails: np.ndarray,
    types: np.ndarray,
    key: np.uint64,
    out: np.ndarray,
) -> None:
    """Draw `count` negatives of each chosen link.

    Draw i of attempt a of negative j of link l is `draw(absorb(absorb(key, l), j), 2 a + i + 1)`, head before tail.
    Draw 0 of the same key decides between head and tail if `replaced` is `EITHER`.

    Args:
        links: `[n, 2 | 3]` int64: head, relation (only with three columns), tail.
        chosen: `[t]` numbers of the links that get negatives.
        others: `[T]` numbers of the links whose ends are drawn, ascending; with fewer than two, any vertex is drawn.
        num_nodes: V, below 2^32.
        count: k, negatives per link.
        replaced: a `Replaced`.
        sieve: sieve of the links that must not be drawn (`make_sieve`); empty: all pairs may be drawn.
        indptr: `[V + 1]` bounds of the links that must not be drawn, by head.
        tails: `[m]` tails of the links that must not be drawn.
        types: `[m]` relations of the links that must not be drawn, or empty.
        key: key of the batch's random stream.
        out: `[2, t * k]` int64, filled with heads and tails, the first link's negatives first.
    """
    for i in range(chosen.size):
        own, place = absorb(key, _U(chosen[i])), np.searchsorted(others, chosen[i])
        for j in range(count):
            pair = _pair(links, chosen[i], others, place, num_nodes, replaced, absorb(own, _U(j)), 0)
            out[0, i * count + j], out[1, i * count + j] = pair
    if sieve.size == 0:
        return
    # A separate loop: so reads of the sieve wait neither for draws nor for the few pairs that need a search.
    for i in range(chosen.size):
        kind = links[chosen[i], 1] if links.shape[1] == 3 else 0
        for j in range(count):
            head, tail, attempt = out[0, i * count + j], out[1, i * count + j], 1
            while (
                attempt < TRIES
                and may_hold(sieve, head, kind, tail)
                and holds(tails, types, indptr[head], indptr[head + 1], tail, kind)
            ):
                words, place = absorb(absorb(key, _U(chosen[i])), _U(j)), np.searchsorted(others, chosen[i])
                head, tail = _pair(links, chosen[i], others, place, num_nodes, replaced, words, attempt)
                attempt += 1
            out[0, i * count + j], out[1, i * count + j] = head, tail


@compiled(parallel=True)
def kept_pair_columns(key: np.uint64, numbers: np.ndarray, num_columns: int, dropped: float) -> np.ndarray:
    """Which columns are kept, `[p, num_columns]` bool, for the pairs `numbers` `[p]` int64.

    A column is dropped with probability `dropped`.
    """
    kept = np.empty((numbers.size, num_columns), np.bool_)
    threshold = _U(dropped * 2.0**32)
    for row in prange(numbers.size):
        state = absorb(key, _U(numbers[row]))
        for column in range(0, num_columns, 2):  # a draw has bits for two
            word = draw(state, _U(column >> 1))
            kept[row, column] = (word >> _U(32)) >= threshold
            if column + 1 < num_columns:
                kept[row, column + 1] = (word & _U(0xFFFFFFFF)) >= threshold
    return kept


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    ids, row, none, out = np.zeros(1, np.int64), np.array([0, 0]), np.empty(0, np.int32), np.zeros((2, 1), np.int64)
    for links in (np.zeros((1, 2), np.int64), np.zeros((1, 3), np.int64)):
        draw_negatives(links, ids, ids, 1, 1, _TAIL, np.zeros(1, np.uint64), row, none, none, _U(0), out)
    kept_pair_columns(_U(0), ids, 1, 0.5)
