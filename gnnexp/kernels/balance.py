"""Sharing the rows of a CSC structure among threads: many ranges of equal work, claimed one after the other.

Which thread takes a range never changes a result, since every output row is summed by one thread in edge order;
claiming keeps all cores busy when one of them also samples, or serves another process.
"""

# ruff: noqa: ANN401  numba's and LLVM's own objects have no types
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

RANGES_PER_THREAD = 16
# Below this many floats moved, waking a second thread costs more (about 10 us) than it saves.
SERIAL_FLOATS = 1 << 15


@intrinsic
def claim(typing: Any, counter: Any) -> Any:
    """Atomically take the next number of `counter` `[1]` int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", place, ir.IntType(64)(1), "monotonic")

    return types.int64(counter), codegen


@numba.njit(nogil=True, cache=True)
def boundary(indptr: np.ndarray, part: int, num_parts: int) -> int:
    """First row of range `part` of `num_parts` ranges that hold equal numbers of edges plus rows."""
    num_rows = indptr.size - 1
    wanted = (indptr[num_rows] - indptr[0] + num_rows) * part // num_parts
    low, high = 0, num_rows
    while low < high:
        middle = (low + high) // 2
        if indptr[middle] - indptr[0] + middle < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def num_threads(num_floats: int) -> int:
    """Threads to use for a pass that moves `num_floats`."""
    return 1 if num_floats < SERIAL_FLOATS else int(numba.get_num_threads())


def launch(kernel: Callable[..., Any], threads: int, *arguments: Any) -> Any:
    """Call `kernel(threads, *arguments)` with so many of numba's threads: the others are not woken and waited for."""
    before = numba.get_num_threads()
    if threads >= before:
        return kernel(threads, *arguments)
    numba.set_num_threads(threads)
    try:
        return kernel(threads, *arguments)
    finally:
        numba.set_num_threads(before)
