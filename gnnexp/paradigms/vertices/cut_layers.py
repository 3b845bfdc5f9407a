"""Layers over a vertex-cut (DistGNN): a destination's sum is taken where its edges are, and finished at its master.

    gather      projected rows (and keys) of foreign sources
    aggregate   partial sums over the edges here
    reduce      partial sums (and masses) of foreign destinations to their masters

Attention needs keys of foreign destinations too, and the largest score of all of a destination's edges: any common
peak is exact, a peak of one's own is wrong. With a delay, rows and sums of other ranks are that many epochs old;
attention is refused then, because its late sums carry another epoch's peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.delayed import Delayed
from gnnexp.comm.shuffle import reduce_home, reduce_max_home, shuffle
from gnnexp.graph.block import BatchKey
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.kernels.counter import Purpose
from gnnexp.measure.ledger import Tag
from gnnexp.models.decoupled import contract_layer
from gnnexp.models.layer import Destinations, Layer
from gnnexp.models.local import edge_weights
from gnnexp.paradigms.loops.full_graph import Whole
from gnnexp.placement.cut_graph import CutGraph
from gnnexp.placement.halo import shuffle_index


class CutLayers:
    """The layers of a model on a rank of a vertex-cut.

    Args:
        job: of the rank.
        graph: its edges.
        delay: epochs by which other ranks' rows and sums are late; 0 is exact.
        holds_inputs: features of foreign sources are here: layer 1 gathers nothing.
    """

    def __init__(self, job: Job, graph: CutGraph, delay: int, holds_inputs: bool) -> None:
        self._job, self._graph, self._holds_inputs = job, graph, holds_inputs
        self._block = graph.block.to(job.device)
        count = graph.own.numel()
        comm, own = job.batch_comm, graph.own
        self.sources = shuffle_index(graph.sources, graph.source_counts, count, own, comm).to(job.device)
        self.destinations = shuffle_index(
            graph.destinations, graph.destination_counts, count, own, comm
        ).to(job.device)
        layers = range(job.model.num_layers)
        # Layer 1 gathers projected features, always of this epoch: only its sums are late.
        self._gathers = [Delayed(self.sources, delay) if delay and index else None for index in layers]
        self._reduces = [Delayed(self.destinations, delay) if delay else None for _ in layers]
        self._dst = Destinations(own.to(job.device), self._block.degree[:count])

    def delayed(self) -> Iterator[Delayed]:
        """Every place where something is late."""
        return (place for place in (*self._gathers, *self._reduces) if place is not None)

    def run(self, whole: Whole) -> Tensor:
        """`[n, classes]` of the own vertices."""
        h: Rows = whole.features
        for index in range(self._job.model.num_layers):
            h = self._layer(index, h, whole.batch.key)
        assert isinstance(h, Tensor)
        return h

    def _layer(self, index: int, h: Rows, key: BatchKey) -> Tensor:
        model, layer, count = self._job.model, contract_layer(self._job.model, index), self._graph.own.numel()
        ids = self._block.src_ids[: h.shape[0]]
        dropped = model.drop_input(index, ids, h, key)
        projected = layer.neighbour(dropped)
        own = projected[:count] if layer.self_is_neighbour else layer.self_(_first(dropped, count))
        if layer.kind == "projected":
            aggregated, mass = self._attended(index, layer, projected, dropped, key)
        else:
            rows = self._gather(index, projected)
            weight, mass = edge_weights(layer, self._block, None)
            assert mass is None, "weights without keys have no mass that would have to be summed"
            aggregated = self._reduce(index, layer.aggregate_projected(self._block, rows, weight))
        dst = Destinations(self._dst.ids, self._dst.degree, mass)
        mixed = layer.mix(dst, aggregated, own)
        return model.finish_layer(index, layer.preactivation(mixed), layer.residual_part(_first(h, count)))

    def _attended(
        self, index: int, layer: Layer, projected: Tensor, dropped: Rows, key: BatchKey
    ) -> tuple[Tensor, Tensor | None]:
        """`([n, C], mass [n, K])`, complete."""
        job, block, backend, heads = self._job, self._block, layer.backend, layer.num_weights
        assert backend is not None
        keys = layer.keys_of_projected(projected) or layer.keys(dropped)
        assert keys is not None, "a layer with projected weights has keys"
        rows = self._gather(index, torch.cat((projected, keys[0]), 1))
        x, source = rows.split_with_sizes([layer.width, heads], 1)
        destination = shuffle(keys[1][: self._graph.own.numel()], self.destinations, job.comm, "activations")
        assert isinstance(destination, Tensor)
        score = layer.edge_score(block, source.contiguous(), destination)
        assert score is not None
        peak = reduce_max_home(backend.edge_max(block, score), self.destinations, job.comm, "activations")
        weight, mass = layer.edge_weight(block, score, peak)
        drop = job.model.drop(Purpose.ATTENTION_DROPOUT, index, layer.weight_dropout, key)
        summed = layer.aggregate_projected(block, x, layer.drop_weights(block, weight, drop))
        if mass is None:
            return self._reduce(index, summed), None
        aggregated, whole_mass = self._reduce(index, torch.cat((summed, mass), 1)).split_with_sizes(
            [summed.shape[1], mass.shape[1]], 1
        )
        return aggregated, whole_mass

    def _gather(self, index: int, rows: Tensor) -> Tensor:
        if index == 0 and self._holds_inputs:
            return rows
        place, tag = self._gathers[index], _tag(index)
        if place is not None:
            return place.gather(rows, self._job.comm, tag)
        mixed = shuffle(rows, self.sources, self._job.comm, tag)
        assert isinstance(mixed, Tensor)
        return mixed

    def _reduce(self, index: int, partial: Tensor) -> Tensor:
        place = self._reduces[index]
        if place is not None:
            return place.reduce(partial, self._job.comm, "activations")
        return reduce_home(partial, self.destinations, self._job.comm, "activations")

    def state(self) -> list[Any]:
        """What is late."""
        return [(list(place.forwards), list(place.backwards)) for place in self.delayed()]

    def restore(self, state: list[Any]) -> None:
        """Take it back."""
        for place, (forwards, backwards) in zip(self.delayed(), state, strict=True):
            place.forget()
            place.forwards.extend(rows.to(self._job.device) for rows in forwards)
            place.backwards.extend(rows.to(self._job.device) for rows in backwards)


def _first(rows: Rows, count: int) -> Rows:
    """The own rows, where foreign ones are held beside them."""
    if rows.shape[0] == count:
        return rows
    return rows[:count] if isinstance(rows, Tensor) else rows.rows(torch.arange(count))


def _tag(index: int) -> Tag:
    return "activations" if index else "features"
