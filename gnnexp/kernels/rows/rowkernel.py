# ruff: noqa: ANN401  numba's and LLVM's own objects have no types
"""Run a kernel over ranges of rows on all threads, and find its compiled version quickly.

A kernel is an `njit` function `kernel(first, last, *arguments)` that processes the rows of one range. Kernels with the
same argument types share one parallel loop. The loop has many ranges of equal work, and threads claim one range after
the other. So all cores stay busy when one of them also samples or serves another process. One thread computes each
output row, in edge order, so results do not depend on which thread takes a range.

Why not `prange` in every kernel: `prange` takes 1 s to compile, a kernel 0.3 s, and there is a version per row width.
Why not numba's dispatcher: it finds out in every call that a shape must be a literal, in 0.5 to 3 ms (here: 15 us).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import prange
from numba.core import cgutils, types
from numba.extending import intrinsic

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.rows.layout import Code
from gnnexp.kernels.rows.vector import fence

RANGES_PER_THREAD = 16
# For passes that move fewer floats, waking a second thread (about 10 us) costs more than it saves.
SERIAL_FLOATS = 1 << 15


def num_ranges(num_floats: int) -> int:
    """Number of ranges for a pass that moves `num_floats`: 1 for a small pass or a single thread."""
    threads = int(numba.get_num_threads())
    return 1 if num_floats < SERIAL_FLOATS or threads == 1 else threads * RANGES_PER_THREAD


def evenly(num_rows: int, num_floats: int) -> np.ndarray:
    """Bounds of ranges with equal numbers of rows, `[parts + 1]` int64."""
    parts = num_ranges(num_floats)
    return np.arange(parts + 1) * num_rows // parts


def by_edges(indptr: np.ndarray, num_floats: int) -> np.ndarray:
    """Bounds of ranges with equal numbers of edges plus rows, `[parts + 1]` int64."""
    return boundaries(indptr, num_ranges(num_floats))


@compiled(nogil=True)
def boundaries(indptr: np.ndarray, parts: int) -> np.ndarray:
    """Bounds `[parts + 1]` int64 of row ranges with about equal numbers of edges plus rows."""
    num_rows, bounds = indptr.size - 1, np.zeros(parts + 1, np.int64)
    bounds[parts] = num_rows
    for part in range(1, parts):
        wanted = (indptr[num_rows] - indptr[0] + num_rows) * part // parts
        low, high = bounds[part - 1], num_rows
        while low < high:
            middle = (low + high) // 2
            if indptr[middle] - indptr[0] + middle < wanted:
                low = middle + 1
            else:
                high = middle
        bounds[part] = low
    return bounds


class _Version(NamedTuple):
    """A kernel compiled for one set of types: `alone` is called from Python, `address` from the parallel loop."""

    alone: Callable[..., None]
    address: int


class RowKernel:
    """A kernel over rows; a call takes the bounds of ranges instead of `first, last`.

    Args:
        kernel: an `njit` dispatcher; arguments of type `Code` are compile-time constants of the kernel.

    Attributes:
        kernel: the dispatcher.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._versions: dict[tuple[Any, ...], _Version] = {}
        self._loops: dict[tuple[Any, ...], Callable[..., None]] = {}

    def __call__(self, bounds: np.ndarray, *arguments: Any) -> None:
        """Run all ranges. The first call with new types compiles their version or loads it from the cache."""
        key = tuple(_kind(argument) for argument in arguments)
        version = self._versions.get(key)
        if version is None:
            version = self._versions[key] = self._compiled(arguments)
        if bounds.size == 2:
            version.alone(0, int(bounds[1]), *arguments)
            return
        loop = self._loops.get(key)
        if loop is None:
            loop = self._loops[key] = self._looped(arguments)
        loop(int(numba.get_num_threads()), bounds, version.address, arguments)

    def _compiled(self, arguments: tuple[Any, ...]) -> _Version:
        kinds = tuple(self.kernel.typeof_pyval(argument) for argument in arguments)
        constants = (
            types.IntegerLiteral(int(argument)) if isinstance(argument, Code) else kind
            for argument, kind in zip(arguments, kinds, strict=True)
        )
        signature = (types.int64, types.int64, *constants)
        self.kernel.compile(signature)
        compiled = self.kernel.overloads[signature]
        address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
        return _Version(compiled.entry_point, address)

    def _looped(self, arguments: tuple[Any, ...]) -> Callable[..., None]:
        """The parallel loop for these argument types; all values of constants share it."""
        signature = (types.int64, types.int64[::1], types.int64, self.kernel.typeof_pyval(arguments))
        _all_ranges.compile(signature)
        entry_point: Callable[..., None] = _all_ranges.overloads[signature].entry_point
        return entry_point


def _kind(argument: Any) -> Any:
    """A key that determines numba's type of an argument. Asking numba takes 4 us per argument, and kernels have 16."""
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num
    return argument if isinstance(argument, Code) else type(argument)


@intrinsic
def _claim(typing: Any, counter: Any) -> Any:
    """Return `counter[0]` and increase it by 1, atomically; `counter` is `[1]` int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", place, ir.IntType(64)(1), "monotonic")

    return types.int64(counter), codegen


@intrinsic
def _call(typing: Any, address: Any, first: Any, last: Any, arguments: Any) -> Any:
    """Call the compiled kernel at `address`."""
    kinds = (types.int64, types.int64, *arguments.types)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function_type = context.call_conv.get_function_type(types.none, kinds)
        function = builder.inttoptr(args[0], function_type.as_pointer())
        values = [args[1], args[2], *cgutils.unpack_tuple(builder, args[3])]
        context.call_conv.call_function(builder, function, types.none, kinds, values)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, arguments), codegen


@compiled(nogil=True, parallel=True)
def _all_ranges(threads: int, bounds: np.ndarray, address: int, arguments: tuple[Any, ...]) -> None:
    counter = np.zeros(1, np.int64)
    for _ in prange(threads):
        part = _claim(counter)
        while part < bounds.size - 1:
            _call(address, bounds[part], bounds[part + 1], arguments)
            fence()
            part = _claim(counter)
