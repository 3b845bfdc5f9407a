"""What every launch of a Triton kernel needs: the shape of a tile, rows without copies, and options."""

from __future__ import annotations

from typing import Any

from torch import Tensor

# Triton 3.6 fuses multiplications and additions by default. A kernel that wants this calls `tl.fma`.
EXACT: dict[str, Any] = {"enable_fp_fusion": False}
# Arguments that change with every batch: by default Triton compiles again for 1 and for multiples of 16.
COUNTS = ("num_rows", "num_segments", "steps", "size")
# The keys of all masks lie in one table, so their addresses are of either alignment.
KEYS = ("key",)
# One warp for each program: a row has too few columns for more, and warps need not wait for each other.
ONE_WARP: dict[str, Any] = {**EXACT, "num_warps": 1}


def power_of_2(number: int) -> int:
    """The smallest power of 2 that is at least `number`, and at least 1: sizes of tiles are powers of 2.

    `triton.next_power_of_2` is also callable inside kernels, and so takes 6 µs for each call on the host.
    """
    return 1 << max(0, number - 1).bit_length()


def tiles(number: int, size: int) -> int:
    """How many tiles of `size` cover `number`."""
    return -(-number // size)


def rows_of(x: Tensor) -> Tensor:
    """`x` `[N, d]` with adjacent columns. Rows may be at any distance, so a slice of columns is not copied."""
    x = x.detach()
    return x if x.stride(1) == 1 else x.contiguous()


def flat(x: Tensor) -> Tensor:
    """All elements in one dimension; a view if `x` is contiguous."""
    return x.detach().contiguous().view(-1)
