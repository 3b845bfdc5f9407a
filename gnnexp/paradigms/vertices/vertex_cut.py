"""Vertex parallelism over a vertex-cut (DistGNN): ranks sum over their edges, and owners of vertices complete the sums.

1. Gather projected rows (and keys) of foreign sources.
2. Aggregate partial sums over the edges of this rank.
3. Reduce partial sums (and masses) of foreign destinations at their owners.

Attention also needs keys of foreign destinations, and the largest score of all in-edges of a destination as a peak. Any
common peak is exact; a peak of a single rank is wrong. Attention is refused with old or late rows and sums, because
these have peaks of other epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.arrival import FRESH, Arrival, KeptExchanges
from gnnexp.comm.background import Background
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.late import bins_of
from gnnexp.comm.shuffle import reduce_max_home, shuffle
from gnnexp.graph.block import BatchKey
from gnnexp.graph.sparse import Rows
from gnnexp.kernels.counter import Purpose
from gnnexp.models.decoupled import contract_layer
from gnnexp.models.layer import Destinations, Layer
from gnnexp.models.local import edge_weights, with_factors
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.computed import Computed
from gnnexp.paradigms.loops.full_graph import RankGraph, Whole, WholeGraphTrainer, layer_by_layer
from gnnexp.paradigms.trainer import EpochCounts
from gnnexp.paradigms.vertices.edge_cut import tag_of
from gnnexp.paradigms.vertices.lateness import late_facts
from gnnexp.placement.cut_graph import cut_graph
from gnnexp.placement.halo import shuffle_index


class VertexCutTrainer(WholeGraphTrainer):
    """Trains a rank's edges, and the vertices at their ends.

    Args:
        job: job of the rank.
        arrival: when other ranks' rows and sums are used. Projected features of the first layer are always fresh.
        holds_inputs: whether features of foreign sources are here. Then layer 1 gathers nothing.
        background: thread and communicator for late exchanges, which run while the loop computes; None: the loop waits.
    """

    def __init__(
        self,
        job: Job,
        arrival: Arrival,
        *,
        holds_inputs: bool,
        background: tuple[Background, Communicator] | None = None,
    ) -> None:
        super().__init__(job)
        graph = job.once.of("cut", lambda: cut_graph(job.shard))
        self.own, self._holds_inputs, count = graph.own, holds_inputs, graph.own.numel()
        self._block = job.once.of("block", lambda: graph.block.to(job.device))
        indices = ((graph.sources, graph.source_counts), (graph.destinations, graph.destination_counts))
        self.sources, self.destinations = (
            shuffle_index(ids, counts, count, self.own, job.batch_comm).to(job.device) for ids, counts in indices
        )
        layers = range(job.model.num_layers)
        # Layer 1 gathers projected features of this epoch. Only its sums may be old or late.
        of_sources = bins_of(self.sources, graph.block.src_ids, arrival.bins)
        of_sums = bins_of(self.destinations, graph.block.dst_ids, arrival.bins)
        self._gathers = [(arrival if index else FRESH).at(self.sources, of_sources, background) for index in layers]
        self._reduces = [arrival.at(self.destinations, of_sums, background) for _ in layers]
        self._kept = KeptExchanges(arrival, (*self._gathers, *self._reduces), job.device)
        self._late = late_facts(job, arrival, in_background=background is not None)
        total = self._block.total_weight
        self._dst = Destinations(
            self.own.to(job.device), self._block.degree[:count], weight=None if total is None else total[:count]
        )
        blocks = (self._block,) * job.model.num_layers
        self.held = RankGraph(self.own, blocks, Computed.of_whole(blocks, None, [graph.cross_edges] * len(blocks)))
        self._inputs = graph.block.src_ids[: graph.block.num_src if holds_inputs else graph.own.numel()]

    def facts(self) -> Mapping[str, Any]:
        """Where late rows are exchanged."""
        return {**super().facts(), **self._late}

    def load(self) -> Rows:
        """Load rows of the inputs that need no exchange."""
        return self.job.store.read(self._inputs)

    def forward(self, ready: Whole) -> Tensor:
        """Run the model layer by layer: rows arrive, and partial sums leave."""
        return layer_by_layer(ready, self.job.model.num_layers, self._layer)

    def _layer(self, index: int, h: Rows, key: BatchKey) -> Tensor:
        model, layer, count = self.job.model, contract_layer(self.job.model, index), self.own.numel()
        ids = self._block.src_ids[: h.shape[0]]
        dropped = model.drop_input(index, ids, h, key)
        projected = layer.project(dropped)
        own = projected[:count] if layer.traits.self_is_neighbour else layer.project_self(_first(dropped, count))
        if layer.traits.kind == "projected":
            aggregated, mass = self._attended(index, layer, projected, dropped, key)
        else:
            rows = self._gather(index, projected, key.epoch)
            weight, mass = edge_weights(layer, self._block, None)
            assert mass is None, "weights without keys have no mass"
            aggregated = self._reduce(index, layer.aggregate_projected(self._block, rows, weight), key.epoch)
        mixed = layer.mix(replace(self._dst, mass=mass), aggregated, own)
        residual = layer.residual_part(_first(h, count))
        return model.finish_layer(index, self._dst.ids, layer.preactivation(mixed), residual)

    def _attended(
        self, index: int, layer: Layer, projected: Tensor, dropped: Rows, key: BatchKey
    ) -> tuple[Tensor, Tensor | None]:
        """Sums of an attention layer over all ranks: `([n, C], mass [n, K] or None)`."""
        job, block, backend, heads = self.job, self._block, layer.backend, layer.num_weights
        keys = layer.keys_of_projected(projected) or layer.keys(dropped)
        assert keys is not None, "a layer with projected weights has keys"
        rows = self._gather(index, torch.cat((projected, keys[0]), 1), key.epoch)
        x, source = rows.split_with_sizes([layer.width, heads], 1)
        destination = shuffle(keys[1][: self.own.numel()], self.destinations, job.comm, "activations")
        assert isinstance(destination, Tensor)
        score = layer.edge_score(block, source.contiguous(), destination)
        assert score is not None
        peak = reduce_max_home(backend.edges.max(block, score), self.destinations, job.comm, "activations")
        weight, mass = layer.edge_weight(block, score, peak)
        weight = with_factors(layer, block, weight)
        drop = job.model.drop(Purpose.ATTENTION_DROPOUT, index, layer.traits.weight_dropout, key)
        summed = layer.aggregate_projected(block, x, layer.drop_weights(block, weight, drop))
        if mass is None:
            return self._reduce(index, summed, key.epoch), None
        both = self._reduce(index, torch.cat((summed, mass), 1), key.epoch)
        aggregated, whole_mass = both.split_with_sizes([summed.shape[1], mass.shape[1]], 1)
        return aggregated, whole_mass

    def _gather(self, index: int, rows: Tensor, epoch: int) -> Tensor:
        if index == 0 and self._holds_inputs:
            return rows
        mixed = self._gathers[index].gather(rows, epoch, self.job.comm, tag_of(index))
        assert isinstance(mixed, Tensor)
        return mixed

    def _reduce(self, index: int, partial: Tensor, epoch: int) -> Tensor:
        return self._reduces[index].reduce(partial, epoch, self.job.comm, "activations")

    # --- counts and state ------------------------------------------------------------------------------------------

    def end_epoch(self) -> EpochCounts:
        """The counts of the epoch, with exchanged rows, and bytes that old rows or bins saved."""
        found, layers = super().end_epoch(), self.job.model.num_layers
        found.work["halo_fetched"] = (
            layers - self._holds_inputs
        ) * self.sources.num_foreign + layers * self.destinations.num_foreign
        found.work.update(self._kept.take_counts())
        return found

    @property
    def own_state(self) -> KeptExchanges:
        """Old or late rows and sums."""
        return self._kept


def _first(rows: Rows, count: int) -> Rows:
    """The first `count` rows, which are the own rows. Held foreign rows follow them."""
    if rows.shape[0] == count:
        return rows
    return rows[:count] if isinstance(rows, Tensor) else rows.rows(torch.arange(count))
