"""Copying chosen rows: features of a batch's input vertices, mostly from memory that is in no cache."""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor

from gnnexp.kernels.pool import Pool
from gnnexp.kernels.rowkernel import RowKernel, evenly


@RowKernel
@numba.njit(nogil=True, cache=True)
def _gather(first: int, last: int, x: np.ndarray, ids: np.ndarray, out: np.ndarray, outside: np.ndarray) -> None:
    for row in range(first, last):
        source = np.uint64(ids[row])
        if source < np.uint64(x.shape[0]):
            for column in range(x.shape[1]):
                out[row, column] = x[source, column]
        else:
            outside[0] = 1


def gather_rows(x: Tensor, ids: Tensor, pool: Pool | None = None) -> Tensor:
    """`x[ids]` of CPU rows.

    Args:
        x: `[N, d]`, possibly memory-mapped.
        ids: `[n]` int32 or int64.
        pool: where the output's memory comes from, or None for fresh memory.

    Raises:
        IndexError: an id is negative or not below N.
    """
    shape = (ids.numel(), x.shape[1])
    source, wanted = x.detach().numpy(), ids.numpy()
    out = torch.empty(shape, dtype=x.dtype) if pool is None else torch.from_numpy(pool.empty(shape, source.dtype))
    outside = np.zeros(1, np.int64)
    _gather(evenly(shape[0], out.numel()), source, wanted, out.numpy(), outside)
    if outside[0]:
        raise IndexError(f"row ids must be in 0..{x.shape[0] - 1}, found {wanted.min()}..{wanted.max()}")
    return out


@RowKernel
@numba.njit(nogil=True, cache=True)
def _add(first: int, last: int, x: np.ndarray, ids: np.ndarray, values: np.ndarray) -> None:
    for row in range(first, last):
        target = np.uint64(ids[row])
        for column in range(x.shape[1]):
            x[target, column] += values[row, column]


def add_rows(x: Tensor, ids: Tensor, values: Tensor) -> None:
    """`x[ids] += values` in place.

    Args:
        x: `[N, d]`.
        ids: `[n]` int64, each once: threads share the rows.
        values: `[n, d]`.
    """
    if ids.numel():
        _add(evenly(ids.numel(), values.numel()), x.detach().numpy(), ids.numpy(), values.detach().numpy())


@RowKernel
@numba.njit(nogil=True, cache=True)
def _move(first: int, last: int, x: np.ndarray, ids: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    for row in range(first, last):
        source, target = np.uint64(ids[row]), np.uint64(places[row])
        for column in range(x.shape[1]):
            out[target, column] = x[source, column]


def move_rows(x: Tensor, ids: Tensor, places: Tensor, out: Tensor) -> None:
    """`out[places] = x[ids]` in one pass.

    Args:
        x: `[N, d]`.
        ids: `[n]` int32 or int64, all in 0..N-1.
        places: `[n]` int64, each once.
        out: `[M, d]`.
    """
    if ids.numel():
        _move(evenly(ids.numel(), ids.numel() * x.shape[1]), x.numpy(), ids.numpy(), places.numpy(), out.numpy())


def place_rows(rows: Tensor, places: Tensor, out: Tensor) -> None:
    """`out[places] = rows`; arguments as `move_rows`."""
    move_rows(rows, torch.arange(places.numel()), places, out)
