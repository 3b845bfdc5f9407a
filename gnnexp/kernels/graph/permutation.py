"""A keyed permutation of `0..count-1` and its inverse, computed element by element.

A Feistel network permutes the next power of two: each turn changes each half of the bits by a keyed hash of the other
half. A value outside of the range goes through the network again (Black & Rogaway, "Ciphers with arbitrary finite
domains", 2002): fewer than two times in the mean, because the power of two is below 2 count.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import U_GOLDEN, mix64

_1 = np.uint64(1)
# With two, some pairs of stubs of a block of 8 are matched five times as often as others.
_TURNS = 5


@compiled(inline="always")
def bits_of(count: int) -> np.uint64:
    """The number of bits of the smallest power of two from `count` on."""
    bits = np.uint64(0)
    while (_1 << bits) < np.uint64(count):
        bits += _1
    return bits


@compiled(inline="always")
def permuted(value: int, count: int, bits: np.uint64, key: np.uint64) -> np.int64:
    """The image of `value` in `0..count-1`; `bits` is `bits_of(count)`."""
    right = (bits + _1) >> _1
    low, high = (_1 << right) - _1, (_1 << bits) - (_1 << right)
    word = np.uint64(value)
    while True:
        for turn in range(_TURNS):
            own = key + U_GOLDEN * np.uint64(2 * turn)
            word ^= (mix64((word & low) ^ own) << right) & high
            word ^= mix64((word >> right) ^ (own + U_GOLDEN)) & low
        if word < np.uint64(count):
            return np.int64(word)


@compiled(inline="always")
def unpermuted(image: int, count: int, bits: np.uint64, key: np.uint64) -> np.int64:
    """The value whose image is `image`: the turns of `permuted` in reverse order, each of which is its own inverse."""
    right = (bits + _1) >> _1
    low, high = (_1 << right) - _1, (_1 << bits) - (_1 << right)
    word = np.uint64(image)
    while True:
        for turn in range(_TURNS - 1, -1, -1):
            own = key + U_GOLDEN * np.uint64(2 * turn)
            word ^= mix64((word >> right) ^ (own + U_GOLDEN)) & low
            word ^= (mix64((word & low) ^ own) << right) & high
        if word < np.uint64(count):
            return np.int64(word)
