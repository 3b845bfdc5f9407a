"""Compile kernels once, at set-up, into numba's cache: `python -m gnnexp.kernels.warmup [--all] [--versions FILE]`.

A kernel takes about a second to compile and milliseconds to load. Set-up compiles what the first commands use. The
list is `first_commands.csv`, which tests/support/first_kernels.py writes. Other kernels are compiled at their first
use. `--all` compiles common versions of all kernels. `--versions` compiles those of a list. `make test` has one: tests
with time limits only load.

numba notices a change in the file of a cached function. It does not notice a change in another file whose functions or
intrinsics are inlined. So all cached kernels are deleted when any file in this folder or below is newer than one of
them.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import pkgutil
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import numpy as np
import torch

from gnnexp.kernels import compiled, counter, versions
from gnnexp.kernels.graph import edges, transpose
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.rows import attention, outer
from gnnexp.kernels.rows.aggregate import Edges, Matrix, dot_rows, groups, sum_and_dot_rows, sum_rows
from gnnexp.kernels.rows.dropout import drop_edges, drop_rows, drop_sparse, keep_positive
from gnnexp.kernels.rows.gather import add_rows, gather_rows, move_rows, place_rows
from gnnexp.kernels.rows.layout import layout, max_width
from gnnexp.kernels.rows.rowkernel import SERIAL_FLOATS
from gnnexp.kernels.versions import Version

# Enough edges for every pass to run in parallel, so that the parallel loop is compiled too. 2 rows at both ends.
_E = SERIAL_FLOATS
_INDPTR, _SOURCES, _ORDER = np.array([0, _E, _E]), np.zeros(_E, np.int32), np.arange(_E)
_FORWARD, _BACKWARD = Edges(_INDPTR, _SOURCES), Edges(_INDPTR, _SOURCES, _ORDER)
_BY_EDGE = Edges(_INDPTR, _ORDER)
# Weights are read by source, as in `AggregateScaled`.
_BY_SOURCE = Edges(_INDPTR, _SOURCES, _SOURCES)
# Columns of common layers and features, for weighted sums, heads and products. Unweighted sums are compiled for every
# layout.
_WEIGHTED = (7, 10, 16, 41, 64, 100, 128, 256)
_HEADS = ((4, 16), (4, 64), (8, 8))
_SHARED = ((4, 64), (4, 100), (4, 128), (8, 64))

# A process costs about 2 CPU seconds before it compiles.
_MOST_PROCESSES = 8

# What the first commands use: README's, with the models sage, gcn and gat on digits.
FIRST = Path(__file__).parent / "first_commands.csv"

Task = tuple[str, int, int]


def main(arguments: list[str]) -> None:
    """Compile on all cores, and show the progress."""
    parser = argparse.ArgumentParser(prog="python -m gnnexp.kernels.warmup", description="compile what is not cached")
    parser.add_argument("--all", action="store_true", help="all kernels, not only those of the first commands")
    parser.add_argument("--versions", type=Path, metavar="FILE", help="further ones, as in first_commands.csv")
    options = parser.parse_args(arguments)
    listed = {*versions.read_versions(FIRST), *(versions.read_versions(options.versions) if options.versions else ())}
    chosen = [*versions.pieces(sorted(listed)), *(tasks() if options.all else ())]
    remove_stale(Path(__file__).parent)
    processes = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    with ProcessPoolExecutor(processes, get_context("spawn"), _be_silent) as pool:
        running = [pool.submit(compile_task, task) for task in chosen]
        for done, future in enumerate(as_completed(running), 1):
            future.result()
            _show(done, len(chosen))
    used = getrusage(RUSAGE_CHILDREN)
    print(f"kernels are in the cache: {used.ru_utime + used.ru_stime:.0f} CPU seconds on {processes} cores", flush=True)


def _be_silent() -> None:
    """No process of the pool says that it compiles: this is what it is for."""
    logging.getLogger(compiled.__name__).setLevel(logging.ERROR)


def _show(done: int, count: int) -> None:
    """One line that changes on a terminal; elsewhere a line per quarter of the work."""
    if sys.stdout.isatty():
        print(f"\rkernels: {done} of {count}", end="\n" if done == count else "", flush=True)
    elif done * 4 // count > (done - 1) * 4 // count:
        print(f"kernels: {done} of {count}", flush=True)


def remove_stale(folder: Path) -> int:
    """Delete numba's cache files below `folder` if any source is newer than the oldest of them; returns how many."""
    cached = [*folder.rglob("__pycache__/*.nbi"), *folder.rglob("__pycache__/*.nbc")]
    newest = max(source.stat().st_mtime for source in folder.rglob("*.py"))
    if not cached or newest < min(file.stat().st_mtime for file in cached):
        return 0
    for file in cached:
        file.unlink(missing_ok=True)
    return len(cached)


def tasks() -> Iterator[Task]:
    """All tasks of compilation: `(kind, heads, width)`."""
    shapes = {layout(width, 4): width for width in range(1, max_width(4) + 1)}
    yield from (("sum", 0, width) for width in shapes.values())
    yield from ((kind, 1, width) for kind in ("sum", "scaled", "dot", "both") for width in _WEIGHTED)
    yield from ((kind, heads, heads * width) for kind in ("sum", "both") for heads, width in _HEADS)
    yield from (("outer", heads, width) for heads, width in _SHARED)
    yield from (("attention", heads, heads) for heads in (1, 4, 8))
    yield from (("dropout", 0, 16), ("graph", 0, 0), ("others", 0, 0))


