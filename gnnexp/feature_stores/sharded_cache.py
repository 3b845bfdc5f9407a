"""One cache across ranks with direct links: one of them holds each hot row (Quiver; GSplit, section 2)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.mesh import Mesh
from gnnexp.comm.rows import exchange_rows
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts
from gnnexp.feature_stores.cache import Capacity, FeatureCache, Policy, hottest
from gnnexp.feature_stores.routing import Routes, route
from gnnexp.feature_stores.rows import in_places
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows
from gnnexp.kernels.rows.gather import place_rows


class ShardedCache(FeatureCache):
    """The hottest rows, dealt out to the ranks of a clique one by one, hottest first.

    Quiver reads a peer's memory directly. Here the ranks of a clique fetch the peer hits of a batch in two collective
    rounds (tag `features`): first ids, then rows.

    Args:
        capacity: per rank, see `FeatureCache`. A clique of n ranks holds n times as many rows.
        policy: what makes a row hot.
        clique: number of ranks that have direct links to each other, None for all ranks. All cliques hold the same
            rows, because Quiver replicates rows where there is no link.
        epochs: number of epochs to pre-sample for the policy `frequency`.
    """

    origins = ("local", "peer")
    communicates = True

    def __init__(
        self, capacity: Capacity, policy: Policy = "degree", clique: int | None = None, epochs: int = 10
    ) -> None:
        wrong = Problem("feature_store.cache.clique", clique, "must be at least 1, or null",
                        "feature_store.cache.clique=null")
        super().__init__(capacity, policy, epochs, [wrong] if clique is not None and clique < 1 else [])
        self.clique = clique

    def check(self, experiment: Experiment) -> list[Problem]:
        """All cliques must have the same size."""
        together = _ranks(experiment)
        if self.clique is None or together % self.clique == 0:
            return []
        return [Problem("feature_store.cache.clique", self.clique, f"must divide the {together} ranks that share a "
                        "batch", "feature_store.cache.clique=null")]

    def most_rows(self, experiment: Experiment, facts: GraphFacts) -> int:
        """The number of all rows, divided by the clique's size."""
        return -(-facts.num_nodes // (self.clique or _ranks(experiment)))

    def choose(self, shard: Shard, num_rows: int) -> Tensor:
        """Deal the hottest rows out to the clique's members in turn, and return the ids for this rank."""
        members = self.clique or self._comm.size
        self._peers = self._comm.along(Mesh.of(cliques=shard.num_ranks // members, members=members), "members")
        size = self._peers.size
        dealt = hottest(shard, self.policy)[: num_rows * size]
        # For each row, the clique's member that holds it, or `size` if no member holds it.
        self._home = np.full(shard.graph.num_nodes, size, np.int16)
        self._home[dealt.numpy()] = np.arange(dealt.numel()) % size
        return dealt[self._peers.rank :: size]

    def read(self, ids: Tensor, fetch: Callable[[Tensor], Rows]) -> Rows:
        """Own hits and peers' hits from the cache, misses from the store."""
        cached = torch.from_numpy(self._home)[ids.long()] < self._peers.size
        hits, misses = torch.nonzero(cached).flatten(), torch.nonzero(~cached).flatten()
        routes, peer = self._ask(ids[hits])
        own = self.held_rows(self._row_of[routes.own.long()])
        return in_places([
            (own, hits[routes.own_places]), (peer, hits[routes.foreign_places]), (fetch(ids[misses]), misses),
        ], self.pool)

    def _ask(self, hits: Tensor) -> tuple[Routes, Rows]:
        """Which hits are here, and the rows of the others, from the peers that hold them."""
        routes = route(hits, self._home, self._peers.rank, self._peers.size)
        wanted, asked = self._peers.counted_all_to_all(routes.foreign, routes.sent, "features")
        answer = self.held_rows(self._row_of[wanted.long()])
        peer = exchange_rows(answer, asked, routes.sent, self._peers, "features")
        self.count("local", routes.own.numel())
        self.count("peer", peer.shape[0])
        return routes, peer

    def table(self) -> Tensor:
        """`[V]` int32: as in `FeatureCache`, and `LEFT_OUT` for rows that a peer holds."""
        from gnnexp.kernels.cuda.fetch import LEFT_OUT

        foreign = (self._home < self._peers.size) & (self._home != self._peers.rank)
        return self._row_of.masked_fill(torch.from_numpy(foreign), LEFT_OUT)

    def read_past(self, ids: Tensor, rows: Tensor) -> tuple[Tensor, int]:
        """Own hits and misses by one kernel, then peers' hits."""
        hits = torch.nonzero(torch.from_numpy(self._home)[ids.long()] < self._peers.size).flatten()
        routes, peer = self._ask(ids[hits])
        out = self.past(ids, rows)
        assert isinstance(peer, Tensor)
        place_rows(peer, hits[routes.foreign_places], out)
        return out, ids.numel() - hits.numel()


def _ranks(experiment: Experiment) -> int:
    """Number of ranks that share the parts of a batch."""
    return experiment.paradigm.ranks_together(experiment)
