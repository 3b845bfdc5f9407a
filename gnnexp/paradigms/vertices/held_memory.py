"""Device memory of the layers of a rank that computes foreign vertices itself, and what a limit leaves for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.plan import ACTIVATION_COPIES, Resident
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.optimization import entries_of
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import row_nbytes
from gnnexp.kernels.graph.edges import mark_sources
from gnnexp.paradigms.job import Job
from gnnexp.placement.halo import Cached


class LayerSize(NamedTuple):
    """Size of a rank's layer.

    Attributes:
        edges: edges with self loops; 0 if the layer is that of the layer above.
        sources: all sources.
    """

    edges: int
    sources: int


@dataclass(frozen=True)
class HeldMemory:
    """Device bytes of a rank's layers: topology with its transpose, features, hidden rows and values of edges.

    Attributes:
        per_edge: bytes of an edge.
        per_input: bytes of a source of layer 1.
        per_row: bytes of a source of a later layer, with its gradient and copies.
        budget: bytes that layers may take; None: no limit is known.
        loops: self loops that the model adds to each destination, 0 or 1.
    """

    per_edge: int
    per_input: int
    per_row: int
    budget: int | None
    loops: int

    @staticmethod
    def of(
        experiment: Experiment, dims: Sequence[int], num_relations: int, row_bytes: int, *, weighted: bool
    ) -> HeldMemory:
        """The memory of an experiment. `hardware.device_memory` less parameters, gradients and states is the budget.

        Args:
            experiment: the experiment.
            dims: `[L + 1]` columns of the features and of the outputs of all layers.
            num_relations: number of edge types.
            row_bytes: bytes of a feature row.
            weighted: whether edges have weights.
        """
        model, limit = experiment.model, experiment.hardware.device_memory
        itemsize = getattr(torch, experiment.train.dtype).itemsize
        parameters = model.num_matrices(num_relations) * sum(before * after + after for before, after in pairwise(dims))
        states = (2 + entries_of(experiment.optimizer)) * parameters * itemsize
        return HeldMemory(
            per_edge=16 + itemsize * model.values_per_edge + (4 + 2 * itemsize) * weighted,
            per_input=40 + row_bytes,
            per_row=40 + ACTIVATION_COPIES * model.hidden * itemsize,
            budget=None if limit is None else max(0, limit - states),
            loops=int(model.needs.self_loops),
        )

    def bytes_of(self, sizes: Sequence[LayerSize]) -> int:
        """Bytes of layers, input side first."""
        edges, rows = sum(size.edges for size in sizes), sum(size.sources for size in sizes[1:])
        return self.per_edge * edges + self.per_input * sizes[0].sources + self.per_row * rows

    def fits(self, sizes: Sequence[LayerSize]) -> bool:
        """Whether layers stay within the budget."""
        return self.budget is None or self.bytes_of(sizes) <= self.budget

    def estimate(self, held: Resident, num_layers: int) -> int:
        """Bytes of an upper bound of a rank's data."""
        return self.per_edge * held.edges + self.per_input * held.inputs + self.per_row * (num_layers - 1) * held.rows


def held_memory(job: Job) -> HeldMemory:
    """The memory of a rank's layers."""
    graph, itemsize = job.graph, job.dtype.itemsize
    row = 0 if graph.features is None else row_nbytes(graph.features, itemsize)
    weighted = graph.edge_weights is not None
    return HeldMemory.of(job.experiment, job.model.widths, graph.num_relations, row, weighted=weighted)


def layer_sizes(shard: Shard, own: Tensor, num_layers: int, held: Cached, loops: int) -> tuple[LayerSize, ...]:
    """Sizes of what `placement.halo.levels` makes, without making it, in O(L (V + E)).

    Args:
        shard: topology.
        own: `[n]` vertices of the rank.
        num_layers: L.
        held: foreign inputs that are here without an exchange, see `levels`.
        loops: self loops that the model adds to each destination.
    """
    indptr, indices = shard.graph.indptr.numpy(), shard.graph.indices.numpy()
    degree, none_above = np.diff(indptr) + loops, False
    inside = np.zeros(degree.size, np.bool_)
    inside[own.numpy()] = True
    sizes: list[LayerSize] = []
    for layer in reversed(range(num_layers)):
        destinations, sources = np.flatnonzero(inside), inside.copy()
        mark_sources(indptr, indices, destinations, sources)
        new = np.flatnonzero(sources & ~inside)
        here = new[held(layer, torch.from_numpy(new)).numpy()]
        is_same = none_above and not here.size
        sizes.append(LayerSize(0 if is_same else int(degree[destinations].sum()), int(sources.sum())))
        inside[here], none_above = True, not here.size
    return tuple(reversed(sizes))


def held_need(experiment: Experiment, facts: GraphFacts, least: Resident, most: Resident) -> Need:
    """What a rank holds in addition to the `least` data: up to the `most`, within the budget if there is one."""
    model, itemsize = experiment.model, getattr(torch, experiment.train.dtype).itemsize
    dims = [facts.num_features, *[model.hidden] * (model.layers - 1), facts.num_classes]
    memory = HeldMemory.of(experiment, dims, facts.num_relations, facts.row_bytes(itemsize), weighted=facts.weighted)
    low, high = (memory.estimate(data, model.layers) for data in (least, most))
    limit = high if memory.budget is None else min(high, memory.budget)
    return Need("vertices of other ranks that are computed here too", "device", max(0, limit - low))
