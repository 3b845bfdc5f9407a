"""What one rank holds of a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.kernels.graph.owned import copy_owned, count_owned


@dataclass(frozen=True)
class BlockNeeds:
    """What the model wants of every block that a sampler builds.

    Attributes:
        self_loops: append an edge v -> v to every destination, on top of the graph's own and never dropped by sampling.
        edge_identity: fill `edge_ids` and `occurrence` where the graph has parallel edges (attention dropout).
        edge_types: fill `edge_types`.
        edge_ids: fill `edge_ids`, whatever the graph is (pre-sampling); a sampler may leave it undone.
    """

    self_loops: bool = False
    edge_identity: bool = False
    edge_types: bool = False
    edge_ids: bool = False


@dataclass(frozen=True, eq=False)
class Shard:
    """One rank's share of a graph.

    Attributes:
        graph: the whole graph, mapped from the artifact; what a rank works on is read from it in `setup`.
        rank: this rank.
        num_ranks: ranks in the run.
        needs: what blocks must carry.
        partition: who owns which vertex, None where nothing needs to know.
        part: the part that is this rank's.
        frequency: `[V]` how often each vertex was read as an input in pre-sampled epochs, None if there were none.
        names: `[V]` original ids, where `graph` is a part with ids of its own (`gnnexp.graph.parts`); else None.
    """

    graph: Graph
    rank: int = 0
    num_ranks: int = 1
    needs: BlockNeeds = BlockNeeds()
    partition: Partition | None = None
    part: int = 0
    frequency: Tensor | None = None
    names: Tensor | None = None

    @property
    def owner(self) -> Tensor:
        """`[V]` int16 or int32, the part of each vertex."""
        assert self.partition is not None, "this run has no partition"
        return self.partition.node_owner

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return 1 if self.partition is None else self.partition.num_parts

    def owned_of(self, ids: Tensor) -> Tensor:
        """Those of `ids` that this rank's part owns, in order."""
        return ids[self.owner[ids.long()] == self.part]

    @cached_property
    def owned_topology(self) -> Graph:
        """All in-edges of the owned vertices (FastSample, section 3.3); vertices keep their ids, foreign ones no edges.

        Held in RAM: 8 bytes per vertex of the graph and the owned edges.
        """
        graph = self.graph
        owner, indptr, indices = self.owner.numpy(), graph.indptr.numpy(), graph.indices.numpy()
        own_indptr = count_owned(indptr, owner, self.part)
        types = None if graph.edge_types is None else copy_owned(
            indptr, graph.edge_types.numpy(), owner, self.part, own_indptr
        )
        return replace(
            graph, indptr=torch.from_numpy(own_indptr),
            indices=torch.from_numpy(copy_owned(indptr, indices, owner, self.part, own_indptr)),
            edge_types=None if types is None else torch.from_numpy(types), edge_features=None,
        )
