"""Kernels that one process has loaded, in words, so that another process can load the same ones from the cache.

A rank loads 15 to 30 compiled kernels, in a third of a second. The process that forks ranks learns from the first run
which ones these are, and loads them once for all later runs (`gnnexp.launchers.starter`). Kernels with parallel loops
are left out: loading one starts numba's threads, and a process with threads must not fork.
"""

# ruff: noqa: ANN401  numba's own objects have no types
from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from numba.core.dispatcher import Dispatcher

from gnnexp.kernels.rows.rowkernel import RowKernel


def loaded_kernels() -> dict[str, list[str]]:
    """The signatures, as text, of all kernels without parallel loops in this process, by `module:name`."""
    found = {
        f"{module}:{name}": [str(signature) for signature in kernel.overloads]
        for module in list(sys.modules)
        if module.startswith("gnnexp.")
        for name, kernel in _kernels_of(module)
    }
    return {name: signatures for name, signatures in found.items() if signatures}


def load_kernels(lesson: Mapping[str, Sequence[str]]) -> int:
    """Load kernels that another process named, if numba's cache has them; returns how many are new to this process."""
    count = 0
    for place, signatures in lesson.items():
        module, _, name = place.partition(":")
        for kernel in [kernel for known, kernel in _kernels_of(import_module(module).__name__) if known == name]:
            stored = [signature for signature in _stored(kernel) if str(signature) in signatures]
            new = [signature for signature in stored if signature not in kernel.overloads]
            for signature in new:
                kernel.compile(signature)
            count += len(new)
    return count


def _kernels_of(module: str) -> Iterator[tuple[str, Any]]:
    """Names and dispatchers of the kernels that a module defines."""
    for name, value in list(vars(sys.modules[module]).items()):
        kernel = value.kernel if isinstance(value, RowKernel) else value
        if isinstance(kernel, Dispatcher) and kernel.__module__ == module and not kernel.targetoptions.get("parallel"):
            yield name, kernel


def _stored(kernel: Any) -> list[Any]:
    """Signatures of a kernel in numba's cache on disk, as numba's own types."""
    return [key[0] for key in kernel._cache._cache_file._load_index()]
