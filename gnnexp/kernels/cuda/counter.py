"""The counter-based generator of `gnnexp.kernels.counter` in Triton, bit for bit.

All words are uint64 tensors, or scalars that a kernel has cast: a product of two Python integers would not wrap.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gnnexp.kernels import counter

_GOLDEN = tl.constexpr(counter.GOLDEN)
_MUL1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MUL2 = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def mix64(word: tl.tensor) -> tl.tensor:
    """The mixer of splitmix64."""
    word = (word ^ (word >> 30)) * _MUL1
    word = (word ^ (word >> 27)) * _MUL2
    return word ^ (word >> 31)


@triton.jit
def absorb(state: tl.tensor, word: tl.tensor) -> tl.tensor:
    """`state` after it has absorbed one more word."""
    return mix64(state ^ mix64(word + _GOLDEN))


@triton.jit
def draw(key: tl.tensor, counter: tl.tensor) -> tl.tensor:
    """The `counter`-th 64-bit draw of the stream `key`."""
    return mix64(key + (counter + 1) * _GOLDEN)


@triton.jit
def bounded(word: tl.tensor, bound: tl.tensor) -> tl.tensor:
    """High half of the 128-bit product: uniform on 0..bound-1 for a bound below 2^32, up to a bias below 2^-32."""
    return ((word >> 32) * bound + (((word & 0xFFFFFFFF) * bound) >> 32)) >> 32
