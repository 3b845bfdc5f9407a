"""Dropout as a pure function of (key, original id, global column) or (key, edge identity, head).

Feature masks: the row key absorbs the vertex id. One 32-bit hash of (row key, pair) serves the two columns `pair` and
`pair + ceil(num_columns / 2)`. Each column uses 16 bits, so probabilities are multiples of 1/65536. Any slice of rows
or columns draws the same mask as the whole matrix. Edge masks: the edge key absorbs destination and source, and also
type and occurrence if these are not 0. Each head uses 16 bits.

The 32-bit mixer is lowbias32 (Wellons, "Prospecting for hash functions", 2018), and the upper half of the row key is
added between its rounds. So rows whose lower halves collide still differ; 200k rows have about 5 such pairs.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import absorb, draw
from gnnexp.kernels.prefetch import prefetch
from gnnexp.kernels.rows.layout import VECTOR_BYTES, Code, layout
from gnnexp.kernels.rows.rowkernel import RowKernel, by_edges, evenly
from gnnexp.kernels.rows.rowmath import fill, multiply, where_positive
from gnnexp.kernels.rows.vector import can_stream, load_row, store_row, stream_row

_U32, _U64 = np.uint32, np.uint64
STEP, MUL1, MUL2 = 0x9E3779B9, 0x7FEB352D, 0x846CA68B
_STEP, _MUL1, _MUL2 = _U32(STEP), _U32(MUL1), _U32(MUL2)
_S15, _S16, _LOW16 = _U32(15), _U32(16), _U32(0xFFFF)
_FLOATS = 16
# How many rows ahead rows are prefetched, for matrices too large for the caches.
_AHEAD = _U64(4)
# Added self loops carry occurrence -1, so that they differ from the graph's own loops.
ADDED_LOOP = np.uint64(0xFFFFFFFF)


@compiled(inline="always")
def pair_bits(low: np.uint32, high: np.uint32, pair: np.uint32) -> np.uint32:
    """32 bits for columns `pair` (lower half) and `pair + ceil(num_columns / 2)` of the row with key `(low, high)`."""
    word = _U32(low + _U32(pair * _STEP))
    word = _U32(_U32(word ^ (word >> _S16)) * _MUL1)
    word = _U32(_U32(word ^ (word >> _S15)) + high)
    word = _U32(word * _MUL2)
    return _U32(word ^ (word >> _S16))


@compiled(nogil=True)
def _drop_pairs(
    x: np.ndarray,
    out: np.ndarray,
    at: np.uint64,
    to: np.uint64,
    low: np.uint32,
    high: np.uint32,
    half: np.uint64,
    stop: np.uint64,
    threshold: np.uint32,
    scale: float,
    floor: float,
) -> None:
    """Dropout of a whole row: every hash serves both columns of its pair."""
    zero = x.dtype.type(0)
    for j in range(stop - half):
        bits = pair_bits(low, high, _U32(j))
        a, b = x[at + j], x[at + half + j]
        a, b = (zero if a < floor else a * scale), (zero if b < floor else b * scale)
        out[to + j] = a if _U32(bits & _LOW16) >= threshold else zero
        out[to + half + j] = b if _U32(bits >> _S16) >= threshold else zero
    for j in range(stop - half, half):
        bits, a = pair_bits(low, high, _U32(j)), x[at + j]
        out[to + j] = (zero if a < floor else a * scale) if _U32(bits & _LOW16) >= threshold else zero


@compiled(nogil=True)
def _drop_slice(
    x: np.ndarray,
    out: np.ndarray,
    at: np.uint64,
    to: np.uint64,
    low: np.uint32,
    high: np.uint32,
    half: np.uint64,
    start: np.uint64,
    stop: np.uint64,
    threshold: np.uint32,
    scale: float,
    floor: float,
) -> None:
    """Dropout of the columns `start:stop` of a row, which are contiguous in `x` and `out`."""
    zero = x.dtype.type(0)
    for j in range(start, min(stop, half)):
        a, bits = x[at + j - start], _U32(pair_bits(low, high, _U32(j)) & _LOW16)
        out[to + j - start] = (zero if a < floor else a * scale) if bits >= threshold else zero
    for j in range(max(start, half), stop):
        a, bits = x[at + j - start], _U32(pair_bits(low, high, _U32(j - half)) >> _S16)
        out[to + j - start] = (zero if a < floor else a * scale) if bits >= threshold else zero


@compiled(nogil=True)
def _stream_row(scratch: np.ndarray, out: np.ndarray, to: np.uint64, width: np.uint64, shape: int) -> None:
    lanes = _U64(VECTOR_BYTES // out.itemsize)
    for j in range(_U64(0), width, lanes):
        stream_row(out, to + j, lanes, load_row(scratch, j, lanes, shape))


@RowKernel
@compiled(nogil=True)
def _drop_range(
    first: int,
    last: int,
    x: np.ndarray,
    x_stride: int,
    out: np.ndarray,
    ids: np.ndarray,
    key: np.uint64,
    threshold: np.uint32,
    scale: float,
    floor: float,
    num_columns: int,
    start: int,
    stop: int,
    past_cache: bool,
    shape: int,
) -> None:
    half, begin, end, width = _U64((num_columns + 1) // 2), _U64(start), _U64(stop), _U64(stop - start)
    scratch, top, lanes = np.empty(width, out.dtype), _U64(0), _U64(VECTOR_BYTES // out.itemsize)
    for row in range(first, last):
        state = absorb(key, _U64(ids[row]))
        low, high, at, to = _U32(state), _U32(state >> _U64(32)), _U64(row * x_stride), _U64(row) * width
        if width != _U64(num_columns):
            _drop_slice(x, out, at, to, low, high, half, begin, end, threshold, scale, floor)
        elif past_cache:
            for j in range(top, width, lanes):
                prefetch(x, at + _AHEAD * _U64(x_stride) + j)
            _drop_pairs(x, scratch, at, top, low, high, half, end, threshold, scale, floor)
            _stream_row(scratch, out, to, width, shape)
        else:
            _drop_pairs(x, out, at, to, low, high, half, end, threshold, scale, floor)


@RowKernel
@compiled(nogil=True)
def _scale_positive(
    first: int,
    last: int,
    output: np.ndarray,
    gradient: np.ndarray,
    out: np.ndarray,
    scale: float,
    past_cache: bool,
    shape: int,
) -> None:
    """Process the floats `first * 16` to `last * 16`.

    The last range may end earlier. Floats after its last whole vector are processed one by one.
    """
    lanes, zero, factor = _U64(VECTOR_BYTES // out.itemsize), output.dtype.type(0), fill(output, scale, shape)
    begin, stop = _U64(first * _FLOATS), _U64(min(last * _FLOATS, out.size))
    whole = begin + (stop - begin) // lanes * lanes
    for i in range(begin, whole, lanes):
        scaled = multiply(load_row(gradient, i, lanes, shape), factor)
        kept = where_positive(load_row(output, i, lanes, shape), scaled)
        if past_cache:
            stream_row(out, i, lanes, kept)
        else:
            store_row(out, i, lanes, kept)
    for i in range(whole, stop):
        scaled = gradient[i] * scale
        out[i] = scaled if output[i] > zero else zero


@RowKernel
@compiled(nogil=True)
def _drop_sparse(
    first: int,
    last: int,
    indptr: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    out: np.ndarray,
    ids: np.ndarray,
    key: np.uint64,
    threshold: np.uint32,
    scale: float,
    num_columns: int,
) -> None:
    half, zero = (num_columns + 1) // 2, values.dtype.type(0)
    for row in range(first, last):
        state = absorb(key, _U64(ids[row]))
        low, high = _U32(state), _U32(state >> _U64(32))
        for i in range(indptr[row], indptr[row + 1]):
            column = np.int64(columns[i])
            if column < half:
                bits = _U32(pair_bits(low, high, _U32(column)) & _LOW16)
            else:
                bits = _U32(pair_bits(low, high, _U32(column - half)) >> _S16)
            out[i] = values[i] * scale if bits >= threshold else zero


@compiled(inline="always")
def head_bits(state: np.uint64, head: np.uint64) -> np.uint64:
    """16 random bits for `head` of the edge with key `state`."""
    word = state if head < _U64(4) else draw(state, head >> _U64(2))
    return (word >> (_U64(16) * (head & _U64(3)))) & _U64(0xFFFF)


@compiled(inline="always")
def edge_state(dst_state: np.uint64, src: np.uint64, kind: np.uint64) -> np.uint64:
    """The key of an edge; `dst_state` has absorbed the destination, `kind` holds type and occurrence."""
    state = draw(dst_state, src)
    return absorb(state, kind) if kind else state


@RowKernel
@compiled(nogil=True)
def _drop_edges(
    first: int,
    last: int,
    indptr: np.ndarray,
    index: np.ndarray,
    src_ids: np.ndarray,
    dst_ids: np.ndarray,
    edge_types: np.ndarray,
    occurrence: np.ndarray,
    self_loops: bool,
    weight: np.ndarray,
    out: np.ndarray,
    heads: int,
    key: np.uint64,
    threshold: np.uint64,
    scale: float,
) -> None:
    zero, typed, repeated = weight.dtype.type(0), edge_types.size > 0, occurrence.size > 0
    for dst in range(first, last):
        dst_state = absorb(key, _U64(dst_ids[dst]))
        for e in range(_U64(indptr[dst]), _U64(indptr[dst + 1])):
            kind = _U64(edge_types[e]) << _U64(32) if typed else _U64(0)
            if repeated:
                kind |= _U64(_U32(occurrence[e]))
            elif self_loops and e + _U64(1) == _U64(indptr[dst + 1]):
                kind |= ADDED_LOOP
            state = edge_state(dst_state, _U64(src_ids[_U64(index[e])]), kind)
            for head in range(_U64(heads)):
                i = e * _U64(heads) + head
                out[i] = weight[i] * scale if head_bits(state, head) >= threshold else zero


def drop_rows(
    x: np.ndarray,
    stride: int,
    out: np.ndarray,
    ids: np.ndarray,
    key: int,
    threshold: int,
    num_columns: int,
    start: int,
    stop: int,
    *,
    relu: bool = False,
) -> None:
    """Dropout of the columns `start:stop` of a matrix with `num_columns` columns, after ReLU if `relu` is set.

    Args:
        x: flat rows, `stride` floats apart; the first `stop - start` floats of each row are read.
        stride: distance of rows in `x`, in floats.
        out: `[N * (stop - start)]` flat, written.
        ids: `[N]` original vertex ids.
        key: 64-bit key of the mask.
        threshold: a value is dropped if its 16 random bits are below this; 0 keeps all values, 65536 drops all.
        num_columns: columns of the whole matrix.
        start: first column of the whole matrix that is in `x`.
        stop: one past the last column in `x`.
        relu: whether to take max(x, 0) first.
    """
    kind, width = x.dtype.type, stop - start
    _drop_range(
        evenly(ids.size, out.size),
        x,
        stride,
        out,
        ids,
        np.uint64(key),
        np.uint32(threshold),
        kind(survivor_scale(threshold)),
        kind(0 if relu else -np.inf),
        num_columns,
        start,
        stop,
        can_stream(out, width, width),
        _one_vector(x),
    )


def _one_vector(x: np.ndarray) -> Code:
    """The layout code of a row of one full vector."""
    return layout(VECTOR_BYTES // x.itemsize, x.itemsize).code


def keep_positive(output: np.ndarray, gradient: np.ndarray, out: np.ndarray, threshold: int) -> None:
    """Backward of ReLU and dropout without a hash: the kept values are those with positive `output`.

    All arrays are flat and of equal size.
    """
    scale = output.dtype.type(survivor_scale(threshold))
    bounds = evenly(-(-out.size // _FLOATS), out.size)
    _scale_positive(bounds, output, gradient, out, scale, can_stream(out, 0, 0), _one_vector(out))


def drop_sparse(
    indptr: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    ids: np.ndarray,
    key: int,
    threshold: int,
    num_columns: int,
) -> np.ndarray:
    """Dropout of the nonzeros of CSR rows by the mask of the dense matrix: new values `[nnz]`."""
    out = np.empty_like(values)
    scale = values.dtype.type(survivor_scale(threshold))
    _drop_sparse(
        by_edges(indptr, values.size),
        indptr,
        columns,
        values,
        out,
        ids,
        np.uint64(key),
        np.uint32(threshold),
        scale,
        num_columns,
    )
    return out


def drop_edges(
    indptr: np.ndarray,
    index: np.ndarray,
    src_ids: np.ndarray,
    dst_ids: np.ndarray,
    edge_types: np.ndarray,
    occurrence: np.ndarray,
    self_loops: bool,
    weight: np.ndarray,
    out: np.ndarray,
    heads: int,
    key: int,
    threshold: int,
) -> None:
    """Dropout of `weight` `[E * heads]` into `out` (may be the same array), keyed by edge identity.

    `edge_types` and `occurrence` are empty if edges have none.
    """
    _drop_edges(
        by_edges(indptr, 4 * weight.size),
        indptr,
        index,
        src_ids,
        dst_ids,
        edge_types,
        occurrence,
        self_loops,
        weight,
        out,
        heads,
        np.uint64(key),
        np.uint64(threshold),
        weight.dtype.type(survivor_scale(threshold)),
    )


def quantised(p: float) -> int:
    """The threshold of 16-bit draws for probability `p`: p in units of 1/65536."""
    return round(p * 65536)


def survivor_scale(threshold: int) -> float:
    """The factor for values that are kept: 1 / (1 - quantised p), or 0 if no value is kept."""
    return 65536 / (65536 - threshold) if threshold < 65536 else 0.0
