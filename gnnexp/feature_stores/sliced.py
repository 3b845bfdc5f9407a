"""Some dimensions of all rows on every rank (P3, section 3.1): what push-pull parallelism reads."""

from __future__ import annotations

from torch import Tensor

from gnnexp.feature_stores.base import FeatureStore
from gnnexp.feature_stores.local import features_of
from gnnexp.feature_stores.rows import rows_nbytes, take_rows
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows, SparseRows


class SlicedStore(FeatureStore):
    """Rank r of P holds dimensions `r * D / P : (r + 1) * D / P` of every vertex, in RAM; there is nothing to cache."""

    slices = True

    def __init__(self) -> None:
        super().__init__(None)

    def prepare(self, shard: Shard) -> None:
        """Copy this rank's dimensions."""
        features = features_of(shard)
        bounds = slice_bounds(features.shape[1], self._comm.size)
        self.dims = slice(bounds[self._comm.rank], bounds[self._comm.rank + 1])
        if isinstance(features, SparseRows):
            self._rows: Rows = features.columns_between(self.dims.start, self.dims.stop).to(self._dtype)
        else:
            self._rows = features[:, self.dims].to(self._dtype, copy=True).contiguous()

    def fetch(self, ids: Tensor) -> Rows:
        """`[n, len(dims)]` from the host tier."""
        rows = take_rows(self._rows, ids, self.pool)
        self.count("host", rows.shape[0], rows_nbytes(rows))
        return self.deliver(rows)

    def held_bytes(self, all_rows: int, num_parts: int) -> int:
        """Its dimensions of all rows."""
        return all_rows // num_parts

    def nbytes(self) -> int:
        """Bytes of the slice."""
        return rows_nbytes(self._rows)


def slice_bounds(num_dims: int, num_slices: int) -> list[int]:
    """`[num_slices + 1]` bounds of slices whose widths differ by at most one; some may be empty."""
    return [num_dims * number // num_slices for number in range(num_slices + 1)]
