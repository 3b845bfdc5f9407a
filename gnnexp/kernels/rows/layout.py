"""The shape of a row of floats in registers, as kernels are compiled for it."""

from __future__ import annotations

from typing import NamedTuple

VECTOR_BYTES = 64
MAX_VECTORS = 16


class Code(int):
    """A `Layout` in one integer: an argument that is a constant to the kernel it is passed to."""


class Layout(NamedTuple):
    """Compile-time shape of a row.

    Attributes:
        lanes: floats per vector.
        count: vectors per row; the last one ends with the row and may overlap the one before.
        heads: weights per edge: 0 for none, 1 for one scalar, more for equal groups of columns.
        head_width: columns per head, 0 unless heads > 1.
        permuted: 1 when an edge's weight lies at `edges[e]` (transposed order), 0 when at `e`.
    """

    lanes: int
    count: int
    heads: int = 0
    head_width: int = 0
    permuted: int = 0

    @property
    def code(self) -> Code:
        """All of it in one integer, to be passed to a kernel."""
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
    """Widest row that stays in registers."""
    return MAX_VECTORS * VECTOR_BYTES // itemsize
