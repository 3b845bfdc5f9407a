"""The generator of `kernels.counter` in int64 tensor arithmetic of torch: slow, but for any device.

torch has no arithmetic on unsigned words. Sums and products of signed integers wrap in the same way. Only shifts to the
right must handle the sign.
"""

from __future__ import annotations

from torch import Tensor

from gnnexp.kernels import counter

LOW32 = 0xFFFFFFFF


def signed(word: int, bits: int = 64) -> int:
    """The signed integer of so many bits that has the bits of a word."""
    word &= (1 << bits) - 1
    return word - (1 << bits) if word >> (bits - 1) else word


_GOLDEN, _MUL1, _MUL2 = signed(counter.GOLDEN), signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB)


def shifted(word: Tensor, bits: int) -> Tensor:
    """A shift of int64 or int32 to the right that fills in zeros."""
    return (word >> bits) & ((1 << (8 * word.element_size() - bits)) - 1)


def mix64(word: Tensor) -> Tensor:
    """`counter.mix64`."""
    word = (word ^ shifted(word, 30)) * _MUL1
    word = (word ^ shifted(word, 27)) * _MUL2
    return word ^ shifted(word, 31)


def absorb(state: Tensor | int, word: Tensor) -> Tensor:
    """`counter.absorb`."""
    return mix64(state ^ mix64(word + _GOLDEN))


def draw(key: Tensor, number: Tensor | int) -> Tensor:
    """`counter.draw`."""
    step = signed((number + 1) * counter.GOLDEN) if isinstance(number, int) else (number + 1) * _GOLDEN
    return mix64(key + step)


def bounded(word: Tensor, bound: Tensor) -> Tensor:
    """`counter.bounded`, for a bound below 2^32."""
    return shifted(shifted(word, 32) * bound + shifted((word & LOW32) * bound, 32), 32)
