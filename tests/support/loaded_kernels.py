"""Importing this module loads the kernels of `kernels.csv` that are in numba's cache, once for all forks of a process.

A version takes 5 ms to load, and a rank of a pool, or a command, uses dozens. Those with parallel loops are left out:
loading one starts numba's threads, and a process with threads must not fork (`gnnexp.kernels.lessons`).
"""

from __future__ import annotations

import gc
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

from gnnexp.kernels import versions

LIST = Path(__file__).with_name("kernels.csv")


def load() -> int:
    """How many were loaded."""
    wanted = defaultdict(set)
    for one in versions.read_versions(LIST):
        wanted[one.kernel].add(versions.signature(one.types))
    count = 0
    for name, types in wanted.items():
        found = getattr(import_module(name.rpartition(".")[0]), name.rpartition(".")[2])
        kernel = getattr(found, "kernel", found)
        if not kernel.targetoptions.get("parallel"):
            for one in types & _stored(kernel):
                kernel.compile(one)
                count += 1
    return count


def _stored(kernel: Any) -> set[Any]:
    """Types of a kernel's versions in the cache."""
    return {key[0] for key in kernel._cache._cache_file._load_index()}


load()
gc.collect()
gc.freeze()  # as in gnnexp.testing.preloaded
