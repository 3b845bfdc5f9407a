"""Rows of a sparse feature matrix: bag-of-words and one-hot features that would not fit as dense rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SparseRows:
    """CSR rows, used wherever a dense `[N, D]` feature matrix may stand.

    Attributes:
        indptr: `[N + 1]` int64.
        columns: `[nnz]` int32, sorted inside a row, unique.
        values: `[nnz]` float.
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
        """Dtype of the values."""
        return self.values.dtype

    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.numel() * array.element_size() for array in (self.indptr, self.columns, self.values))

    def clone(self) -> SparseRows:
        """A copy in RAM."""
        return SparseRows(self.indptr.clone(), self.columns.clone(), self.values.clone(), self.num_columns)

    def rows(self, ids: Tensor) -> SparseRows:
        """The rows `ids` `[n]`, on the device of the rows, in that order."""
        ids = ids.to(torch.int64)
        starts, lengths = self.indptr[ids], self.indptr[ids + 1] - self.indptr[ids]
        indptr = _ends(lengths)
        count = int(indptr[-1])
        shift = torch.repeat_interleave(starts - indptr[:-1], lengths, output_size=count)
        positions = torch.arange(count, device=self.device) + shift
        return SparseRows(indptr, self.columns[positions], self.values[positions], self.num_columns)

    @property
    def device(self) -> torch.device:
        """Where all three arrays are."""
        return self.values.device

    def to(self, dtype: torch.dtype) -> SparseRows:
        """The same rows with values of another dtype."""
        return SparseRows(self.indptr, self.columns, self.values.to(dtype), self.num_columns)

    def on(self, device: torch.device) -> SparseRows:
        """The same rows on another device."""
        return SparseRows(self.indptr.to(device), self.columns.to(device), self.values.to(device), self.num_columns)

    def columns_between(self, start: int, stop: int) -> SparseRows:
        """The columns `start:stop` of all rows, renumbered from 0."""
        kept = (self.columns >= start) & (self.columns < stop)
        before = _ends(kept)
        return SparseRows(before[self.indptr], self.columns[kept] - start, self.values[kept], stop - start)

    def followed_by(self, rows: SparseRows) -> SparseRows:
        """These rows, then the others."""
        return SparseRows.concatenated([self, rows])

    @staticmethod
    def concatenated(parts: Sequence[SparseRows]) -> SparseRows:
        """All rows of all parts, in order; at least one part, equal columns."""
        starts = accumulate((part.columns.numel() for part in parts), initial=0)
        shifted = [part.indptr[1:] + start for part, start in zip(parts, starts, strict=False)]
        indptr = torch.cat([parts[0].indptr[:1], *shifted])
        columns, values = (torch.cat([getattr(part, name) for part in parts]) for name in ("columns", "values"))
        return SparseRows(indptr, columns, values, parts[0].num_columns)

    def to_dense(self) -> Tensor:
        """`[N, D]` dense copy."""
        num_rows = self.shape[0]
        dense = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        row_of = torch.repeat_interleave(torch.arange(num_rows, device=self.device),
                                         self.indptr[1:] - self.indptr[:-1], output_size=self.columns.numel())
        dense[row_of, self.columns.to(torch.int64)] = self.values
        return dense


def _ends(lengths: Tensor) -> Tensor:
    """`[n + 1]` int64: 0 and the running sums of `lengths` `[n]`."""
    ends = torch.zeros(lengths.numel() + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=ends[1:])
    return ends


Rows = Tensor | SparseRows


def row_nbytes(features: Rows, itemsize: int) -> int:
    """Bytes of a row with values of `itemsize` bytes; of sparse rows, the mean."""
    if isinstance(features, SparseRows):
        return max(1, features.values.numel() * (itemsize + 4) // max(1, features.shape[0]) + 8)
    return max(1, features.shape[1] * itemsize)
