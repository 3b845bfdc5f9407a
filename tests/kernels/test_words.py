"""The generator in int64 arithmetic of torch."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.kernels import words
from gnnexp.kernels.counter import GOLDEN, mix

WORDS = st.integers(0, (1 << 64) - 1)


def signed(word: int) -> torch.Tensor:
    return torch.tensor([word - (1 << 64) if word >> 63 else word])


def unsigned(word: torch.Tensor) -> int:
    return int(word) & ((1 << 64) - 1)


@given(WORDS, WORDS, st.integers(0, 5000), st.integers(1, (1 << 32) - 1))
def test_the_generator_in_int64_gives_the_words_of_uint64(word: int, state: int, number: int, bound: int) -> None:
    mask = (1 << 64) - 1
    drawn = mix((word + (number + 1) * GOLDEN) & mask)
    assert unsigned(words.mix64(signed(word))) == mix(word)
    assert unsigned(words.absorb(signed(state), signed(word))) == mix(state ^ mix(word + GOLDEN))
    assert unsigned(words.draw(signed(word), torch.tensor([number]))) == drawn
    assert unsigned(words.draw(signed(word), number)) == drawn
    assert unsigned(words.bounded(signed(word), torch.tensor([bound]))) == (word * bound) >> 64