def compile_task(task: Task | list[Version]) -> None:
    """Compile versions, or compile a task by running it."""
    if isinstance(task, list):
        for version in task:
            version.compile()
        return
    kind, heads, width = task
    {
        "sum": _sum,
        "scaled": _scaled,
        "dot": _dot,
        "both": _both,
        "outer": _outer,
        "attention": _attention,
        "dropout": _dropout,
        "graph": _graph,
        "others": _others,
    }[kind](heads, width)


def _rows(width: int, num_rows: int = 2) -> np.ndarray:
    return np.zeros(num_rows * width, np.float32)


def _sum(heads: int, width: int) -> None:
    parts, x, out = groups(width, heads, 4), Matrix(_rows(width), width), Matrix(_rows(width), width)
    sum_rows(_FORWARD, x, out, _rows(heads, _E), max(1, heads), parts)


def _scaled(heads: int, width: int) -> None:
    x, out = Matrix(_rows(width), width), Matrix(_rows(width), width)
    sum_rows(_BY_SOURCE, x, out, _rows(1), 1, groups(width, heads, 4))


def _dot(heads: int, width: int) -> None:
    x = Matrix(_rows(width), width)
    dot_rows(_FORWARD, x, x, _rows(heads, _E), heads, groups(width, heads, 4))


def _both(heads: int, width: int) -> None:
    x, out = Matrix(_rows(width), width), Matrix(_rows(width), width)
    sum_and_dot_rows(_BACKWARD, x, x, out, _rows(heads, _E), _rows(heads, _E), heads, groups(width, heads, 4))


def _outer(heads: int, width: int) -> None:
    x, many = Matrix(_rows(width), width), _rows(heads * width)
    outer.outer_rows(_FORWARD, x, many, _rows(heads, _E), heads, width)
    outer.outer_dot_rows(_FORWARD, many, x, _rows(heads, _E), heads, width)
    outer.inner_rows(_BACKWARD, many, _rows(width), _rows(heads, _E), heads, width)


def _attention(heads: int, width: int) -> None:
    key, signed, weight = _rows(width), _rows(width, _E), _rows(width, _E)
    attention.weigh(_FORWARD, key, key, heads, 0.2, signed, weight)
    attention.unweigh(_FORWARD, signed, weight, weight, 1.0, 0.2, heads, _rows(width, _E), _rows(width))
    attention.edge_operation(attention.EdgeOperation.SUM, _FORWARD, weight, weight, heads, _rows(width))
    sum_rows(_BY_EDGE, Matrix(weight, width), Matrix(_rows(width), width), _rows(0), 1, groups(width, 0, 4))


def _dropout(heads: int, width: int) -> None:
    x, out, none = _rows(width, _E), _rows(width, _E), np.empty(0, np.int32)
    for ids in (_SOURCES, _ORDER):
        drop_rows(x, width, out, ids, 0, 1, width, 0, width)
        drop_edges(_INDPTR, _SOURCES, ids, ids[:2], none, none, False, _rows(1, _E), _rows(1, _E), 1, 0, 1)
        drop_sparse(_INDPTR, _SOURCES, _rows(1, _E), ids[:2], 0, 1, width)
        gather_rows(torch.zeros(_E, width), torch.from_numpy(ids), Pool())
    rows, places = torch.zeros(_E, width), torch.from_numpy(_ORDER)
    add_rows(rows, places, torch.zeros(_E, width))
    place_rows(torch.zeros(_E, width), places, rows)
    bits = torch.zeros(_E, width, dtype=torch.int16)  # of bfloat16
    place_rows(bits, places, bits.clone())
    for ids in (_SOURCES, _ORDER):
        gather_rows(bits, torch.from_numpy(ids), Pool())
        move_rows(bits, torch.from_numpy(ids), places, bits.clone())
        move_rows(torch.zeros(_E, width), torch.from_numpy(ids), places, rows)
    keep_positive(out, x, x, 1)


def _graph(heads: int, width: int) -> None:
    transpose.transpose_csc(_INDPTR, _SOURCES, 2)
    edges.edge_destinations(_INDPTR, _SOURCES)
    edges.mark_sources(_INDPTR, _SOURCES, np.zeros(1, np.int64), np.zeros(_E, np.bool_))
    edges.count_parallel(_INDPTR, _SOURCES, None)
    edges.count_alike(_INDPTR, _SOURCES)
    counter.permutation(0, 2)


def _others(heads: int, width: int) -> None:
    """Call `warm_up()` of every kernel module of numba's that has one. Triton compiles at the first launch."""
    for module in pkgutil.walk_packages([str(Path(__file__).parent)], "gnnexp.kernels."):
        if module.name.startswith("gnnexp.kernels.cuda."):
            continue  # they import Triton, which may not be installed
        warm_up = getattr(importlib.import_module(module.name), "warm_up", None)
        if warm_up is not None:
            warm_up()


if __name__ == "__main__":
    main(sys.argv[1:])
