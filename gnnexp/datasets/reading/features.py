"""Makes features (dense tensors or `SparseRows`) and labels of vertices from the matrices and tables of files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gnnexp.datasets.base import check_memory
from gnnexp.errors import DataError, Problem
from gnnexp.graph.sparse import SparseRows

Sparse = Literal["auto", True, False]

# `auto` makes smaller matrices dense, because dense kernels are faster. Coauthor-physics would need 1.1 GiB.
_DENSE_BYTES = 256 << 20


def feature_rows(matrix: scipy.sparse.csr_array, sparse: Sparse, *, normalize: bool) -> Tensor | SparseRows:
    """`[V, D]` float32 features.

    Args:
        matrix: `[V, D]`, with sorted, unique columns in each row.
        sparse: keep features as sparse rows; `auto` = if they would need more than 256 MiB as a dense matrix.
        normalize: divide each row by its sum (rows with the sum 0 do not change).
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
    """The matrix with each row divided by its sum, as in Kipf & Welling (ICLR 2017)."""
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    scale = np.divide(1.0, sums, out=np.ones_like(sums), where=sums != 0)
    return scipy.sparse.csr_array(
        (matrix.data * np.repeat(scale, np.diff(matrix.indptr)), matrix.indices, matrix.indptr), shape=matrix.shape
    )


def one_hot_columns(columns: np.ndarray) -> scipy.sparse.csr_array:
    """One-hot codes of `[V, k]` integers, concatenated over columns: one dimension per distinct value of a column."""
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
    """The result of `features_by_type` as dense or sparse rows.

    Raises:
        DataError: vertices have no types.
    """
    if types is None:
        raise DataError(
            Problem(
                "dataset.features_by_type",
                True,
                "this dataset has one type of vertices",
                "set dataset.features_by_type=false",
            )
        )
    return feature_rows(features_by_type(features, types), sparse, normalize=False)


def features_by_type(features: np.ndarray | None, types: np.ndarray) -> scipy.sparse.csr_array:
    """`[V, T + F * D]`: the one-hot code of each vertex's type, and its features in the columns of its type.

    A linear layer of these features is therefore a projection with a bias for each type (docs/rooms.md, "Node types").

    Args:
        features: `[V, D]`, zero for types without features; F types have features. None = no type has features.
        types: `[V]` type of each vertex; T types occur.
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


_NAMED = 5
# The same limit as in `class_count`, which other datasets use.
_MAX_CLASS = 1 << 31


def as_labels(rows: np.ndarray | None, path: Path) -> np.ndarray | None:
    """`[V]` int64 labels from one column (NaN = -1), or `[V, C]` float32 from several.

    Args:
        rows: `[V, k]` numbers. Text is read as float64, which represents each class exactly.
        path: file that errors name.

    Raises:
        DataError: a single column has fractions, or classes of 2^31 or more.
    """
    if rows is None:
        return None
    if rows.shape[1] != 1:
        return np.array(rows, np.float32)
    values = rows[:, 0]
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), -1, values)
        if (np.isfinite(values) & (values != np.floor(values))).any():
            fix = "number the classes from 0 on"
            raise DataError(Problem(f"labels of {path}", "fractions", "classes must be whole numbers", fix))
    smallest, largest = values.min(initial=0).item(), values.max(initial=0).item()
    if largest >= _MAX_CLASS or smallest < -_MAX_CLASS:
        raise DataError(
            Problem(
                f"labels of {path}",
                f"{smallest}..{largest}",
                "classes must be below 2^31",
                "number the classes from 0 on",
            )
        )
    return values.astype(np.int64)


def count_classes(labels: np.ndarray | None) -> int:
    """Number of classes, 0 without labels."""
    if labels is None:
        return 0
    return int(labels.shape[1]) if labels.ndim == 2 else int(labels.max(initial=-1)) + 1


def empty_classes(labels: np.ndarray | None) -> str:
    """Classes below the largest that no vertex has, as text. Labels that were never renumbered have many of them.

    Time and memory depend on the number of vertices, and not on the largest class.
    """
    if labels is None or labels.ndim == 2:
        return ""
    present = np.unique(labels[labels >= 0])
    absent = count_classes(labels) - present.size
    # `below`: number of absent classes below each present class. The k-th absent class is k plus the number of present
    # classes that have at most k absent classes below them.
    below = present - np.arange(present.size)
    named = np.arange(min(absent, _NAMED))
    named += np.searchsorted(below, named, side="right")
    more = f" and {absent - _NAMED} more" if absent > _NAMED else ""
    return ", ".join(map(str, named.tolist())) + more
