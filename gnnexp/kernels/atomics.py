# ruff: noqa: ANN401  numba's and LLVM's own objects have no types
"""Atomic operations on arrays that threads share, which numba does not offer on CPUs. All are sequentially consistent.

They are intrinsics at module level, where `cache=True` works.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import intrinsic

_ORDER = "seq_cst"
_BYTES = 8


def _place(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """The address of an entry, if the first arguments are an array and an index."""
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    return builder.gep(data, [context.cast(builder, args[1], signature.args[1], types.intp)])


def _is_shared(array: Any, index: Any) -> bool:
    is_fitting = isinstance(array, types.Array) and array.ndim == 1 and array.dtype == types.int64
    return is_fitting and isinstance(index, types.Integer)


@intrinsic
def read_shared(typing: Any, array: Any, index: Any) -> tuple[Any, Callable[..., Any]] | None:
    """`read_shared(array, index)`: read an entry of `array` `[n]` int64."""
    if not _is_shared(array, index):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_place(context, builder, signature, args), _ORDER, _BYTES)

    return types.int64(array, index), codegen


@intrinsic
def swap_shared(typing: Any, array: Any, index: Any, value: Any) -> tuple[Any, Callable[..., Any]] | None:
    """`swap_shared(array, index, value)`: write an entry of `array` `[n]` int64, and return what it was."""
    if not (_is_shared(array, index) and isinstance(value, types.Integer)):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = context.cast(builder, args[2], signature.args[2], types.int64)
        return builder.atomic_rmw("xchg", _place(context, builder, signature, args), word, _ORDER)

    return types.int64(array, index, value), codegen
