"""Randomness as a pure function: a counter-based generator over 64-bit words.

Every draw of gnnexp is `hash(key, counter)`. The key absorbs (seed, purpose, epoch, step, hop or layer, original vertex
id), and the counter is the number of the draw. No key depends on rank, thread, local id or chunk, so 1 worker and 8
workers draw the same global batch (docs/rooms.md, "Randomness").

The mixer is the finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014; constants of Stafford's variant 13): full avalanche, 3 multiplications. With a weak key, consecutive hops
are correlated although every marginal test passes. So each word is mixed before the next one is absorbed.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from gnnexp.kernels.compiled import compiled

_MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
_MUL1 = 0xBF58476D1CE4E5B9
_MUL2 = 0x94D049BB133111EB

U_GOLDEN = np.uint64(GOLDEN)
_U_MUL1 = np.uint64(_MUL1)
_U_MUL2 = np.uint64(_MUL2)
_S30, _S27, _S31, _S32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class Purpose(IntEnum):
    """The purpose of a draw: different purposes never share a stream."""

    SAMPLE = 1
    DROPOUT = 2
    ATTENTION_DROPOUT = 3
    SHUFFLE = 4
    NEGATIVE = 5
    SPLIT = 6
    GENERATE = 7
    PARTITION = 8
    INIT = 9
    PRESAMPLE = 10


def mix(word: int) -> int:
    """The mixer on a Python integer, taken modulo 2^64."""
    word &= _MASK
    word = ((word ^ (word >> 30)) * _MUL1) & _MASK
    word = ((word ^ (word >> 27)) * _MUL2) & _MASK
    return word ^ (word >> 31)


def stream(seed: int, purpose: Purpose, *words: int) -> int:
    """The 64-bit key that absorbs `seed`, `purpose` and every word, in this order."""
    state = mix(seed + GOLDEN)
    for word in (int(purpose), *words):
        state = mix(state ^ mix(word + GOLDEN))
    return state


def streams(count: int, seed: int, purpose: Purpose, *words: int) -> list[int]:
    """`stream(seed, purpose, *words, i)` for i = 0 to `count - 1`: the keys of all hops or layers of a batch."""
    state = stream(seed, purpose, *words)
    return [mix(state ^ mix(i + GOLDEN)) for i in range(count)]


@compiled(inline="always")
def mix64(word: np.uint64) -> np.uint64:
    """`mix` on `uint64`, for numba kernels."""
    word = (word ^ (word >> _S30)) * _U_MUL1
    word = (word ^ (word >> _S27)) * _U_MUL2
    return word ^ (word >> _S31)


@compiled(inline="always")
def absorb(state: np.uint64, word: np.uint64) -> np.uint64:
    """`state` after it has absorbed one more word; equals one step of `stream`."""
    return mix64(state ^ mix64(word + U_GOLDEN))


@compiled(inline="always")
def draw(key: np.uint64, counter: np.uint64) -> np.uint64:
    """The `counter`-th 64-bit draw of the stream `key` (splitmix64 sequence)."""
    return mix64(key + (counter + np.uint64(1)) * U_GOLDEN)


@compiled(inline="always")
def bounded(word: np.uint64, bound: np.uint64) -> np.uint64:
    """High half of the 128-bit product: uniform on 0..bound-1 for a bound below 2^32, up to a bias below 2^-32."""
    return ((word >> _S32) * bound + (((word & _LOW) * bound) >> _S32)) >> _S32


@compiled()
def uniform_words(key: np.uint64, count: int) -> np.ndarray:
    """The first `count` draws of stream `key`, `[count]` uint64."""
    words = np.empty(count, np.uint64)
    for i in range(count):
        words[i] = draw(key, np.uint64(i))
    return words


def permutation(key: int, count: int) -> np.ndarray:
    """A permutation of `0..count-1` that is a pure function of `key`, `[count]` int64."""
    return np.argsort(uniform_words(np.uint64(key), count), kind="stable")
