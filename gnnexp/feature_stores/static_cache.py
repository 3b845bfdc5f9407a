"""A separate cache on each rank: hot rows are chosen once, before training (PaGraph, GNNLab)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from gnnexp.components.options import wrong_options
from gnnexp.errors import Problem
from gnnexp.feature_stores.cache import Batches, CacheOptions, Capacity, FeatureCache, Policy, hottest
from gnnexp.feature_stores.rows import in_places
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows

Candidates = Literal["all", "owned", "foreign"]


@dataclass(frozen=True)
class StaticCacheOptions(CacheOptions):
    """The hottest rows on every rank.

    Attributes:
        capacity: per rank, see `CacheOptions`.
        policy: what makes a row hot.
        of: which vertices are candidates. With `all`, every rank holds the same rows. With `owned`, a rank caches only
            rows of vertices that it owns, as in GSplit (section 4): each row is cached on the rank that reads it. With
            `foreign`, it caches only rows of vertices that other parts own, as in SALIENT++ (Kaler et al., MLSys 2023):
            over `PartitionedOptions`, own rows need no exchange.
        epochs: number of epochs to pre-sample for the policy `frequency`.
        batches: which batches are pre-sampled, see `CacheOptions`.
    """

    capacity: Capacity
    policy: Policy = "degree"
    of: Candidates = "all"
    epochs: int = 10
    batches: Batches = "global"

    def problems(self) -> list[Problem]:
        """Options outside of their ranges."""
        of = (self.of in get_args(Candidates), "of", self.of, "must be all, owned or foreign", "all")
        return [*wrong_options("feature_store.cache", of), *super().problems()]

    @property
    def needs_partition(self) -> bool:
        """Whether the contents follow the partition."""
        return self.of != "all"

    def make(self) -> StaticCache:
        """The cache of a rank."""
        return StaticCache(self)


class StaticCache(FeatureCache):
    """A rank's hottest rows, chosen once."""

    options: StaticCacheOptions

    def choose(self, shard: Shard, num_rows: int) -> Tensor:
        """The hottest of all vertices, of those that the rank's part owns, or of those that other parts own."""
        of, among = self.options.of, None
        if of != "all":
            among = torch.nonzero((shard.owner == shard.part) == (of == "owned")).flatten()
        return hottest(shard, self.options.policy, among)[:num_rows]

    def read(self, ids: Tensor, fetch: Callable[[Tensor], Rows]) -> Rows:
        """Hits from the cache, misses from the store."""
        rows = self._row_of[ids.long()]
        cached = rows >= 0
        hits, misses = torch.nonzero(cached).flatten(), torch.nonzero(~cached).flatten()
        self.count("local", int(hits.numel()))
        return in_places([(self.held_rows(rows[hits]), hits), (fetch(ids[misses]), misses)], self.pool)

    def read_past(self, ids: Tensor, rows: Tensor) -> tuple[Tensor, int]:
        """Hits from the cache, misses from `rows`. The host counts hits, so nothing waits for the GPU."""
        hits = int(np.count_nonzero(self._row_of.numpy()[ids.numpy()] >= 0))
        self.count("local", hits)
        return self.past(ids, rows), ids.numel() - hits
