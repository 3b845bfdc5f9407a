"""Vertex parallelism over an edge-cut: the owner of a destination has all its in-edges, so any model runs.

Forward, for every layer: foreign rows arrive (halo or whole parts; fresh, stale or late), then the layer runs
unchanged. Backward: gradients of foreign rows go to their owners.

Foreign rows that are `held` are computed here too, and do not arrive. Rows of some layers may be projected by their
owners before they are sent (`projected.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.arrival import FRESH, Arrival, ExchangePoint, KeptExchanges
from gnnexp.comm.background import Background
from gnnexp.comm.broadcast import WholeParts
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.late import Bin, bins_of
from gnnexp.comm.shuffle import Halo, ShuffleIndex
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.sparse import Rows
from gnnexp.measure.ledger import Tag
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.chunking import UNCUT, Chunking
from gnnexp.paradigms.loops.computed import AGAIN, Computed
from gnnexp.paradigms.loops.full_graph import RankGraph, Whole, WholeGraphTrainer, layer_by_layer
from gnnexp.paradigms.loops.local_chunks import LocalChunks
from gnnexp.paradigms.trainer import EpochCounts
from gnnexp.paradigms.vertices.lateness import late_facts
from gnnexp.paradigms.vertices.projected import in_one_piece, run_projected
from gnnexp.placement.halo import Cached, RankLayer, everyone, levels, shuffle_index


def none_held(layer: int, ids: Tensor) -> Tensor:
    """NeutronStar's DepComm: every foreign row is fetched."""
    return torch.zeros(ids.shape, dtype=torch.bool)


def all_held(layer: int, ids: Tensor) -> Tensor:
    """NeutronStar's DepCache: no foreign row is fetched, the L-hop halo is here."""
    return torch.ones(ids.shape, dtype=torch.bool)


def inputs_held(layer: int, ids: Tensor) -> Tensor:
    """Features of the first layer's halo are here; all other rows are fetched."""
    return torch.full(ids.shape, layer == 0, dtype=torch.bool)


