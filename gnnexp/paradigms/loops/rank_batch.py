"""A rank's part of a global batch: what its loss is over, and how the outputs that it reads come to it.

Examples that are vertices are computed where their loss is. Both ends of a link rarely are: the rank that has the link
asks their owners, who compute them; outputs come in one exchange and gradients go back in its transpose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import ShuffleIndex, shuffle
from gnnexp.feature_stores.routing import route
from gnnexp.graph.block import Batch
from gnnexp.placement.exclude import Excluded, without
from gnnexp.tasks.base import Examples
from gnnexp.tiers.tier import across


@dataclass(frozen=True, eq=False)
class RankBatch:
    """One rank's part of a global batch.

    Attributes:
        examples: what the rank's loss is over.
        global_count: examples of all ranks.
        seeds: `[n]` original ids of the vertices whose outputs the rank computes.
        places: `[m]` which rows the examples' vertices are, of the seeds' and of those that come; None: the seeds'.
        index: whose outputs go where; None: none do.
        hidden: edges that messages of this batch do not pass along, or None.
    """

    examples: Examples
    global_count: int
    seeds: Tensor
    places: Tensor | None = None
    index: ShuffleIndex | None = None
    hidden: Excluded | None = None

    def seen(self, batch: Batch) -> Batch:
        """`batch` without what is hidden."""
        if self.hidden is None:
            return batch
        return replace(batch, blocks=tuple(without(block, self.hidden) for block in batch.blocks))

    def outputs(self, computed: Tensor, comm: Communicator) -> Tensor:
        """`[m, C]` of the examples' vertices, from the seeds' `[n, C]`; collective where there is an `index`."""
        rows = computed
        if self.index is not None:
            mixed = shuffle(computed, self.index, comm, "endpoints")
            assert isinstance(mixed, Tensor)
            rows = mixed
        return rows if self.places is None else rows.index_select(0, self.places)

    def to(self, device: torch.device, batch: Batch | None = None, outputs: torch.device | None = None) -> RankBatch:
        """What is used on the device, there.

        Args:
            device: of the rank.
            batch: there, with the seeds as its last destinations: their ids need not cross again. None: they cross.
            outputs: where the seeds' outputs are; None: on `device`.
        """
        beside = device if outputs is None else outputs
        seeds = batch.blocks[-1].dst_ids if batch is not None and batch.blocks and self.places is None else None
        return replace(self, examples=self.examples.to(device, seeds),
                       places=None if self.places is None else across(self.places, beside),
                       index=None if self.index is None else self.index.to(beside))


def of_vertices(targets: Tensor, global_count: int) -> RankBatch:
    """Of vertices that this rank computes: those of its loss."""
    return RankBatch(Examples(targets, targets.numel()), global_count, targets)


def from_owners(
    examples: Examples, global_count: int, owner: Tensor, comm: Communicator, own: Tensor | None = None
) -> RankBatch:
    """Ask the owners of the examples' vertices for their outputs; one round.

    Args:
        examples: of this rank.
        global_count: of all ranks.
        owner: `[V]` which rank computes each vertex.
        comm: host tensors; all ranks that share the batch call.
        own: `[n]` ids that this rank computes anyway, ascending; None: those it is asked for.
    """
    routes = route(examples.vertices, owner.numpy(), comm.rank, comm.size)
    requests, asked = comm.counted_all_to_all(routes.foreign, routes.sent, "frontier")
    seeds = torch.unique(torch.cat((routes.own, requests))) if own is None else own
    places = torch.empty(examples.vertices.numel(), dtype=torch.int64)
    places[routes.own_places] = torch.searchsorted(seeds, routes.own)
    places[routes.foreign_places] = torch.arange(seeds.numel(), seeds.numel() + routes.foreign.numel())
    index = ShuffleIndex(torch.searchsorted(seeds, requests), tuple(asked), tuple(routes.sent), seeds.numel())
    return RankBatch(examples, global_count, seeds, places, index)


def owners(own: Tensor, num_nodes: int, comm: Communicator) -> Tensor:
    """`[V]` int32: which rank has each vertex among its `own`; agreed on once, O(V)."""
    table = torch.empty(num_nodes, dtype=torch.int32)
    told: Any = comm.gather_objects(own.numpy())
    for rank, ids in enumerate(told):
        table[torch.from_numpy(ids).long()] = rank
    return table
