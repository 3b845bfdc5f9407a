"""Copy chosen rows, such as features of a batch's input vertices, mostly from memory that no cache holds."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.crossing import across
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.prefetch import prefetch
from gnnexp.kernels.rows.aggregate import matrix
from gnnexp.kernels.rows.rowkernel import RowKernel, evenly
from gnnexp.kernels.shape_tensor import has_values

_U = np.uint64
_NONE = np.empty(0, np.int64)
_LINE_BYTES = 64
# How many bytes of later rows are prefetched. Without and with prefetch, one thread: 230k random rows of 100 floats out
# of 490k 4.4 and 6.3 GB/s; 600k rows out of 2.4 M 2.5 and 5.0 GB/s; rows of 16 floats 2.2 and 5.0 GB/s.
_AHEAD_BYTES = 4096


@RowKernel
@compiled(nogil=True)
def _copy(
    first: int,
    last: int,
    x: np.ndarray,
    stride: int,
    num_rows: int,
    ids: np.ndarray,
    places: np.ndarray,
    out: np.ndarray,
    width: int,
    ahead: int,
    outside: np.ndarray,
) -> None:
    """Copy row `ids[i]` of x to row `places[i]` of out, or to row i if `places` is empty."""
    stride, limit, width, ahead = _U(stride), _U(num_rows), _U(width), _U(ahead)
    final, line, placed = _U(last - 1), _U(_LINE_BYTES // x.itemsize), places.size > 0
    for row in range(_U(first), _U(last)):
        later = _U(ids[min(row + ahead, final)]) * stride
        for column in range(_U(0), width, line):
            prefetch(x, later + column)
        source, target = _U(ids[row]), _U(places[row]) if placed else row
        if source < limit:
            source, target = source * stride, target * width
            for column in range(width):
                out[target + column] = x[source + column]
        else:
            outside[0] = 1


def _copy_rows(x: Tensor, ids: Tensor, places: np.ndarray, out: Tensor) -> None:
    count, (num_rows, width) = ids.numel(), x.shape
    if not count or not width:
        if count and (int(ids.min()) < 0 or int(ids.max()) >= num_rows):
            raise _outside(ids, num_rows)
        return
    rows = matrix(x)
    outside = np.zeros(1, np.int64)
    ahead = min(32, max(4, _AHEAD_BYTES // (width * x.element_size())))
    _copy(
        evenly(count, count * width),
        rows.values,
        rows.stride,
        num_rows,
        ids.numpy(),
        places,
        out.detach().view(-1).numpy(),
        width,
        ahead,
        outside,
    )
    if outside[0]:
        raise _outside(ids, num_rows)


def _outside(ids: Tensor, num_rows: int) -> IndexError:
    return IndexError(f"row ids must be in 0..{num_rows - 1}, found {int(ids.min())}..{int(ids.max())}")


def gather_rows(x: Tensor, ids: Tensor, pool: Pool | None = None) -> Tensor:
    """`x[ids]`; on a GPU by torch's own operation.

    Args:
        x: `[N, d]`, possibly memory-mapped.
        ids: `[n]` int32 or int64.
        pool: buffer pool for an output in host memory, or None to allocate fresh memory.

    Raises:
        IndexError: an id is negative or not below N.
    """
    if x.is_cuda:
        return x.index_select(0, across(ids, x.device))
    if not has_values(x):
        return x.new_empty((ids.numel(), *x.shape[1:]))
    shape = (ids.numel(), x.shape[1])
    kind = x.detach()[:0].numpy().dtype
    out = torch.empty(shape, dtype=x.dtype) if pool is None else torch.from_numpy(pool.empty(shape, kind))
    _copy_rows(x, ids, _NONE, out)
    return out


def move_rows(x: Tensor, ids: Tensor, places: Tensor, out: Tensor) -> None:
    """`out[places] = x[ids]` in one pass.

    Args:
        x: `[N, d]`.
        ids: `[n]` int32 or int64, all in 0..N-1.
        places: `[n]` int64, all different, all in 0..M-1.
        out: `[M, d]`, contiguous.
    """
    if has_values(x, out):
        _copy_rows(x, ids, places.numpy(), out)


def place_rows(rows: Tensor, places: Tensor, out: Tensor) -> None:
    """`out[places] = rows`, on a GPU by torch's own operation; arguments as in `move_rows`."""
    if out.is_cuda:
        out.index_copy_(0, across(places, out.device), rows)
    elif has_values(rows, out):
        move_rows(rows, torch.arange(places.numel()), places, out)


@RowKernel
@compiled(nogil=True)
def _add(first: int, last: int, x: np.ndarray, ids: np.ndarray, values: np.ndarray) -> None:
    for row in range(first, last):
        target = np.uint64(ids[row])
        for column in range(x.shape[1]):
            x[target, column] += values[row, column]


def add_rows(x: Tensor, ids: Tensor, values: Tensor) -> None:
    """`x[ids] += values` in place; on a GPU by torch's own operation.

    Args:
        x: `[N, d]`.
        ids: `[n]` int64, all different, because threads write the rows in parallel.
        values: `[n, d]`.
    """
    if x.is_cuda:
        x.index_add_(0, across(ids, x.device), values)
    elif ids.numel() and has_values(x, values):
        _add(evenly(ids.numel(), values.numel()), x.detach().numpy(), ids.numpy(), values.detach().numpy())