class EdgeCutTrainer(WholeGraphTrainer):
    """Trains a rank's vertices, with all their in-edges.

    Args:
        job: job of the rank.
        held: function that says which foreign inputs of a layer are computed here: `(layer from 0, ids [m])` to `[m]`
            bool.
        arrival: when fetched rows are used. Features of the first layer are never late.
        whole_parts_from: first layer before which all ranks get whole parts (Sancus), not only the rows that they need;
            None: no layer.
        chunking: ranges of destinations that a layer computes one after another.
        background: thread and communicator for late exchanges, which run while the loop computes, into later epochs if
            their rows are not due; None: the loop waits.
        projects: for each layer, whether fetched rows come projected (fresh rows of contract layers only); empty: none.
    """

    def __init__(
        self,
        job: Job,
        held: Cached = none_held,
        arrival: Arrival = FRESH,
        *,
        whole_parts_from: int | None = None,
        chunking: Chunking = UNCUT,
        background: tuple[Background, Communicator] | None = None,
        projects: Sequence[bool] = (),
    ) -> None:
        super().__init__(job)
        assert job.shard.partition is not None
        self.own, self._arrival, self._background = job.shard.partition.vertices_of(job.shard.part), arrival, background
        self.levels = job.once.of("levels", lambda: self._levels(held, whole_parts_from))
        blocks, self.local = job.once.of("blocks", self._moved), self._cut(chunking)
        cross_edges = [int((level.block.sources >= level.num_local).sum()) for level in self.levels]
        computed = Computed.of_whole(blocks, self.own.numel(), cross_edges)
        if self.local is not None:
            computed = replace(computed, work={**computed.work, **AGAIN})
        self.held = RankGraph(self.own, blocks, computed, self._resident(blocks))
        self.places = self._placed(whole_parts=whole_parts_from is not None)
        chosen = projects or (False,) * len(self.places)
        # Where no rank fetches rows, a layer runs as it does on one rank.
        self._projects = tuple(way and place is not None for way, place in zip(chosen, self.places, strict=True))
        self._kept = KeptExchanges(arrival, (place for place in self.places if place is not None), job.device)
        self._inputs = self.levels[0].block.src_ids[: self.levels[0].num_local]

    def _levels(self, held: Cached, whole_parts_from: int | None) -> tuple[RankLayer, ...]:
        found = levels(self.job.shard, self.own, self.job.model.num_layers, held)
        if whole_parts_from is None:
            return found
        kept, rest = found[:whole_parts_from], found[whole_parts_from:]
        widened = {level: everyone(level, self.job.shard) for level in set(rest)}
        return (*kept, *(widened[level] for level in rest))

    def _moved(self) -> tuple[Block, ...]:
        moved = {level: level.block.to(self.job.device) for level in set(self.levels)}
        return tuple(moved[level] for level in self.levels)

    def _cut(self, chunking: Chunking) -> LocalChunks | None:
        if chunking == UNCUT:
            return None
        blocks = [level.block for level in self.levels]
        local = self.job.once.of("chunks", lambda: LocalChunks(self.job, blocks, chunking))
        local.keep(chunking)
        return local

    def _resident(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        """Blocks of the layers that are not cut into chunks."""
        if self.local is None:
            return blocks
        return tuple(block for block, chunks in zip(blocks, self.local.chunks, strict=True) if len(chunks) == 1)

    def _placed(self, *, whole_parts: bool) -> tuple[ExchangePoint | None, ...]:
        """For each layer, the exchange of foreign rows; None if no rank fetches any."""
        of_levels: Any = self.job.comm.gather_objects(
            [
                (sum(level.fetched), index > 0 and level is self.levels[index - 1])
                for index, level in enumerate(self.levels)
            ]
        )
        halo: Halo | None = None
        bins: tuple[Bin, ...] | None = None
        points: list[ExchangePoint | None] = []
        for index, (level, of_ranks) in enumerate(zip(self.levels, zip(*of_levels, strict=True), strict=True)):
            if not any(fetches for fetches, _ in of_ranks):
                halo = None
            elif halo is None or not all(alike for _, alike in of_ranks):
                halo = self._halo(level, whole_parts=whole_parts)  # collective: all ranks make one
                bins = self._bins(halo, level)
            arrival = FRESH if index == 0 and self._arrival.kind == "late" else self._arrival
            points.append(None if halo is None else arrival.at(halo, bins, self._background))
        return tuple(points)

    def _halo(self, level: RankLayer, *, whole_parts: bool) -> Halo:
        job = self.job
        if whole_parts:
            lengths: Any = job.comm.gather_objects(level.num_local)
            return WholeParts(lengths, job.comm.rank)
        index = shuffle_index(level.wanted, level.fetched, level.num_local, self.own, job.batch_comm)
        return index.to(job.device)

    def _bins(self, halo: Halo, level: RankLayer) -> tuple[Bin, ...] | None:
        if not isinstance(halo, ShuffleIndex):
            return None
        return bins_of(halo, level.block.src_ids, self._arrival.bins)

    def facts(self) -> Mapping[str, Any]:
        """Where late rows are exchanged."""
        late = late_facts(self.job, self._arrival, in_background=self._background is not None)
        return {**super().facts(), **late}

    # --- the iteration ---------------------------------------------------------------------------------------------
    def load(self) -> Rows:
        """Load rows of the inputs that need no exchange."""
        return self.job.store.read(self._inputs)

    def forward(self, ready: Whole) -> Tensor:
        """Run the model. Foreign rows arrive before each layer; autograd runs the transposed exchange."""
        preactivate = None if self.local is None else self.local.preactivate
        in_pieces = in_one_piece if self.local is None else self.local.in_pieces
        epoch, model = ready.batch.key.epoch, self.job.model

        def exchange(layer: int, rows: Rows) -> Rows:
            place = self.places[layer]
            return rows if place is None else place.gather(rows, epoch, self.job.comm, tag_of(layer))

        def run(index: int, rows: Rows, key: BatchKey) -> Tensor:
            block, place = ready.batch.blocks[index], self.places[index]
            if place is not None and (index or self.job.trained_rows is not None):
                place.watch(lambda: model.drop_input(index, block.src_ids[: rows.shape[0]], rows, None))
            if self._projects[index]:
                return run_projected(model, index, block, rows, key, exchange, in_pieces)
            return model.run_layer(index, block, rows, key, exchange, preactivate)

        return layer_by_layer(ready, model.num_layers, run)

    # --- counts and state ------------------------------------------------------------------------------------------
    def end_epoch(self) -> EpochCounts:
        """The counts of the epoch, with fetched and held rows, and bytes that old rows or bins saved."""
        found, own = super().end_epoch(), self.own.numel()
        found.work["halo_fetched"] = sum(sum(level.fetched) for level in self.levels)
        found.work["halo_cached"] = sum(level.num_local - own for level in self.levels)
        found.work.update(self._kept.take_counts())
        return found

    @property
    def own_state(self) -> KeptExchanges:
        """Old or late rows and gradients, layer by layer."""
        return self._kept


def tag_of(layer: int) -> Tag:
    """The tag of the rows before a layer."""
    return "activations" if layer else "features"
