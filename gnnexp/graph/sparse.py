"""Rows of features that are no dense matrix.

- `SparseRows`: bag-of-words and one-hot features that would not fit as dense rows.
- `StoredRows`: dense rows that a layer's kernels read where they are, and widen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from gnnexp.kernels.crossing import across


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Sparse rows in CSR form; they may replace a dense `[N, D]` feature matrix anywhere.

    Attributes:
        indptr: `[N + 1]` int64 bounds of the values of each row.
        columns: `[nnz]` int32 column of each value; inside a row ascending and unique.
        values: `[nnz]` nonzero values, float.
        num_columns: D.
    """

    indptr: Tensor
    columns: Tensor
    values: Tensor
    num_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """`(N, D)`."""
        return int(self.indptr.numel()) - 1, self.num_columns

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the values."""
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all three arrays."""
        return self.indptr.nbytes + self.columns.nbytes + self.values.nbytes

    def clone(self) -> SparseRows:
        """A copy in RAM."""
        return SparseRows(self.indptr.clone(), self.columns.clone(), self.values.clone(), self.num_columns)

    def rows(self, ids: Tensor) -> SparseRows:
        """The rows `ids` `[n]` in this order; `ids` are on the device of the rows."""
        ids = ids.to(torch.int64)
        starts, lengths = self.indptr[ids], self.indptr[ids + 1] - self.indptr[ids]
        indptr = ends(lengths)
        count = int(indptr[-1])
        shift = torch.repeat_interleave(starts - indptr[:-1], lengths, output_size=count)
        positions = torch.arange(count, device=self.device) + shift
        return SparseRows(indptr, self.columns[positions], self.values[positions], self.num_columns)

    @property
    def device(self) -> torch.device:
        """The device of all three arrays."""
        return self.values.device

    def to(self, dtype: torch.dtype) -> SparseRows:
        """The same rows with values of another data type."""
        return SparseRows(self.indptr, self.columns, self.values.to(dtype), self.num_columns)

    def on(self, device: torch.device) -> SparseRows:
        """The same rows on another device."""
        indptr, columns, values = (across(array, device) for array in (self.indptr, self.columns, self.values))
        return SparseRows(indptr, columns, values, self.num_columns)

    def columns_between(self, start: int, stop: int) -> SparseRows:
        """The columns `start:stop` of all rows, renumbered from 0."""
        kept = (self.columns >= start) & (self.columns < stop)
        before = ends(kept)
        return SparseRows(before[self.indptr], self.columns[kept] - start, self.values[kept], stop - start)

    @staticmethod
    def concatenated(parts: Sequence[SparseRows]) -> SparseRows:
        """The rows of all `parts` in order; there is at least one part, and all parts have the same `num_columns`."""
        starts = accumulate((part.columns.numel() for part in parts), initial=0)
        shifted = [part.indptr[1:] + start for part, start in zip(parts, starts, strict=False)]
        indptr = torch.cat([parts[0].indptr[:1], *shifted])
        columns, values = (torch.cat([getattr(part, name) for part in parts]) for name in ("columns", "values"))
        return SparseRows(indptr, columns, values, parts[0].num_columns)

    def to_dense(self) -> Tensor:
        """The rows as a dense matrix `[N, D]`."""
        num_rows = self.shape[0]
        dense = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        row_of = torch.repeat_interleave(
            torch.arange(num_rows, device=self.device),
            self.indptr[1:] - self.indptr[:-1],
            output_size=self.columns.numel(),
        )
        dense[row_of, self.columns.to(torch.int64)] = self.values
        return dense


def ends(lengths: Tensor) -> Tensor:
    """Bounds `[n + 1]` int64 of rows with `lengths` `[n]`: 0, then the cumulative sums."""
    bounds = torch.zeros(lengths.numel() + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=bounds[1:])
    return bounds


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Dense rows that a layer's kernels read where they are stored: row i is `values[ids[i]]`.

    So no matrix of a batch's rows is written. Rows with `ids` take no gradient.

    Attributes:
        values: `[V, D]` on the device of the layer, float; bfloat16 values are widened when they are read.
        ids: `[N]` int32 or int64 on the same device; None: row i is `values[i]`.
        dtype: data type that the rows have for the layer.
    """

    values: Tensor
    ids: Tensor | None
    dtype: torch.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """`(N, D)`."""
        return (self.values.shape[0] if self.ids is None else self.ids.numel()), self.values.shape[1]

    @property
    def requires_grad(self) -> bool:
        """Whether the rows take a gradient."""
        return self.values.requires_grad

    def rows(self, places: slice | Tensor) -> StoredRows:
        """The rows at some places `[n]`, which are not read."""
        if self.ids is None:
            return StoredRows(self.values[places], None, self.dtype)
        return StoredRows(self.values, self.ids[places], self.dtype)

    def to_dense(self) -> Tensor:
        """The rows as a dense matrix `[N, D]`."""
        return (self.values if self.ids is None else self.values.index_select(0, self.ids)).to(self.dtype)


Rows = Tensor | SparseRows
InputRows = Rows | StoredRows  # what the first layer takes


def row_nbytes(features: Rows, itemsize: int) -> int:
    """Bytes of a row with values of `itemsize` bytes each; for sparse rows the mean."""
    if isinstance(features, SparseRows):
        return max(1, features.values.numel() * (itemsize + 4) // max(1, features.shape[0]) + 8)
    return max(1, features.shape[1] * itemsize)
