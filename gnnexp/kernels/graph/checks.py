"""Checks of a graph's arrays, each in a single pass without temporaries: a memory-mapped file may have any size.

Kernels return `(count, first)`: the number of invalid entries, and the position of the first one, or -1 without any.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled


@compiled(nogil=True)
def count_outside(values: np.ndarray, low: int, high: int) -> tuple[int, int]:
    """Count the integers of `values` `[n]` outside `low <= value < high`."""
    count, first = 0, -1
    for i in range(values.size):
        if values[i] < low or values[i] >= high:
            if count == 0:
                first = i
            count += 1
    return count, first


@compiled(nogil=True)
def count_descents(values: np.ndarray, strict: bool) -> tuple[int, int]:
    """Count the entries of `values` `[n]` that are smaller than their predecessor, or equal to it if `strict`."""
    count, first = 0, -1
    for i in range(1, values.size):
        if values[i] < values[i - 1] or (strict and values[i] == values[i - 1]):
            if count == 0:
                first = i
            count += 1
    return count, first


@compiled(nogil=True)
def count_disorder(indptr: np.ndarray, indices: np.ndarray, types: np.ndarray, strict: bool) -> tuple[int, int]:
    """Count the entries of rows that are smaller than their predecessor in the row, by (index, type).

    `types` is empty for untyped edges; of these, equal entries count too if `strict`. `indptr` must be valid.
    """
    typed = types.size > 0
    count, first = 0, -1
    for row in range(indptr.size - 1):
        for i in range(indptr[row] + 1, indptr[row + 1]):
            before, here = indices[i - 1], indices[i]
            wrong = here < before
            if here == before:
                wrong = (types[i] < types[i - 1]) if typed else strict
            if wrong:
                if count == 0:
                    first = i
                count += 1
    return count, first


@compiled(nogil=True)
def count_nonfinite(rows: np.ndarray) -> tuple[int, int]:
    """Count NaN and infinities in `rows` `[n, d]`; `first` is the first row with one."""
    count, first = 0, -1
    for i in range(rows.shape[0]):
        here = 0
        for j in range(rows.shape[1]):
            here += not np.isfinite(rows[i, j])
        if here > 0:
            if count == 0:
                first = i
            count += here
    return count, first


@compiled(nogil=True)
def count_bad_multilabel(labels: np.ndarray) -> tuple[int, int]:
    """Count the rows of `labels` `[n, C]` with values other than 0 and 1; a row of NaN only is valid."""
    count, first = 0, -1
    for i in range(labels.shape[0]):
        binary, missing = 0, 0
        for j in range(labels.shape[1]):
            binary += labels[i, j] == 0 or labels[i, j] == 1
            missing += np.isnan(labels[i, j])
        if binary != labels.shape[1] and missing != labels.shape[1]:
            if count == 0:
                first = i
            count += 1
    return count, first
