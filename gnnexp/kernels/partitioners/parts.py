"""Sets of parts as bits, 64 per word, and loads of parts: functions that all rules to place edges share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gnnexp.kernels.compiled import compiled

ONE = np.uint64(1)
# Values of `outside` in `least_loaded`.
IN, NOT_IN = np.uint64(0), np.uint64((1 << 64) - 1)
_MOST = np.iinfo(np.int64).max


@intrinsic
def lowest_bit(typing: Any, word: Any) -> tuple[Any, Callable[..., Any]] | None:  # noqa: ANN401
    """`lowest_bit(word)`: number, int64, of the lowest bit that is set in a uint64, which must not be 0."""
    if word != types.uint64:
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(word), codegen


@compiled(inline="always")
def least_loaded(held: np.ndarray, first: int, second: int, outside: np.uint64, words: int, loads: np.ndarray) -> int:
    """The part with the fewest edges among the parts that two sets select, the lowest on ties; -1 if there is none.

    Args:
        held: `[V words]` uint64 sets of parts.
        first: position in `held` at which the first set starts.
        second: position in `held` at which the second set starts; may equal `first`.
        outside: `IN` selects the parts in both sets, `NOT_IN` the parts of the first set that are not in the second.
        words: words per set.
        loads: `[p]` edges of every part.
    """
    best, fewest = -1, _MOST
    for word in range(words):
        these = held[first + word] & (held[second + word] ^ outside)
        while these != np.uint64(0):
            part = 64 * word + lowest_bit(these)
            these &= these - ONE
            if loads[part] < fewest:
                best, fewest = part, loads[part]
    return best


@compiled(inline="always")
def held_or_least(held: np.ndarray, first: int, second: int, words: int, loads: np.ndarray, least: int) -> int:
    """The least loaded part in both sets; if there is none, in the first; if none, in the second; else `least`."""
    part = least_loaded(held, first, second, IN, words, loads)
    if part < 0:
        part = least_loaded(held, first, first, IN, words, loads)
    if part < 0:
        part = least_loaded(held, second, second, IN, words, loads)
    return part if part >= 0 else least


@compiled(inline="always")
def next_least(loads: np.ndarray, least: int) -> int:
    """The part with the fewest edges, the lowest on ties, after one edge was added to the previous one, `least`.

    Parts below `least` had more edges than `least`, so the search takes about one step per edge on average.
    """
    full = loads[least]
    for part in range(least + 1, loads.size):
        if loads[part] < full:
            return part
    for part in range(least):
        if loads[part] == full:
            return part
    return least


@compiled(inline="always")
def place_edge(held: np.ndarray, first: int, second: int, part: int, loads: np.ndarray, least: int) -> int:
    """Place an edge in `part`; returns the part with the fewest edges afterwards, the lowest on ties.

    Args:
        held: `[V words]` uint64 sets of parts, changed.
        first: position in `held` at which the set of one end starts.
        second: position in `held` at which the set of the other end starts.
        part: part of the edge.
        loads: `[p]` edges of every part, changed.
        least: the part with the fewest edges before, the lowest on ties.
    """
    word, bit = part >> 6, ONE << np.uint64(part & 63)
    held[first + word] |= bit
    held[second + word] |= bit
    loads[part] += 1
    return next_least(loads, least) if part == least else least
