"""Copy the in-edges of the vertices of one part out of a whole graph."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled


@compiled(nogil=True)
def count_owned(indptr: np.ndarray, owner: np.ndarray, part: int) -> np.ndarray:
    """`indptr` `[V + 1]` int64 of the part's edges: the in-edges of its vertices; foreign vertices have none."""
    own = np.zeros(indptr.size, np.int64)
    for vertex in range(owner.size):
        degree = indptr[vertex + 1] - indptr[vertex] if owner[vertex] == part else 0
        own[vertex + 1] = own[vertex] + degree
    return own


@compiled(nogil=True)
def copy_owned(
    indptr: np.ndarray, values: np.ndarray, owner: np.ndarray, part: int, own_indptr: np.ndarray
) -> np.ndarray:
    """Entries of `values` `[E]` for the in-edges of owned vertices, in order; `own_indptr` is from `count_owned`."""
    own = np.empty(own_indptr[-1], values.dtype)
    for vertex in range(owner.size):
        if owner[vertex] == part:
            start, shift = own_indptr[vertex], indptr[vertex] - own_indptr[vertex]
            for edge in range(start, own_indptr[vertex + 1]):
                own[edge] = values[edge + shift]
    return own


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    indptr, owner = np.zeros(2, np.int64), np.zeros(1, np.int16)
    copy_owned(indptr, np.empty(0, np.int32), owner, 0, count_owned(indptr, owner, 0))
