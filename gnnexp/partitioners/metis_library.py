"""Direct calls of METIS in the library that pymetis contains.

The wrapper of pymetis 2025.2.2 always passes one weight per vertex to METIS (`ncon = 1`). Of `[V, 3]` weights it reads
the first V numbers, without an error. To balance vertices, edges and training vertices at once, METIS needs several
weights. So `METIS_PartGraphKway` is called directly, as the METIS 5 manual describes.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from typing import Any

import numpy as np

from gnnexp.components.packages import install_command
from gnnexp.errors import ConfigError, Problem, RunError

# Status codes of metis.h.
_OK, _ERROR_MEMORY = 1, -3
# METIS takes the imbalance in thousandths, as an integer. A larger imbalance is not needed: no part can hold more than
# the whole graph.
MOST_IMBALANCE = 1000.0
# Bytes of METIS's own lines that an error shows.
_MOST_SAID = 2000
# Length of the array of options; METIS reads METIS_NOPTIONS (40) entries.
_NUM_OPTIONS = 64


def _load() -> tuple[ctypes.CDLL, Any, np.dtype[np.signedinteger]]:
    """The library, the table of option numbers of pymetis, and METIS's integer type."""
    try:
        import pymetis
        from pymetis import _internal

        options = _internal.options_indices  # type: ignore[attr-defined]
    except ImportError as error:
        raise ConfigError(
            Problem(
                "partitioner",
                "metis",
                f"needs the package pymetis ({error})",
                f"{install_command('pymetis')}, or partitioner=random",
            )
        ) from None
    library = ctypes.CDLL(_internal.__file__)
    if not hasattr(library, "METIS_PartGraphKway"):
        raise ConfigError(
            Problem(
                "partitioner",
                "metis",
                "this build of pymetis does not export METIS's functions",
                "install the wheel: pip install --force-reinstall pymetis==2025.2.2",
            )
        )
    return library, options, pymetis.zero_copy_dtype()


def metis_version() -> str:
    """The version of pymetis, for versions of partitioners, because another pymetis may contain another METIS."""
    try:
        return f"1, pymetis {package_version('pymetis')}"
    except PackageNotFoundError:
        return "1"


def metis_dtype() -> np.dtype[np.signedinteger]:
    """The integer type with which METIS was built, int32 or int64.

    Raises:
        ConfigError: pymetis is not installed.
    """
    return _load()[2]


def check_limits(
    num_nodes: int,
    num_entries: int,
    vertex_weights: np.ndarray,
    dtype: np.dtype[np.signedinteger],
    edge_weight: int = 0,
) -> None:
    """Raise ConfigError for a graph whose counts exceed METIS's integer type.

    Args:
        num_nodes: V.
        num_entries: M, entries of the undirected adjacency (two per edge).
        vertex_weights: `[V, C]` int64.
        dtype: METIS's integer type.
        edge_weight: sum of the edge weights.

    Raises:
        ConfigError: a count is too large; the message names the count and the limit.
    """
    limit = int(np.iinfo(dtype).max)
    totals = vertex_weights.sum(axis=0, dtype=np.float64)  # a float cannot overflow, and 2^53 is exact enough here
    weight = int(totals.max(initial=0))
    counts = {
        "vertices": num_nodes,
        "adjacency entries": num_entries,
        "total vertex weight": weight,
        "total edge weight": edge_weight,
    }
    problems = [
        Problem(
            "partitioner",
            "metis",
            f"METIS counts in {dtype.name}, up to {limit}: {count} {what} are too many",
            "use a pymetis built with 64-bit indices, or partitioner=random",
        )
        for what, count in counts.items()
        if count > limit
    ]
    ConfigError.raise_all(problems)


def part_graph(
    starts: np.ndarray,
    neighbours: np.ndarray,
    vertex_weights: np.ndarray,
    edge_weights: np.ndarray | None,
    num_parts: int,
    *,
    recursive: bool,
    imbalance: float,
    seed: int,
) -> tuple[np.ndarray, int]:
    """Split an undirected graph into parts with little weight of cut edges and balanced vertex weights.

    Args:
        starts: `[V + 1]` in METIS's integer type, row bounds of the symmetric adjacency (CSR) without self loops.
        neighbours: `[M]` of the same type.
        vertex_weights: `[V, C]` of the same type, C weights to balance, each with a positive sum.
        edge_weights: `[M]` of the same type, or None for 1 each.
        num_parts: number of parts, at least 2.
        recursive: whether to use recursive bisection instead of direct k-way partitioning.
        imbalance: how far the heaviest part may exceed the mean, for every weight (0.03 = 3 %).
        seed: seed of METIS's random choices, at least 0.

    Returns:
        The part `[V]` of every vertex, and the weight of the cut edges, each counted once.

    Raises:
        RunError: METIS reports a failure.
    """
    library, option, dtype = _load()
    arrays = [starts, neighbours, vertex_weights] + ([] if edge_weights is None else [edge_weights])
    assert all(array.dtype == dtype and array.flags.c_contiguous for array in arrays)
    settings = np.empty(_NUM_OPTIONS, dtype)
    _set_options(library, option, settings, imbalance, seed)
    num_nodes, num_weights = vertex_weights.shape
    scalars = np.array([num_nodes, num_weights, num_parts, 0], dtype)
    parts = np.zeros(num_nodes, dtype)
    call = library.METIS_PartGraphRecursive if recursive else library.METIS_PartGraphKway
    with printed_by_c() as printed:
        status = call(
            _pointer(scalars[0:]),
            _pointer(scalars[1:]),
            _pointer(starts),
            _pointer(neighbours),
            _pointer(vertex_weights),
            None,
            _pointer(edge_weights),
            _pointer(scalars[2:]),
            None,
            None,
            _pointer(settings),
            _pointer(scalars[3:]),
            _pointer(parts),
        )
    if status != _OK:
        why = "not enough memory" if status == _ERROR_MEMORY else f"status {status}"
        said = f"; METIS said: {printed[0]}" if printed[0] else ""
        raise RunError(f"METIS failed on {num_nodes} vertices and {neighbours.size} adjacency entries: {why}{said}")
    return parts, int(scalars[3])


def _set_options(library: ctypes.CDLL, option: Any, settings: np.ndarray, imbalance: float, seed: int) -> None:  # noqa: ANN401
    """Write METIS's defaults, the imbalance and the seed to `settings`."""
    library.METIS_SetDefaultOptions(_pointer(settings))
    settings[option.SEED] = seed + 1  # METIS calls srand, for which glibc takes 0 and 1 as the same seed
    assert imbalance <= MOST_IMBALANCE
    settings[option.UFACTOR] = max(1, round(imbalance * 1000))


def _pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


@contextmanager
def printed_by_c() -> Iterator[list[str]]:
    """Keep what C code prints on standard output in the block, as one text that the list has after the block.

    METIS prints such lines as "Cannot bisect a graph with 0 vertices!" although its result is right. They would be
    among the lines of gnnexp, and inside of the document of `--json`. The descriptor belongs to the process, so what
    another thread prints meanwhile would be kept, too: call this where no other thread prints.
    """
    lines: list[str] = []
    try:
        own = os.dup(1)
    except OSError:  # standard output is closed, so nothing can be printed
        yield lines
        lines.append("")
        return
    c = ctypes.CDLL(None)
    with tempfile.TemporaryFile() as file:
        c.fflush(None)
        os.dup2(file.fileno(), 1)
        try:
            yield lines
        finally:
            c.fflush(None)
            os.dup2(own, 1)
            os.close(own)
            file.seek(0)
            lines.append(file.read(_MOST_SAID).decode(errors="replace").strip())
