"""Build CSC arrays on disk from a stream of edges, with O(V) state and one buffer in memory.

The first pass counts the edges of every destination. Then consecutive destinations form buckets that fit in the buffer.
One more pass per bucket collects its edges, which are sorted and merged. If all edges fit in the buffer, two passes
suffice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, NamedTuple

import numpy as np

from gnnexp.errors import DataError, Problem
from gnnexp.graph.build import index_dtype
from gnnexp.graph.storage.writer import ArrayWriter
from gnnexp.kernels.graph.csc_build import count_rows, merge_rows, row_ranges, scatter, sort_rows

# Number of edges that are copied from file to file at a time.
_COPY_EDGES = 1 << 22


class Bucket(NamedTuple):
    """Rows of consecutive destinations.

    Attributes:
        first: the first destination.
        starts: `[n + 1]` int64 bounds of the edges of each destination in `indices`.
        indices: sources of the edges, in canonical order.
    """

    first: int
    starts: np.ndarray
    indices: np.ndarray


Chunks = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True)
class EdgeRules:
    """Changes to the edges of the stream.

    Attributes:
        symmetrize: whether to add the reverse of every edge.
        drop_loops: whether to remove self loops.
        merge: whether to keep only one of parallel edges.
    """

    symmetrize: bool = False
    drop_loops: bool = False
    merge: bool = False


def csc_buckets(
    chunks: Chunks, num_nodes: int, rules: EdgeRules, buffer_edges: int
) -> tuple[np.ndarray, Iterator[Bucket]]:
    """`indptr [V + 1]` and the buckets in order; `indptr` is complete after the last bucket.

    Args:
        chunks: function that begins a pass and yields `(sources [n], destinations [n])`, the same in every pass.
        num_nodes: V.
        rules: changes to the edges.
        buffer_edges: most edges of a bucket; a vertex with more edges gets a bucket of its own.
    """
    indptr = np.zeros(num_nodes + 1, np.int64)
    everyone = row_ranges(0, num_nodes)
    for src, dst in chunks():
        count_rows(src, dst, rules.symmetrize, rules.drop_loops, everyone, indptr[1:])
    return indptr, _buckets(chunks, indptr, rules, buffer_edges)


def _buckets(chunks: Chunks, indptr: np.ndarray, rules: EdgeRules, buffer_edges: int) -> Iterator[Bucket]:
    num_nodes, low, written = indptr.size - 1, 0, 0
    while low < num_nodes:
        # indptr[v + 1] still holds counts from `low` on.
        ends = np.cumsum(indptr[low + 1 :])
        high = low + max(1, int(np.searchsorted(ends, buffer_edges, side="right")))
        starts = np.concatenate([np.zeros(1, np.int64), ends[: high - low]])
        indices = np.empty(int(starts[-1]), index_dtype(num_nodes))
        ranges, cursor = row_ranges(low, high), starts[:-1].copy()
        for src, dst in chunks():
            scatter(src, dst, rules.symmetrize, rules.drop_loops, ranges, cursor, False, indices)
        sort_rows(starts, indices)
        if rules.merge:
            indices.resize(merge_rows(starts, indices), refcheck=False)
        indptr[low + 1 : high + 1] = starts[1:] + written
        yield Bucket(low, starts, indices)
        low, written = high, written + indices.size


def write_csc(
    chunks: Chunks, num_nodes: int, rules: EdgeRules, buffer_bytes: int, writer: ArrayWriter
) -> tuple[np.ndarray, np.ndarray]:
    """`indptr` and the mapped `indices` of the edges, written to the writer's folder; arguments as in `csc_buckets`.

    Raises:
        DataError: the disk has no room for the arrays.
    """
    dtype = index_dtype(num_nodes)
    indptr, buckets = csc_buckets(chunks, num_nodes, rules, max(1, buffer_bytes // dtype.itemsize))
    # The number of edges after merging is known only at the end, so edges first go to a file without a name.
    with tempfile.TemporaryFile(dir=writer.folder.parent, buffering=0) as spool:
        for bucket in buckets:
            _append(spool, bucket.indices, writer)
        writer.put("indptr", indptr)
        target = writer.array("indices", (int(indptr[-1]),), dtype)
        spool.seek(0)
        for start in range(0, target.size, _COPY_EDGES):
            piece = target[start : start + _COPY_EDGES]
            piece[:] = np.fromfile(spool, dtype, piece.size)
    return indptr, target


def _append(spool: IO[bytes], indices: np.ndarray, writer: ArrayWriter) -> None:
    try:
        # Not `tofile`: it reports no error if its buffer cannot be written when the file is closed.
        rest = indices.view(np.uint8).data
        while rest:
            rest = rest[spool.write(rest) :]
    except OSError as error:
        fix = "make room there or choose another place"
        raise DataError(Problem(str(writer.folder), error.strerror, "needs room for all edges", fix)) from None
