"""The counter-based generator: one definition in Python and in kernels, well mixed, known values."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gnnexp.kernels.counter import (
    GOLDEN,
    Purpose,
    absorb,
    draw,
    mix,
    mix64,
    permutation,
    stream,
    uniform_words,
)

WORDS = st.integers(0, 2**64 - 1)


@numba.njit
def in_kernel(state: np.uint64, word: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    return mix64(state), absorb(state, word), draw(state, word)


def test_known_values_of_splitmix64() -> None:
    # First outputs of Vigna's splitmix64.c for the seeds 0 and 1234567.
    assert [int(word) for word in uniform_words(np.uint64(0), 2)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    assert [int(word) for word in uniform_words(np.uint64(1234567), 2)] == [6457827717110365317, 3203168211198807973]


@given(WORDS, WORDS)
def test_kernels_and_python_agree(state: int, word: int) -> None:
    mixed, absorbed, drawn = in_kernel(np.uint64(state), np.uint64(word))
    assert int(mixed) == mix(state)
    assert int(absorbed) == mix(state ^ mix(word + GOLDEN))
    assert int(drawn) == mix(state + (word + 1) * GOLDEN)


@given(st.integers(0, 2**63 - 1), st.lists(st.integers(-1, 2**40), min_size=1, max_size=4))
def test_stream_absorbs_words_one_by_one(seed: int, words: list[int]) -> None:
    prefix, last = stream(seed, Purpose.SAMPLE, *words[:-1]), words[-1]
    # -1 (BatchKey.micro of a shared key) is the word 2^64 - 1 in a kernel.
    assert stream(seed, Purpose.SAMPLE, *words) == int(in_kernel(np.uint64(prefix), np.uint64(last % 2**64))[1])


def test_streams_differ_in_every_word_in_their_order_and_in_the_purpose() -> None:
    keys = {
        stream(seed, purpose, *words)
        for seed in (0, 1)
        for purpose in Purpose
        for words in ((), (0,), (1,), (0, 0), (0, 1), (1, 0), (-1,), (0, 0, 0))
    }
    assert len(keys) == 2 * len(Purpose) * 8


@pytest.mark.parametrize("function", [mix, lambda word: mix(7 ^ mix(word + GOLDEN))])
def test_every_input_bit_flips_half_of_the_output_bits(function: object) -> None:
    generator = np.random.default_rng(0)
    words = [int(word) for word in generator.integers(0, 2**63, 300)] + list(range(100))
    flips = np.zeros((64, 64))
    for word in words:
        plain = function(word)  # type: ignore[operator]
        for bit in range(64):
            changed = plain ^ function(word ^ (1 << bit))  # type: ignore[operator]
            flips[bit] += [(changed >> out) & 1 for out in range(64)]
    # 4096 binomials of 400 trials: 6 standard deviations are 0.15.
    assert np.abs(flips / len(words) - 0.5).max() < 0.15


def test_words_are_uniform_in_every_byte() -> None:
    words = uniform_words(np.uint64(stream(3, Purpose.DROPOUT, 1)), 100_000)
    for byte in range(8):
        counts = np.bincount(((words >> np.uint64(8 * byte)) & np.uint64(255)).astype(np.int64), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-6


@given(WORDS, st.integers(0, 200))
def test_permutation_is_a_pure_function(key: int, count: int) -> None:
    order = permutation(key, count)
    assert sorted(order.tolist()) == list(range(count))
    assert (order == permutation(key, count)).all()


def test_permutations_are_uniform() -> None:
    seen: dict[tuple[int, ...], int] = {}
    for key in range(6000):
        order = tuple(permutation(stream(0, Purpose.SHUFFLE, key), 3).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6
