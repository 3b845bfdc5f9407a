"""All features within reach of every rank of a machine: mapped from the artifact (one copy for all) or in RAM."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from gnnexp.errors import DataError, Problem
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.feature_stores.cache import FeatureCache
from gnnexp.feature_stores.rows import rows_nbytes, take_rows
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows


class LocalStore(FeatureStore):
    """Reads rows of the whole feature matrix.

    Args:
        memory: `mapped` leaves the file in the page cache, shared by the machine's ranks; `ram` gives each rank its
            own copy.
        cache: rows in the device tier, or None.
    """

    def __init__(self, memory: Literal["mapped", "ram"] = "mapped", cache: FeatureCache | None = None) -> None:
        super().__init__(cache)
        self.memory = memory

    def prepare(self, shard: Shard) -> None:
        """Map or copy the features."""
        features = features_of(shard)
        self._features: Rows = features.clone() if self.memory == "ram" else features

    def fetch(self, ids: Tensor) -> Rows:
        """Rows `ids` from the host tier."""
        rows = take_rows(self._features, ids, self.pool).to(self._dtype)
        self.count("host", rows.shape[0], rows_nbytes(rows))
        return self.deliver(rows)

    def held_bytes(self, all_rows: int, num_parts: int) -> int:
        """A copy, where one is asked for."""
        return all_rows if self.memory == "ram" else 0

    def nbytes(self) -> int:
        """Bytes of the feature matrix."""
        return rows_nbytes(self._features)


def features_of(shard: Shard) -> Rows:
    """The features of the graph.

    Raises:
        DataError: if it has none.
    """
    if shard.graph.features is None:
        raise DataError(
            Problem("dataset", shard.graph.name, "has no vertex features", "choose a dataset with features")
        )
    return shard.graph.features
