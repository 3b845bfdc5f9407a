"""Drawing negatives of links: every draw is a function of the batch, the link, which negative and which try."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import prange

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import absorb, bounded, draw
from gnnexp.kernels.graph.links import holds, may_hold

_U = np.uint64
_1 = _U(1)

# Of a pair whose head has a share q of all vertices among its tails, q ** TRIES of the negatives are links still.
TRIES = 16


class Replaced(IntEnum):
    """Which end of a link a negative draws anew."""

    HEAD = 0
    TAIL = 1
    EITHER = 2  # by a coin per negative
    BOTH = 3


_HEAD, _TAIL, _EITHER = int(Replaced.HEAD), int(Replaced.TAIL), int(Replaced.EITHER)


@compiled(nogil=True)
def _end(word: np.uint64, links: np.ndarray, others: np.ndarray, place: int, column: int, num_nodes: int) -> np.int64:
    """The vertex that `word` draws: an end of one of `others`, that at `place` left out, or any vertex."""
    if others.size < 2:
        return np.int64(bounded(word, _U(num_nodes)))
    other = np.int64(bounded(word, _U(others.size - 1)))
    return links[others[other + (other >= place)], column]


@compiled(nogil=True)
def _pair(
    links: np.ndarray, link: int, others: np.ndarray, place: int, num_nodes: int, replaced: int, words: np.uint64,
    attempt: int,
) -> tuple[np.int64, np.int64]:
    """Head and tail that a negative of `link` with the draws `words` has in its `attempt`-th try."""
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
    links: np.ndarray, chosen: np.ndarray, others: np.ndarray, num_nodes: int, count: int, replaced: int,
    sieve: np.ndarray, indptr: np.ndarray, tails: np.ndarray, types: np.ndarray, key: np.uint64, out: np.ndarray,
) -> None:
    """Draw `count` negatives of each chosen link.

    Draw i of try a of negative j of link l is `draw(absorb(absorb(key, l), j), 2 a + i + 1)`, head before tail; draw 0
    is the coin.

    Args:
        links: `[n, 2 | 3]` int64: head, relation where there are three columns, tail.
        chosen: `[t]` numbers of links.
        others: `[T]` ascending numbers of the links whose ends are drawn; of fewer than two, and of none, vertices are.
        num_nodes: V, below 2^32.
        count: k.
        replaced: a `Replaced`.
        sieve: of the links that are no negatives (`make_sieve`); empty: all may be drawn.
        indptr: `[V + 1]` of them by head.
        tails: `[m]` their tails.
        types: `[m]` their relations, or empty.
        key: stream of the batch.
        out: `[2, t * k]` int64, filled with heads and tails, the first link's negatives first.
    """
    for i in range(chosen.size):
        own, place = absorb(key, _U(chosen[i])), np.searchsorted(others, chosen[i])
        for j in range(count):
            pair = _pair(links, chosen[i], others, place, num_nodes, replaced, absorb(own, _U(j)), 0)
            out[0, i * count + j], out[1, i * count + j] = pair
    if sieve.size == 0:
        return
    # Apart from the draws, so that reads of the sieve do not wait for them, nor for the few pairs that are looked up.
    for i in range(chosen.size):
        kind = links[chosen[i], 1] if links.shape[1] == 3 else 0
        for j in range(count):
            head, tail, attempt = out[0, i * count + j], out[1, i * count + j], 1
            while attempt < TRIES and may_hold(sieve, head, kind, tail) and holds(
                tails, types, indptr[head], indptr[head + 1], tail, kind
            ):
                words, place = absorb(absorb(key, _U(chosen[i])), _U(j)), np.searchsorted(others, chosen[i])
                head, tail = _pair(links, chosen[i], others, place, num_nodes, replaced, words, attempt)
                attempt += 1
            out[0, i * count + j], out[1, i * count + j] = head, tail


@compiled(parallel=True)
def kept_columns(key: np.uint64, numbers: np.ndarray, num_columns: int, dropped: float) -> np.ndarray:
    """`[p, num_columns]` bool: which columns of the pairs `numbers` `[p]` int64 stay; `dropped` is the probability."""
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
    """Compile it for common types."""
    ids, row, none, out = np.zeros(1, np.int64), np.array([0, 0]), np.empty(0, np.int32), np.zeros((2, 1), np.int64)
    for links in (np.zeros((1, 2), np.int64), np.zeros((1, 3), np.int64)):
        draw_negatives(links, ids, ids, 1, 1, _TAIL, np.zeros(1, np.uint64), row, none, none, _U(0), out)
    kept_columns(_U(0), ids, 1, 0.5)
