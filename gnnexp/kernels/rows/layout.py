"""The shape of a row of floats in registers, for which kernels are compiled."""

from __future__ import annotations

from typing import NamedTuple

VECTOR_BYTES = 64
MAX_VECTORS = 16


class Code(int):
    """A `Layout` in one integer. A kernel argument of this type is a compile-time constant for the kernel."""


class Layout(NamedTuple):
    """Compile-time shape of a row.

    Attributes:
        lanes: floats per vector.
        count: vectors per row; the last vector ends with the row and may overlap the vector before.
        heads: weights per edge: 0 for none, 1 for one scalar, more for one weight per group of columns.
        head_width: columns per head, 0 unless heads > 1.
        permuted: 1 if the weight of edge e is at `edges[e]` (transposed order), 0 if it is at `e`.
    """

    lanes: int
    count: int
    heads: int = 0
    head_width: int = 0
    permuted: int = 0

    @property
    def code(self) -> Code:
        """The layout in one integer, which is passed to kernels."""
        packed = self.permuted
        for value, bits in ((self.head_width, 12), (self.heads, 12), (self.count, 8), (self.lanes, 8)):
            packed = packed << bits | value
        return Code(packed)

    @staticmethod
    def decode(code: int) -> Layout:
        """Inverse of `code`."""
        return Layout(code & 255, code >> 8 & 255, code >> 16 & 4095, code >> 28 & 4095, code >> 40 & 1)


def layout(width: int, itemsize: int, heads: int = 0, head_width: int = 0, permuted: bool = False) -> Layout:
    """The layout of a row of `width` floats of `itemsize` bytes (at most `max_width(itemsize)`)."""
    lanes = min(VECTOR_BYTES // itemsize, 1 << (width.bit_length() - 1))
    return Layout(lanes, -(-width // lanes), heads, head_width if heads > 1 else 0, int(permuted))


def max_width(itemsize: int) -> int:
    """Most columns of a row that stays in registers."""
    return MAX_VECTORS * VECTOR_BYTES // itemsize
