"""Sweeps over the chunks of a rank, one layer at a time: both loops of HongTu's Algorithm 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.crossing import across
from gnnexp.measure.ledger import Tag
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.in_chunks import arriving, destination_arrays, visit
from gnnexp.paradigms.offloading.layer import OffloadLayer, backward_through
from gnnexp.paradigms.offloading.neighbour_buffer import NeighbourBuffer
from gnnexp.paradigms.offloading.outputs import Outputs
from gnnexp.paradigms.offloading.plan import OffloadPlan
from gnnexp.paradigms.offloading.start import LayerStart, StartRows
from gnnexp.placement.chunks import Chunk
from gnnexp.placement.transitions import Move, Visit
from gnnexp.tiers.host_tier import HostMemory, HostTier

_PIECE_BYTES = 64 << 20


class Sweeps:
    """The host's rows of a rank, and the sweeps over its chunks.

    Args:
        job: job of the rank.
        own: `[n]` vertices of the rank, ascending.
        plan: plan of the rank.
        host: where the host keeps rows.
        prefetch: whether a batch's own rows are fetched while the batch before is computed.
        inter: whether ranks get rows of the same batch from each other.
    """

    def __init__(
        self, job: Job, own: Tensor, plan: OffloadPlan, host: HostMemory, *, prefetch: bool, inter: bool
    ) -> None:
        self._job, self._own, self._prefetch = job, own, prefetch
        self._visits = tuple(it.to(job.device, inter) for it in plan.transitions.visits)
        self._capacity = plan.transitions.capacity
        self._neighbours = NeighbourBuffer(job.tier, job.comm, job.batch_comm, inter)
        starts = [LayerStart(job.model, index, projects) for index, projects in enumerate(plan.projects)]
        self._layers = [
            OffloadLayer(*layer) for layer in zip(starts, plan.keeps_sums, plan.mixes, [*starts[1:], None], strict=True)
        ]
        self.host = HostTier(host, job.directory, pinned=job.device.type == "cuda", computes=job.computes)
        self._trained: Tensor | None = None  # features that were read, if they take a gradient
        self._sparse: SparseRows | None = None  # features that were read, if they are sparse
        self._feature_gradients: Tensor | None = None
        self._features, self._rows = plan.slots.allocate(own.numel(), job.dtype, self.host)
        if job.trained_rows is not None:
            self._feature_gradients = self.host.rows(own.numel(), job.model.in_dim, job.dtype)
        self.outputs = Outputs(job, own, self.host)
        self._host_rows = [
            self._features,
            self.outputs.gradients,
            *(rows for layer in self._rows for rows in layer.tensors()),
        ]

    def load(self) -> Rows:
        """Read the features of the own vertices into the host tier. Sparse rows stay as they are, in RAM."""
        features = self._features
        if isinstance(self._job.graph.features, SparseRows):
            sparse = self._job.store.read(self._own)
            assert isinstance(sparse, SparseRows), "stores keep the form of features"
            self._sparse = sparse
            return sparse
        step = max(1, _PIECE_BYTES // max(1, features.shape[1] * features.element_size()))
        self._job.tier.before_writing(features)
        if self._job.store.is_collective:  # all ranks must read equally often
            step = max(1, self._own.numel())
        for first in range(0, max(1, self._own.numel()), step):
            piece = self._job.store.read(self._own[first : first + step])
            assert isinstance(piece, Tensor), "features must be dense"
            features[first : first + step] = piece.detach()
            if piece.requires_grad:
                self._trained = piece
        return features

    @property
    def sparse_bytes(self) -> int:
        """Bytes of sparse features that were read."""
        return 0 if self._sparse is None else self._sparse.nbytes

    # --- features, if the first layer reads them projected ---------------------------------------------------------
    def project_features(self, key: BatchKey) -> None:
        """Run the start of the first layer for all vertices."""
        if self._layers[0].start.projects:
            for chunk, ids, features in self._feature_pieces():
                with torch.no_grad():
                    self._hand_on(0, chunk, self._layers[0].start.of(ids, features, key))
            self._job.tier.settle()

    def project_features_back(self, key: BatchKey) -> None:
        """Compute gradients of the parameters of the first layer's start, and of trained features."""
        if self._layers[0].start.projects:
            gradients = self._feature_gradients
            for chunk, ids, features in self._feature_pieces():
                if isinstance(features, Tensor):
                    features.requires_grad_(gradients is not None)
                with torch.enable_grad():
                    out = self._layers[0].start.of(ids, features, key)
                backward_through(out, self._gradients_of(0, chunk))
                if gradients is not None and isinstance(features, Tensor) and features.grad is not None:
                    self._job.tier.leave(features.grad, gradients[_range(chunk)], "tier/d2h_rows_features")
            self._job.tier.settle()
            if self._trained is not None:
                self._trained.grad = gradients

    def _feature_pieces(self) -> Iterator[tuple[Chunk, Tensor, Rows]]:
        """`(chunk, ids [D], features [D, Din])` of chunks' destinations, on the device; topology stays on the host."""
        tier = self._job.tier
        for it in self._visits:
            block = it.chunk.block
            if block.num_dst:
                stays = block in tier.resident
                arrays = destination_arrays(block) if stays else [block.dst_ids]
                with arriving(block, arrays, tier, (block.dst_ids, *self._host_rows)):
                    ids = tier.resident.on_device(block, self._job.device).dst_ids if stays else block.dst_ids
                    yield it.chunk, across(ids, self._job.device), self._entered_features(it.chunk)

    def _entered_features(self, chunk: Chunk) -> Rows:
        """Features of the chunk's destinations, on the device."""
        tier = self._job.tier
        if self._sparse is None:
            return tier.enter(self._features[_range(chunk)], counted="tier/h2d_rows_features")
        tier.counts["tier/h2d_rows_features"] += chunk.last - chunk.first
        return tier.enter_rows(self._sparse, torch.arange(chunk.first, chunk.last))

    # --- forward ---------------------------------------------------------------------------------------------------
    def forward(self, index: int, key: BatchKey) -> None:
        """Run a hidden layer for all chunks."""
        for chunk, out in self._forward(index, key):
            self._hand_on(index + 1, chunk, out)
        self._job.tier.settle()

    def forward_last(self, key: BatchKey, count: int) -> Tensor:
        """Run the last layer and the loss for all chunks. Returns the loss sum; gradients of logits go to the host.

        Args:
            key: key of the epoch.
            count: number of targets of all ranks; the loss is the mean over them.
        """
        total = torch.zeros((), dtype=self._job.dtype, device=self._job.device)
        for chunk, out in self._forward(len(self._layers) - 1, key):
            total += self.outputs.loss(chunk, out.rows, count)
        self._job.tier.settle()
        return total

    def last_outputs(self, key: BatchKey) -> Tensor:
        """Outputs `[n, C]` of the last layer, in the host tier. Gradients of a loss may replace them."""
        for chunk, out in self._forward(len(self._layers) - 1, key):
            self.outputs.keep(chunk, out.rows)
        self._job.tier.settle()
        return self.outputs.gradients

    def _forward(self, index: int, key: BatchKey) -> Iterator[tuple[Chunk, StartRows]]:
        """`(chunk, rows for the next layer)`, while the chunk is in the device tier."""
        tier, layer, host = self._job.tier, self._layers[index], self._rows[index]
        buffer = self._room(index)
        with tier.holding(buffer):
            moves = [it.forward for it in self._visits]
            for it in self._loaded(index, self._visits, moves, buffer, "forward"):
                if not it.chunk.block.num_dst:
                    continue
                with visit(it.chunk, tier, (buffer, *self._host_rows)) as here, torch.no_grad():
                    out, sums = layer.forward(here.block, buffer, self._own_rows(index, here), key)
                    if host.sums is not None and sums is not None:
                        tier.leave(sums, host.sums[_range(here)], "tier/d2h_rows_sums")
                    yield here, out

    def _hand_on(self, index: int, chunk: Chunk, made: StartRows) -> None:
        """Copy the rows that chunks of layer `index` will read to the host."""
        host, part = self._rows[index], _range(chunk)
        self._job.tier.leave(made.rows, host.rows[part], "tier/d2h_rows_outputs")
        if made.own is not None and host.own is not None:
            self._job.tier.leave(made.own, host.own[part], "tier/d2h_rows_own")

    # --- backward --------------------------------------------------------------------------------------------------
    def backward(self, index: int, key: BatchKey) -> None:
        """Run a layer backward for all chunks, last first. The host adds up gradients of the rows that they read."""
        tier, layer, wanted = self._job.tier, self._layers[index], self._rows[index].gradients
        order = self._visits[::-1]
        if wanted is not None:
            tier.before_writing(wanted)
        sums = None if wanted is None else self.host.to_add_up(wanted)
        buffer = None if layer.keeps_sums else self._room(index)
        into = None if wanted is None else self._room(index)
        with tier.holding(buffer, into):
            for it in order if buffer is None else self._loaded(index, order, _back(order), buffer, "backward"):
                if it.chunk.block.num_dst:
                    self._run_again(index, it.chunk, key, buffer, into)
                if sums is not None and into is not None:
                    self._neighbours.give_back(it.forward, into, sums, self._tag(index))
        tier.settle()
        if sums is not None and wanted is not None:
            tier.copy_on_host(sums, wanted)

    def _run_again(self, index: int, chunk: Chunk, key: BatchKey, buffer: Tensor | None, into: Tensor | None) -> None:
        tier, layer, host = self._job.tier, self._layers[index], self._rows[index]
        with visit(chunk, tier, (buffer, into, *self._host_rows), "again") as here:
            gradient, own = self._gradients_of(index + 1, here), self._own_rows(index, here)
            if buffer is not None:
                of_own = layer.backward(here.block, buffer, own, key, gradient, into)
            else:
                assert host.sums is not None
                sums = tier.enter(host.sums[_range(here)], counted="tier/h2d_rows_sums")
                read = tier.enter(host.rows[_range(here)], counted=_OWN_IN) if layer.reads_own_rows else None
                of_own = layer.backward_from_sums(here.block, sums, read, own, key, gradient, into)
            if host.own_gradients is not None and of_own is not None:
                tier.leave(of_own, host.own_gradients[_range(here)], "tier/d2h_rows_own")

    def _gradients_of(self, index: int, chunk: Chunk) -> StartRows:
        """Gradients of rows that layer `index` read of the chunk's vertices; after the last layer, of logits."""
        tier, counted = self._job.tier, "tier/h2d_rows_gradients"
        if index < len(self._rows):
            host, part = self._rows[index], _range(chunk)
            assert host.gradients is not None
            own = None if host.own_gradients is None else tier.enter(host.own_gradients[part], counted=_OWN_IN)
            return StartRows(tier.enter(host.gradients[part], counted=counted), own)
        return StartRows(self.outputs.gradient(chunk), None)

    # --- shared ----------------------------------------------------------------------------------------------------
    def _loaded(
        self,
        index: int,
        visits: Sequence[Visit],
        moves: Sequence[Move],
        buffer: Tensor,
        counted: Literal["forward", "backward"],
    ) -> Iterator[Visit]:
        """Visits, each when its rows are in the buffer. Empty chunks are visited too, because other ranks need rows."""
        host, neighbours = self._rows[index].rows, self._neighbours
        arriving = neighbours.fetch(moves[0], host)
        for number, (it, move) in enumerate(zip(visits, moves, strict=True)):
            neighbours.load(move, arriving, buffer, host, self._tag(index), counted)
            more = number + 1 < len(moves)
            if more and self._prefetch:
                arriving = neighbours.fetch(moves[number + 1], host)
            yield it
            if more and not self._prefetch:
                arriving = neighbours.fetch(moves[number + 1], host)

    def _own_rows(self, index: int, chunk: Chunk) -> Tensor | None:
        own = self._rows[index].own
        return None if own is None else self._job.tier.enter(own[_range(chunk)], counted=_OWN_IN)

    def _tag(self, index: int) -> Tag:
        return "activations" if index or self._layers[0].start.projects else "features"

    def _room(self, index: int) -> Tensor:
        """A buffer of zeros. Sums of gradients start with zero, and unused places must not contain NaN."""
        width = self._rows[index].rows.shape[1]
        return torch.zeros(self._capacity, width, dtype=self._job.dtype, device=self._job.device)


_OWN_IN = "tier/h2d_rows_own"


def _range(chunk: Chunk) -> slice:
    """The chunk's range among the rank's own vertices."""
    return slice(chunk.first, chunk.last)


def _back(visits: Sequence[Visit]) -> list[Move]:
    moves = [it.back for it in visits]
    assert all(move is not None for move in moves), "the plan has it if a layer is run again"
    return [move for move in moves if move is not None]
