"""Calling kernels that are compiled per row shape, without numba's search for the right version at every call.

A kernel takes the shape of a row as its last argument, a literal (`gnnexp.kernels.vector.Layout.code`). Through numba's
dispatcher each call would first fail to find a version for a plain integer and run half of the compiler again to
learn that a literal is wanted: 0.5 to 3 ms per call, measured. Here the version is looked up by argument types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types


class Specialised:
    """A kernel whose last argument is a compile-time constant.

    Args:
        kernel: an `njit` dispatcher that makes its last argument a literal.
    """

    def __init__(self, kernel: Any) -> None:  # noqa: ANN401
        self._kernel = kernel
        self._versions: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Run the version for these argument types and this constant; compiled (or read from the cache) once."""
        *runtime, constant = arguments
        key = (*(_kind(argument) for argument in runtime), constant)
        version = self._versions.get(key)
        if version is None:
            typeof = self._kernel.typeof_pyval
            signature = (*(typeof(argument) for argument in runtime), types.IntegerLiteral(constant))
            self._kernel.compile(signature)
            version = self._versions[key] = self._kernel.overloads[signature].entry_point
        return version(*arguments)


def _kind(argument: Any) -> Any:  # noqa: ANN401
    """What decides numba's type of an argument; asking numba itself takes 4 us each, and kernels have 16."""
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num
    return type(argument)
