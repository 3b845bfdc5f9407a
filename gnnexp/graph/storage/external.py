"""Build CSC arrays on disk from a stream of edges, with O(V) state and one buffer in memory.

The first pass counts the edges of every destination. Then consecutive destinations form buckets that fit in the buffer.
One more pass per bucket collects its edges, which are sorted and merged. If all edges fit in the buffer, two passes
suffice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from gnnexp.errors import DataError, Problem
from gnnexp.graph.build import CscArrays, index_dtype, rows_with_data
from gnnexp.graph.merging import MergedEdges, MergeWeights
from gnnexp.graph.storage.writer import ArrayWriter
from gnnexp.kernels.graph.csc_build import count_rows, merge_rows, row_ranges, scatter, select_rows, sort_rows

# Number of edges that are copied from file to file at a time.
_COPY_EDGES = 1 << 22
# Number of counts that are added up at a time.
_COUNTS = 1 << 20
# Bytes in memory of an edge with type and weight, while its bucket is sorted.
_EDGE_BYTES = 64


class Bucket(NamedTuple):
    """Rows of consecutive destinations.

    Attributes:
        first: the first destination.
        starts: `[n + 1]` int64 bounds of the edges of each destination in `indices`, valid until the next bucket.
        indices: sources of the edges, in canonical order.
    """

    first: int
    starts: np.ndarray
    indices: np.ndarray


class EdgeRows(NamedTuple):
    """Edges with data.

    Attributes:
        sources: `[n]`.
        destinations: `[n]`.
        types: `[n]` int32, or None.
        weights: `[n]` float32, or None.
    """

    sources: np.ndarray
    destinations: np.ndarray
    types: np.ndarray | None
    weights: np.ndarray | None


Chunks = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True)
class EdgeRules:
    """Changes to the edges of the stream.

    Attributes:
        symmetrize: whether to add the reverse of every edge.
        drop_loops: whether to remove self loops.
        merge: whether to keep only one of parallel edges.
        merge_weights: what its weight is (`gnnexp.graph.build.build_graph`).
    """

    symmetrize: bool = False
    drop_loops: bool = False
    merge: bool = False
    merge_weights: MergeWeights = "error"


def csc_buckets(
    chunks: Chunks, num_nodes: int, rules: EdgeRules, buffer_edges: int
) -> tuple[np.ndarray, Iterator[Bucket]]:
    """`indptr [V + 1]` and the buckets in order; `indptr` is complete after the last bucket, or with an only one.

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
        high = _last(indptr, low, buffer_edges)
        starts = indptr[low : high + 1]  # bounds of this bucket's rows are made in place: V may be as large as E
        starts[0] = 0
        np.cumsum(starts, out=starts)
        indices = np.empty(int(starts[-1]), index_dtype(num_nodes))
        ranges, cursor = row_ranges(low, high), starts[:-1].copy()
        for src, dst in chunks():
            scatter(src, dst, rules.symmetrize, rules.drop_loops, ranges, cursor, False, indices)
        del cursor
        sort_rows(starts, indices)
        if rules.merge:
            indices.resize(merge_rows(starts, indices), refcheck=False)
        size = indices.size
        yield Bucket(low, starts, indices)
        starts += written
        low, written = high, written + size


def _last(indptr: np.ndarray, low: int, buffer_edges: int) -> int:
    """The end of the bucket that begins with the vertex `low`; `indptr[v + 1]` is the count of v's edges from there."""
    room, num_nodes = buffer_edges, indptr.size - 1
    for start in range(low, num_nodes, _COUNTS):
        ends = np.cumsum(indptr[start + 1 : min(start + _COUNTS, num_nodes) + 1])
        if ends[-1] > room:
            return max(low + 1, start + int(np.searchsorted(ends, room, side="right")))
        room -= int(ends[-1])
    return num_nodes


