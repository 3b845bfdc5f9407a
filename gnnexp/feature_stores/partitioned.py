"""Each row at its owner (DistDGL; FastSample, section 3.3): two rounds per batch, ids to the owners and rows back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.rows import exchange_rows
from gnnexp.components.facts import GraphFacts, Need
from gnnexp.feature_stores.base import HELD, FeatureStore, FeatureStoreOptions, Share
from gnnexp.feature_stores.cache import CacheOptions
from gnnexp.feature_stores.local import features_of
from gnnexp.feature_stores.routing import Routes, route, together
from gnnexp.feature_stores.rows import RowDtype, take_rows
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows


@dataclass(frozen=True)
class PartitionedOptions(FeatureStoreOptions):
    """Every rank holds the rows of the vertices that its part owns, in RAM.

    Attributes:
        cache: rows in the device tier, or None. The store reads only the rows that the cache misses.
        dtype: `bfloat16`: rows are rounded, then held and moved with 2 bytes per value. None: the run's dtype.
    """

    partitioned = True
    communicates = True

    cache: CacheOptions | None = None
    dtype: RowDtype = None

    def needs(self, facts: GraphFacts, row_bytes: int, share: Share) -> list[Need]:
        """The rows of a part."""
        return [Need(HELD, "host", share.vertices * row_bytes // share.num_parts)]

    def make(self) -> PartitionedStore:
        """The feature store of a rank."""
        return PartitionedStore(self)


class PartitionedStore(FeatureStore):
    """A part's rows, and requests to the other parts."""

    options: PartitionedOptions
    origins = ("host", "remote")

    def prepare(self, shard: Shard) -> None:
        """Copy the rows of this part, and make the table from vertex ids to positions."""
        self._owner = shard.owner.numpy()
        own = torch.from_numpy(np.flatnonzero(self._owner == shard.part))
        self._row_of = torch.zeros(shard.graph.num_nodes, dtype=torch.int32)
        self._row_of[own] = torch.arange(own.numel(), dtype=torch.int32)
        self._rows: Rows = self.form.held(take_rows(features_of(shard), own))

    def fetch(self, ids: Tensor) -> Rows:
        """Own rows from the host tier, all other rows from their owners (2 rounds, tag `features`)."""
        comm = self._comm
        routes: Routes = route(ids, self._owner, comm.rank, comm.size)
        wanted, asked = comm.counted_all_to_all(routes.foreign, routes.sent, "features")
        answer = take_rows(self._rows, self._row_of[wanted.long()], self.pool)
        foreign = exchange_rows(answer, asked, routes.sent, comm, "features", self.pool)
        self.count("remote", foreign.shape[0], foreign.nbytes)
        own = self._row_of[routes.own.long()]
        rows, num_bytes = together(self._rows, own, foreign, routes, self.pool)
        self.count("host", own.numel(), num_bytes)
        return self.deliver(rows)

    def nbytes(self) -> int:
        """Bytes of this part's rows."""
        return self._rows.nbytes
