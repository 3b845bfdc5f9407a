"""Single passes that find what is wrong with the arrays of a graph; no temporaries, so a mapped file may have any size.

Where a kernel returns `(count, first)`, `first` is the position of the first offence, -1 when there is none.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled


@compiled(nogil=True)
def count_outside(values: np.ndarray, low: int, high: int) -> tuple[int, int]:
    """Integers of `values` `[n]` outside `low <= value < high`."""
    count, first = 0, -1
    for i in range(values.size):
        if values[i] < low or values[i] >= high:
            if count == 0:
                first = i
            count += 1
    return count, first


@compiled(nogil=True)
def count_descents(values: np.ndarray, strict: bool) -> tuple[int, int]:
    """Positions where `values` `[n]` are below their predecessor; equal ones count too if `strict`."""
    count, first = 0, -1
    for i in range(1, values.size):
        if values[i] < values[i - 1] or (strict and values[i] == values[i - 1]):
            if count == 0:
                first = i
            count += 1
    return count, first


@compiled(nogil=True)
def count_disorder(indptr: np.ndarray, indices: np.ndarray, types: np.ndarray, strict: bool) -> tuple[int, int]:
    """Entries of a row that come before their predecessor by (index, type); equal ones count too if `strict`.

    `types` is empty for untyped edges. `indptr` must have been checked.
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
    """NaN and infinities in `rows` `[n, d]`; `first` is a row."""
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
    """Rows of `labels` `[n, C]` that are neither all 0 or 1 nor all NaN."""
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


@compiled(nogil=True)
def count_common(left: np.ndarray, right: np.ndarray) -> tuple[int, int]:
    """Values that two ascending arrays share; `first` is a position in `left`."""
    count, first = 0, -1
    j = 0
    for i in range(left.size):
        while j < right.size and right[j] < left[i]:
            j += 1
        if j < right.size and right[j] == left[i]:
            if count == 0:
                first = i
            count += 1
    return count, first