def write_csc(
    chunks: Chunks, num_nodes: int, rules: EdgeRules, buffer_bytes: int, writer: ArrayWriter
) -> tuple[np.ndarray, np.ndarray]:
    """`indptr` and the mapped `indices` of the edges, written to the writer's folder; arguments as in `csc_buckets`.

    Raises:
        DataError: the disk has no room for the arrays.
    """
    dtype = index_dtype(num_nodes)
    indptr, buckets = csc_buckets(chunks, num_nodes, rules, max(1, buffer_bytes // dtype.itemsize))
    first = next(buckets, None)
    if first is not None and first.starts.size == indptr.size:
        writer.put("indptr", indptr)
        return indptr, _filled("indices", first.indices, writer)
    # The number of edges after merging is known only at the end, so edges first go to a file without a name.
    with tempfile.TemporaryFile(dir=writer.folder.parent, buffering=0) as spool:
        if first is not None:
            _append(spool, first.indices, writer)
            first = None
        _append_all(spool, buckets, writer)
        writer.put("indptr", indptr)
        target = _copied(spool, "indices", int(indptr[-1]), dtype, writer)
    return indptr, target


def write_csc_with_data(
    chunks: Callable[[], Iterator[EdgeRows]], num_nodes: int, rules: EdgeRules, buffer_bytes: int, writer: ArrayWriter
) -> MergedEdges:
    """Write `indptr`, `indices`, and `edge_types` and `edge_weights` where the chunks have them.

    The arrays are those of `build_graph`. Parallel edges that are kept are in the order of their weights.

    Raises:
        DataError: the disk has no room for the arrays, or `DifferentWeightsError` as in `build_graph`.
    """
    indptr, everyone = np.zeros(num_nodes + 1, np.int64), row_ranges(0, num_nodes)
    for rows in chunks():
        count_rows(rows.sources, rows.destinations, rules.symmetrize, rules.drop_loops, everyone, indptr[1:])
    names = {"indices": index_dtype(num_nodes), "edge_types": np.dtype(np.int32), "edge_weights": np.dtype(np.float32)}
    with ExitStack() as stack:
        spools = [stack.enter_context(tempfile.TemporaryFile(dir=writer.folder.parent, buffering=0)) for _ in names]
        low, present, merged = 0, [True, False, False], MergedEdges()
        while low < num_nodes:
            high = _last(indptr, low, max(1, buffer_bytes // _EDGE_BYTES))
            bucket = _bucket_with_data(chunks, (low, high), num_nodes, rules)
            indptr[low + 1 : high + 1] = bucket.indptr.numpy()[1:] + indptr[low]
            arrays = [bucket.indices, bucket.types, bucket.weights]
            for spool, values in zip(spools, arrays, strict=True):
                if values is not None:
                    _append(spool, values.numpy(), writer)
            merged += bucket.merged.shifted(low)
            present, low = [values is not None for values in arrays], high
        merged.check(rules.merge_weights)
        writer.put("indptr", indptr)
        for spool, (name, dtype), is_present in zip(spools, names.items(), present, strict=True):
            if is_present:
                _copied(spool, name, int(indptr[-1]), dtype, writer)
    return merged


def _bucket_with_data(
    chunks: Callable[[], Iterator[EdgeRows]], span: tuple[int, int], num_nodes: int, rules: EdgeRules
) -> CscArrays:
    """The edges of the destinations `span[0] .. span[1] - 1`, in canonical order; `indptr` begins with 0."""
    parts: list[list[np.ndarray]] = []
    for rows in chunks():
        selected = np.empty(rows.sources.size * (1 + rules.symmetrize), np.int64)
        selected = selected[
            : select_rows(rows.sources, rows.destinations, rules.symmetrize, rules.drop_loops, *span, selected)
        ]
        edges, back = selected >> 1, (selected & 1).astype(np.bool_)
        ends = rows.sources[edges], rows.destinations[edges]
        parts.append(
            [
                ~back,
                np.where(back, ends[1], ends[0]),
                np.where(back, ends[0], ends[1]) - span[0],
                *(values[edges] for values in rows[2:] if values is not None),
            ]
        )
    first = rows[2:]
    from_user, sources, destinations, *data = (np.concatenate(column) for column in zip(*parts, strict=True))
    types = data.pop(0) if first[0] is not None else None
    dtype = index_dtype(num_nodes)
    return rows_with_data(
        sources.astype(dtype, copy=False),
        destinations.astype(dtype, copy=False),
        span[1] - span[0],
        rule=rules.merge_weights if rules.merge else None,
        types=types,
        weights=data[0] if data else None,
        from_user=from_user,
    )


def _filled(name: str, values: np.ndarray, writer: ArrayWriter) -> np.ndarray:
    """The array `name` of the writer, written as a file: through its map, memory would hold the values twice."""
    target = writer.array(name, values.shape, values.dtype)
    if isinstance(target, np.memmap):
        with Path(str(target.filename)).open("r+b", buffering=0) as file:
            file.seek(target.offset)
            _append(file, values, writer)
    return target


def _copied(spool: IO[bytes], name: str, size: int, dtype: np.dtype, writer: ArrayWriter) -> np.ndarray:
    """The array `name` of the writer, filled from a file without a name."""
    target = writer.array(name, (size,), dtype)
    spool.seek(0)
    for start in range(0, size, _COPY_EDGES):
        piece = target[start : start + _COPY_EDGES]
        piece[:] = np.fromfile(spool, dtype, piece.size)
    return target


def _append_all(spool: IO[bytes], buckets: Iterator[Bucket], writer: ArrayWriter) -> None:
    """Write the sources of all buckets. After this call, no bucket is in memory."""
    for bucket in buckets:
        _append(spool, bucket.indices, writer)


def _append(spool: IO[bytes], indices: np.ndarray, writer: ArrayWriter) -> None:
    try:
        # Not `tofile`: it reports no error if its buffer cannot be written when the file is closed.
        rest = indices.view(np.uint8).data
        while rest:
            rest = rest[spool.write(rest) :]
    except OSError as error:
        fix = "make room there or choose another place"
        raise DataError(Problem(str(writer.folder), error.strerror, "needs room for all edges", fix)) from None
