"""Every rank reads all features: mapped from the artifact (one copy per machine), or copied into RAM."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from gnnexp.errors import DataError, Problem
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.feature_stores.cache import FeatureCache
from gnnexp.feature_stores.rows import take_rows
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
        self.count("host", rows.shape[0], rows.nbytes)
        return self.deliver(rows)

    def held_bytes(self, all_rows: int, num_parts: int) -> int:
        """Bytes of the copy with `memory=ram`, 0 if the file is mapped."""
        return all_rows if self.memory == "ram" else 0

    def nbytes(self) -> int:
        """Bytes of the feature matrix."""
        return self._features.nbytes


def features_of(shard: Shard) -> Rows:
    """The features of the graph.

    Raises:
        DataError: the graph has no vertex features.
    """
    if shard.graph.features is None:
        raise DataError(
            Problem("dataset", shard.graph.name, "has no vertex features", "choose a dataset with features")
        )
    return shard.graph.features
