"""A rank's part of a global batch: examples of its loss, and how the rank gets the outputs that the loss reads.

If examples are vertices, the rank with the loss computes them. If examples are links, the rank asks the owners of both
ends, which compute the ends. Outputs come in one exchange, and gradients go back in its transpose.
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
from gnnexp.kernels.crossing import across
from gnnexp.placement.exclude import ExcludedEdges, without
from gnnexp.tasks.base import Examples


@dataclass(frozen=True, eq=False)
class RankBatch:
    """One rank's part of a global batch.

    Attributes:
        examples: examples of the rank's loss.
        global_count: number of examples of all ranks.
        seeds: `[n]` original ids of the vertices whose outputs the rank computes.
        places: `[m]` rows of the examples' vertices, among the seeds' outputs and then the received ones; None: they
            are the seeds' outputs.
        index: which outputs go to which rank; None without an exchange.
        hidden: edges of this batch that pass no messages, or None.
    """

    examples: Examples
    global_count: int
    seeds: Tensor
    places: Tensor | None = None
    index: ShuffleIndex | None = None
    hidden: ExcludedEdges | None = None

    def seen(self, batch: Batch) -> Batch:
        """`batch` without hidden edges."""
        if self.hidden is None:
            return batch
        return replace(batch, blocks=tuple(without(block, self.hidden) for block in batch.blocks))

    def outputs(self, computed: Tensor, comm: Communicator) -> Tensor:
        """Outputs `[m, C]` of the examples' vertices, from the seeds' `[n, C]`. With an `index`, all ranks call."""
        rows = computed
        if self.index is not None:
            mixed = shuffle(computed, self.index, comm, "endpoints")
            assert isinstance(mixed, Tensor)
            rows = mixed
        return rows if self.places is None else rows.index_select(0, self.places)

    def to(self, device: torch.device, batch: Batch | None = None, outputs: torch.device | None = None) -> RankBatch:
        """A copy with the needed tensors on the device.

        Args:
            device: device of the rank.
            batch: batch on the device. Its last destinations are the seeds, so their ids need no second copy; None: ids
                are copied.
            outputs: device of the seeds' outputs; None: `device`.
        """
        outputs = device if outputs is None else outputs
        seeds = batch.blocks[-1].dst_ids if batch is not None and batch.blocks and self.places is None else None
        return replace(
            self,
            examples=self.examples.to(device, seeds),
            places=None if self.places is None else across(self.places, outputs),
            index=None if self.index is None else self.index.to(outputs),
        )


def of_vertices(targets: Tensor, global_count: int) -> RankBatch:
    """A batch of vertices that this rank computes for its own loss."""
    return RankBatch(Examples(targets, targets.numel()), global_count, targets)


def from_owners(
    examples: Examples, global_count: int, owner: Tensor, comm: Communicator, own: Tensor | None = None
) -> RankBatch:
    """Ask the owners of the examples' vertices for outputs, in one round.

    Args:
        examples: examples of this rank.
        global_count: number of examples of all ranks.
        owner: `[V]` rank that computes each vertex.
        comm: communicator for host tensors. All ranks that share the batch call.
        own: `[n]` ids of all vertices that this rank computes, ascending; None: it computes what ranks ask for.
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
    """`[V]` int32: rank that has each vertex among its `own`. Ranks gather it once, O(V)."""
    table = torch.empty(num_nodes, dtype=torch.int32)
    of_ranks: Any = comm.gather_objects(own.numpy())
    for rank, ids in enumerate(of_ranks):
        table[torch.from_numpy(ids).long()] = rank
    return table
