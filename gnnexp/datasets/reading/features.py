"""Feature matrices as the files have them, turned into dense tensors or `SparseRows`."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gnnexp.datasets.base import check_memory
from gnnexp.errors import DataError, Problem
from gnnexp.graph.sparse import SparseRows

Sparse = Literal["auto", True, False]

# `auto` keeps what is small dense, where dense kernels are faster; coauthor-physics would take 1.1 GiB.
_DENSE_BYTES = 256 << 20


def feature_rows(matrix: scipy.sparse.csr_array, sparse: Sparse, *, normalize: bool) -> Tensor | SparseRows:
    """`[V, D]` float32 features.

    Args:
        matrix: sorted, unique columns in each row.
        sparse: keep them as sparse rows; `auto` = if they would take more than 256 MiB otherwise.
        normalize: divide each row by its sum (rows that sum to 0 stay as they are).
    """
    matrix = matrix.astype(np.float32)
    if normalize:
        matrix = row_normalized(matrix)
    num_rows, num_columns = matrix.shape
    as_rows = num_rows * num_columns * 4 > _DENSE_BYTES if sparse == "auto" else sparse
    if not as_rows:
        check_memory(num_rows * num_columns * 4, f"features {num_rows} x {num_columns} as a dense matrix")
        return torch.from_numpy(matrix.toarray())
    return SparseRows(
        torch.from_numpy(matrix.indptr.astype(np.int64)),
        torch.from_numpy(matrix.indices.astype(np.int32)),
        torch.from_numpy(matrix.data),
        num_columns,
    )


def row_normalized(matrix: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Every row divided by its sum, as Kipf & Welling (ICLR 2017) do."""
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    scale = np.divide(1.0, sums, out=np.ones_like(sums), where=sums != 0)
    return scipy.sparse.csr_array(
        (matrix.data * np.repeat(scale, np.diff(matrix.indptr)), matrix.indices, matrix.indptr), shape=matrix.shape
    )


def one_hot_columns(columns: np.ndarray) -> scipy.sparse.csr_array:
    """One-hot code of each column of `[V, k]` integers, side by side, one dimension per distinct value."""
    num_rows, num_columns = columns.shape
    codes, offset = np.empty(columns.shape, np.int64), 0
    for column in range(num_columns):
        values, codes[:, column] = np.unique(columns[:, column], return_inverse=True)
        codes[:, column] += offset
        offset += values.size
    starts = np.arange(num_rows + 1) * num_columns
    ones = np.ones(codes.size, np.float32)
    return scipy.sparse.csr_array((ones, codes.ravel(), starts), shape=(num_rows, offset))


def typed_rows(features: np.ndarray | None, types: np.ndarray | None, sparse: Sparse) -> Tensor | SparseRows:
    """`features_by_type` as `feature_rows` has them.

    Raises:
        DataError: vertices have no types.
    """
    if types is None:
        raise DataError(Problem("dataset.features_by_type", True, "this dataset has one type of vertices",
                                "set dataset.features_by_type=false"))
    return feature_rows(features_by_type(features, types), sparse, normalize=False)


def features_by_type(features: np.ndarray | None, types: np.ndarray) -> scipy.sparse.csr_array:
    """`[V, T + F * D]`: every vertex's type in one-hot code, and its features in the columns of its type.

    So any linear layer of them is a projection with a bias for each type (docs/rooms.md, "Node types").

    Args:
        features: `[V, D]`, zero in types without any; F types have some. None = of no type.
        types: `[V]` type of each vertex; T of them occur.
    """
    codes = one_hot_columns(types[:, None])
    if features is None:
        return codes
    rows = scipy.sparse.csr_array(features)
    sizes = np.diff(rows.indptr)
    featured = np.unique(types[sizes > 0])
    first = np.searchsorted(featured, types) * features.shape[1]
    shape = types.size, featured.size * features.shape[1]
    placed = scipy.sparse.csr_array((rows.data, rows.indices + np.repeat(first, sizes), rows.indptr), shape=shape)
    return scipy.sparse.csr_array(scipy.sparse.hstack([codes, placed], format="csr"))
