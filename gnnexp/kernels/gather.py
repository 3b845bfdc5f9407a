"""Copying chosen rows: features of a batch's input vertices, mostly from memory that is in no cache."""

from __future__ import annotations

import numba
import numpy as np
import torch
from numba import prange
from torch import Tensor

from gnnexp.kernels.balance import RANGES_PER_THREAD, claim, launch, num_threads
from gnnexp.kernels.pool import Pool


@numba.njit(nogil=True, cache=True, parallel=True)
def _gather(threads: int, x: np.ndarray, ids: np.ndarray, out: np.ndarray) -> bool:
    parts, counter, outside = threads * RANGES_PER_THREAD, np.zeros(1, np.int64), np.zeros(1, np.int64)
    for _ in prange(threads):
        part = claim(counter)
        while part < parts:
            for row in range(ids.size * part // parts, ids.size * (part + 1) // parts):
                source = np.uint64(ids[row])
                if source < np.uint64(x.shape[0]):
                    for column in range(x.shape[1]):
                        out[row, column] = x[source, column]
                else:
                    outside[0] = 1
            part = claim(counter)
    return outside[0] > 0


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
    if launch(_gather, num_threads(out.numel()), source, wanted, out.numpy()):
        raise IndexError(f"row ids must be in 0..{x.shape[0] - 1}, found {wanted.min()}..{wanted.max()}")
    return out
