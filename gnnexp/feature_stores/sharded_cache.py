"""One cache across ranks with direct links: one of them holds each hot row (Quiver; GSplit, section 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.mesh import Mesh
from gnnexp.comm.rows import exchange_rows
from gnnexp.components.facts import GraphFacts
from gnnexp.components.options import wrong_options
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem, Refusal, RunError
from gnnexp.feature_stores.cache import Batches, CacheOptions, Capacity, FeatureCache, Policy, hottest
from gnnexp.feature_stores.peer_access import PeerAccess, peer_access, peer_problems
from gnnexp.feature_stores.routing import Routes, route
from gnnexp.feature_stores.rows import RowForm, in_places
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows
from gnnexp.kernels.rows.gather import place_rows
from gnnexp.measure.ledger import Tally, added

Access = Literal["auto", "collective", "peer"]


@dataclass(frozen=True)
class ShardedCacheOptions(CacheOptions):
    """The hottest rows, dealt out to the ranks of a clique one by one, hottest first.

    Quiver reads a peer's memory directly. So does `access=peer`. With `access=collective`, the ranks of a clique fetch
    the peer hits of a batch in two collective rounds (tag `features`): first ids, then rows.

    Attributes:
        capacity: per rank, see `CacheOptions`. A clique of n ranks holds n times as many rows.
        policy: what makes a row hot.
        clique: number of ranks that have direct links to each other, None for all ranks. All cliques hold the same
            rows, because Quiver replicates rows where there is no link.
        epochs: number of epochs to pre-sample for the policy `frequency`.
        access: how a rank reads rows of its peers.
            `collective`: all ranks of the clique exchange ids and rows.
            `peer`: a kernel in Triton reads each row from the GPU that has it. No rank waits for another one.
            `auto`: `peer` if the GPUs of the clique can read each other's memory, else `collective`.
        batches: which batches are pre-sampled, see `CacheOptions`.
    """

    capacity: Capacity
    policy: Policy = "degree"
    clique: int | None = None
    epochs: int = 10
    access: Access = "auto"
    batches: Batches = "global"

    def problems(self) -> list[Problem]:
        """Options outside of their ranges."""
        clique, words = self.clique, get_args(Access)
        problems = wrong_options(
            "feature_store.cache",
            (clique is None or clique >= 1, "clique", clique, "must be at least 1, or null", "null"),
            (self.access in words, "access", self.access, f"must be one of: {', '.join(words)}", "auto"),
        )
        return [*problems, *super().problems()]

    @property
    def communicates(self) -> bool:
        """Whether ranks of a clique may exchange rows."""
        return self.access != "peer"

    def check(self, setting: Setting) -> list[Problem]:
        """All cliques must have the same size. GPUs of a clique with `access=peer` are in one machine."""
        together, problems = setting.ranks_together, super().check(setting)
        if self.access == "peer":
            problems += peer_problems(setting, self.clique or together)
        if self.clique is None or together % self.clique == 0:
            return problems
        return [
            *problems,
            Problem(
                "feature_store.cache.clique",
                self.clique,
                f"must divide the {together} ranks that share a batch",
                "feature_store.cache.clique=null",
            ),
        ]

    def check_data(self, setting: Setting, facts: GraphFacts, row_bytes: int) -> list[Problem]:
        """Kernels read dense rows only."""
        problems = super().check_data(setting, facts, row_bytes)
        if self.access == "peer" and facts.sparse:
            problems.append(
                Problem(
                    "feature_store.cache.access",
                    self.access,
                    "sparse features are assembled on the host",
                    "set feature_store.cache.access=auto",
                )
            )
        return problems

    def most_rows(self, setting: Setting, facts: GraphFacts) -> int:
        """The number of all rows, divided by the clique's size."""
        return -(-facts.num_nodes // (self.clique or setting.ranks_together))

    def make(self) -> ShardedCache:
        """The cache of a rank."""
        return ShardedCache(self)


class ShardedCache(FeatureCache):
    """A rank's share of the hottest rows, and its way to the others of the clique."""

    options: ShardedCacheOptions
    origins = ("local", "peer")

    def setup(
        self, shard: Shard, form: RowForm, device: torch.device, comm: Communicator, *, direct: bool = False
    ) -> None:
        """Copy this rank's rows, and find out whether the clique's GPUs can read each other's rows.

        Raises:
            RunError: there is not enough memory, or `access=peer` cannot be.
        """
        super().setup(shard, form, device, comm, direct=direct)
        assert shard.graph.features is not None
        access: PeerAccess | Refusal = Refusal("this was asked for")
        if self.options.access != "collective":
            access = peer_access(self._held, shard.graph.features, form, self._dealt, self._peers, device)
        del self._dealt  # an id for each vertex of the graph
        if isinstance(access, PeerAccess):
            self.peer_access, self.communicates = access, False
        elif self.options.access == "peer":
            raise RunError(
                f"feature_store.cache.access=peer is not possible: {access}; set feature_store.cache.access=collective"
            )
        self._why = (
            f"collective: {access}"
            if isinstance(access, Refusal)
            else f"peer: the GPUs of all {self._peers.size} ranks of the clique read each other's rows"
        )

    @property
    def chosen(self) -> dict[str, str]:
        """How rows of peers are read, and why."""
        return {"cache_access": self._why}

    @property
    def tallies(self) -> Sequence[Tally[str, Any]]:
        """The counters that `take_counts` reads: peer access counts on the GPU."""
        return (self.counts,) if self.peer_access is None else (self.counts, self.peer_access.counted)

    def take_counts(self) -> dict[str, int]:
        """As `FeatureCache`. With peer access, also rows that its kernel read past the cache, and bytes of both."""
        counts = super().take_counts()
        if self.peer_access is None:
            return counts
        assert isinstance(self._held, Tensor)
        return added(counts, self.peer_access.take_counts(self._held.shape[1] * self._held.element_size()))

    def choose(self, shard: Shard, num_rows: int) -> Tensor:
        """Deal the hottest rows out to the clique's members in turn, and return the ids for this rank."""
        members = self.options.clique or self._comm.size
        self._peers = self._comm.along(Mesh.of(cliques=shard.num_ranks // members, members=members), "members")
        size = self._peers.size
        self._dealt = dealt = hottest(shard, self.options.policy)[: num_rows * size]
        # For each row, the clique's member that holds it, or `size` if no member holds it.
        self._home = np.full(shard.graph.num_nodes, size, np.int16)
        self._home[dealt.numpy()] = np.arange(dealt.numel()) % size
        return dealt[self._peers.rank :: size]

    def read(self, ids: Tensor, fetch: Callable[[Tensor], Rows]) -> Rows:
        """Own hits and peers' hits from the cache, misses from the store."""
        cached = torch.from_numpy(self._home)[ids.long()] < self._peers.size
        misses = torch.nonzero(~cached).flatten()
        if self.peer_access is not None:
            assert isinstance(self._held, Tensor)
            self.counts.add({"tier/h2d_bytes": ids.nbytes})
            out = self.peer_access.read(ids, self._held.new_empty((ids.numel(), self._held.shape[1])))
            missed = fetch(ids[misses])  # while the kernel reads
            assert isinstance(missed, Tensor)
            place_rows(missed, misses, out)
            return out
        hits = torch.nonzero(cached).flatten()
        routes, peer = self._ask(ids[hits])
        own = self.held_rows(self._row_of[routes.own.long()])
        return in_places(
            [
                (own, hits[routes.own_places]),
                (peer, hits[routes.foreign_places]),
                (fetch(ids[misses]), misses),
            ],
            self.pool,
        )

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
        """All rows by one kernel; without peer access own hits and misses, then peers' hits."""
        if self.peer_access is not None:
            out = rows.new_empty((ids.numel(), rows.shape[1]), device=self._device)
            return self.peer_access.read(ids, out, rows), 0
        hits = torch.nonzero(torch.from_numpy(self._home)[ids.long()] < self._peers.size).flatten()
        routes, peer = self._ask(ids[hits])
        out = self.past(ids, rows)
        assert isinstance(peer, Tensor)
        place_rows(peer, hits[routes.foreign_places], out)
        return out, ids.numel() - hits.numel()
