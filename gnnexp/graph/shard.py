"""The share of a graph that one rank works on."""

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
    """The data that the model needs in every block that a sampler builds.

    Attributes:
        self_loops: whether every destination v gets an edge v -> v, in addition to self loops of the graph; sampling
            never drops this edge.
        edge_identity: whether `edge_ids` and `occurrence` are filled if the graph has parallel edges (for attention
            dropout).
        edge_types: whether `edge_types` is filled.
        edge_ids: whether `edge_ids` is filled for every graph (for pre-sampling); a sampler may leave it out.
    """

    self_loops: bool = False
    edge_identity: bool = False
    edge_types: bool = False
    edge_ids: bool = False


@dataclass(frozen=True, eq=False)
class Shard:
    """One rank's share of a graph.

    Attributes:
        graph: the whole graph, mapped from the artifact; components read the data of the rank from it in `setup`.
        rank: number of this rank.
        num_ranks: number of ranks in the run.
        needs: data that blocks must have.
        partition: owner of each vertex, or None if no component needs it.
        part: number of this rank's part.
        frequency: `[V]` how often each vertex was read as an input in pre-sampled epochs, None without pre-sampling.
        names: `[V]` original ids of the vertices if `graph` is a part with local ids (`gnnexp.graph.parts`), else None.
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
        """`[V]` int16 or int32, the part that owns each vertex."""
        assert self.partition is not None, "this run has no partition"
        return self.partition.node_owner

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return 1 if self.partition is None else self.partition.num_parts

    def owned_of(self, ids: Tensor) -> Tensor:
        """The vertices among `ids` `[n]` that this rank's part owns, in the same order."""
        return ids[self.owner[ids.long()] == self.part]

    @cached_property
    def owned_topology(self) -> Graph:
        """All in-edges of the owned vertices (FastSample, section 3.3).

        Vertices keep their ids, and foreign vertices have no edges. Takes 8 bytes of RAM per vertex of the graph, and
        the owned edges.
        """
        graph = self.graph
        owner, indptr, indices = self.owner.numpy(), graph.indptr.numpy(), graph.indices.numpy()
        own_indptr = count_owned(indptr, owner, self.part)

        def owned(values: Tensor | None) -> Tensor | None:  # copied as 4-byte integers
            if values is None:
                return None
            bits = copy_owned(indptr, values.view(torch.int32).numpy(), owner, self.part, own_indptr)
            return torch.from_numpy(bits).view(values.dtype)

        return replace(
            graph,
            indptr=torch.from_numpy(own_indptr),
            indices=torch.from_numpy(copy_owned(indptr, indices, owner, self.part, own_indptr)),
            edge_types=owned(graph.edge_types),
            edge_weights=owned(graph.edge_weights),
            edge_features=None,
        )
