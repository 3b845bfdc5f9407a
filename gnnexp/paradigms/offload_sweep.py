"""Sweeps over the chunks of a rank, one layer at a time: the two loops of HongTu's Algorithm 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey
from gnnexp.job import Job
from gnnexp.measure.host_tier import HostTier
from gnnexp.measure.ledger import Tag
from gnnexp.paradigms.in_chunks import visit
from gnnexp.paradigms.neighbour_buffer import NeighbourBuffer
from gnnexp.paradigms.offload_layer import OffloadLayer
from gnnexp.paradigms.offload_options import OffloadOptions
from gnnexp.paradigms.offload_plan import OffloadPlan
from gnnexp.samplers.chunks import Chunk
from gnnexp.samplers.transitions import Move, Visit

_PIECE_BYTES = 64 << 20


class Sweeps:
    """The host's rows of a rank, and how they are worked through.

    Args:
        job: of the rank.
        own: `[n]` its vertices, ascending.
        plan: for them.
        options: of the paradigm.
    """

    def __init__(self, job: Job, own: Tensor, plan: OffloadPlan, options: OffloadOptions) -> None:
        self._job, self._own, self._prefetch, inter = job, own, options.prefetch, options.duplicates.inter
        self._visits = tuple(it.to(job.device, inter) for it in plan.transitions.visits)
        self._capacity = plan.transitions.capacity
        self._neighbours = NeighbourBuffer(job.tier, job.comm, job.batch_comm, inter)
        self._layers = [OffloadLayer(job.model, index, kept) for index, kept in enumerate(plan.keeps_sums)]
        self.host = HostTier(options.host, job.directory, pinned=job.device.type == "cuda")
        widths = job.model.widths

        def rows(width: int) -> Tensor:
            return self.host.rows(own.numel(), width, job.dtype)

        self._inputs = [rows(width) for width in widths[:-1]]
        self._sums = [rows(width) if layer.keeps_sums else None
                      for layer, width in zip(self._layers, widths[:-1], strict=True)]
        # The gradients of other logits are zero.
        mine = job.task.targets()[torch.isin(job.task.targets(), own)]
        self._target_rows, order = torch.sort(torch.searchsorted(own, mine))
        self._targets = mine[order]
        # Gradients of a layer's inputs, and of the targets' logits. Where widths are alike, they take the place of the
        # inputs of the layer above, which nobody needs by then.
        self._gradients: list[Tensor | None] = [None]
        for index in range(1, len(widths) - 1):
            above = self._inputs[index + 1] if index + 1 < len(self._inputs) else None
            fits = above is not None and widths[index] == widths[index + 1]
            self._gradients.append(above if fits else rows(widths[index]))
        self._gradients.append(self.host.rows(mine.numel(), widths[-1], job.dtype))

    def load(self) -> Tensor:
        """Read the features of the own vertices into the host tier."""
        features = self._inputs[0]
        step = max(1, _PIECE_BYTES // max(1, features.shape[1] * features.element_size()))
        for first in range(0, self._own.numel(), step):
            piece = self._job.store.read(self._own[first : first + step])
            assert isinstance(piece, Tensor), "sparse features are refused"
            features[first : first + step] = piece
        return features

    # --- forward ---------------------------------------------------------------------------------------------------
    def forward(self, index: int, key: BatchKey) -> None:
        """A hidden layer for all chunks."""
        outputs = self._inputs[index + 1]
        for chunk, out in self._forward(index, key):
            self._job.tier.leave(out, outputs[chunk.first : chunk.last], "tier/d2h_rows_outputs")

    def forward_last(self, key: BatchKey, count: int) -> Tensor:
        """The last layer, with the loss of every chunk: its sum. Gradients of the targets' logits go to the host.


        Args:
            key: of the epoch.
            count: targets of all ranks, which the loss is the mean over.
        """
        job, gradients = self._job, self._gradients[-1]
        assert gradients is not None
        total = torch.zeros((), dtype=job.dtype, device=job.device)
        for chunk, out in self._forward(len(self._layers) - 1, key):
            part, places = self._targets_of(chunk)
            with torch.enable_grad():
                logits = out.index_select(0, places).requires_grad_()
                loss = job.task.loss_sum(logits, self._targets[part])
                (gradient,) = torch.autograd.grad(loss / count, logits)
            total += loss.detach()
            job.tier.leave(gradient, gradients[part], "tier/d2h_rows_outputs")
        return total

    def _targets_of(self, chunk: Chunk) -> tuple[slice, Tensor]:
        """Which of the targets are a chunk's, and where among its destinations they are (on the device)."""
        bounds = torch.searchsorted(self._target_rows, torch.tensor([chunk.first, chunk.last])).tolist()
        part = slice(*bounds)
        return part, (self._target_rows[part] - chunk.first).to(self._job.device)

    def _forward(self, index: int, key: BatchKey) -> Iterator[tuple[Chunk, Tensor]]:
        """`(chunk, its outputs)`, while it is in the device tier."""
        tier, layer, sums = self._job.tier, self._layers[index], self._sums[index]
        buffer = self._room(index)
        with tier.holding(buffer):
            moves = [it.forward for it in self._visits]
            for it in self._loaded(index, self._visits, moves, buffer, "forward"):
                if not it.chunk.block.num_dst:
                    continue
                with visit(it.chunk, tier, (buffer, *self._host_rows())) as here, torch.no_grad():
                    out, kept = layer.forward(here.block, buffer, key)
                    if sums is not None and kept is not None:
                        tier.leave(kept, sums[here.first : here.last], "tier/d2h_rows_sums")
                    yield here, out

    # --- backward --------------------------------------------------------------------------------------------------
    def backward(self, index: int, key: BatchKey) -> None:
        """A layer for all chunks, last first; gradients of its inputs are added up on the host."""
        tier, layer = self._job.tier, self._layers[index]
        given, wanted = self._gradients[index + 1], self._gradients[index]
        assert given is not None
        order = self._visits[::-1]
        if wanted is not None:
            wanted.zero_()
        buffer = None if layer.keeps_sums else self._room(index)
        into = None if wanted is None else self._room(index)
        with tier.holding(buffer, into):
            for it in order if buffer is None else self._loaded(index, order, _back(order), buffer, "backward"):
                if it.chunk.block.num_dst:
                    self._run_again(index, it.chunk, key, buffer, given, into)
                if wanted is not None and into is not None:
                    self._neighbours.give_back(it.forward, into, wanted, _tag(index))

    def _run_again(
        self, index: int, chunk: Chunk, key: BatchKey, buffer: Tensor | None, given: Tensor, into: Tensor | None
    ) -> None:
        tier, layer, sums = self._job.tier, self._layers[index], self._sums[index]
        part = slice(chunk.first, chunk.last)
        with visit(chunk, tier, (buffer, into, *self._host_rows()), backward=True) as here:
            gradient = self._gradient_of(index, here, given)
            if buffer is not None:
                layer.backward(here.block, buffer, key, gradient, into)
                return
            assert sums is not None
            kept = tier.enter(sums[part], counted="tier/h2d_rows_sums")
            own = tier.enter(self._inputs[index][part], counted="tier/h2d_rows_own")
            layer.backward_from_sums(here.block, kept, own, key, gradient, into)

    def _gradient_of(self, index: int, chunk: Chunk, given: Tensor) -> Tensor:
        """`[D, out]` of the chunk's outputs; those of the last layer are zero but for the targets'."""
        counted = "tier/h2d_rows_gradients"
        if index + 1 < len(self._layers):
            return self._job.tier.enter(given[chunk.first : chunk.last], counted=counted)
        part, places = self._targets_of(chunk)
        whole = torch.zeros(chunk.last - chunk.first, given.shape[1], dtype=given.dtype, device=self._job.device)
        return whole.index_copy_(0, places, self._job.tier.enter(given[part], counted=counted))

    # --- shared ----------------------------------------------------------------------------------------------------
    def _loaded(
        self, index: int, visits: Sequence[Visit], moves: Sequence[Move], buffer: Tensor,
        counted: Literal["forward", "backward"],
    ) -> Iterator[Visit]:
        """Visits, each when its rows are in the buffer; empty chunks are visited for what others need of this rank."""
        host, neighbours = self._inputs[index], self._neighbours
        arriving = neighbours.fetch(moves[0], host)
        for number, (it, move) in enumerate(zip(visits, moves, strict=True)):
            neighbours.load(move, arriving, buffer, host, _tag(index), counted)
            more = number + 1 < len(moves)
            if more and self._prefetch:
                arriving = neighbours.fetch(moves[number + 1], host)
            yield it
            if more and not self._prefetch:
                arriving = neighbours.fetch(moves[number + 1], host)

    def _room(self, index: int) -> Tensor:
        """Zeros: gradients begin with them, and places that nothing was put in must not hold what is no number."""
        width = self._inputs[index].shape[1]
        return torch.zeros(self._capacity, width, dtype=self._job.dtype, device=self._job.device)

    def _host_rows(self) -> list[Tensor]:
        return [rows for rows in (*self._inputs, *self._sums, *self._gradients) if rows is not None]


def _back(visits: Sequence[Visit]) -> list[Move]:
    moves = [it.back for it in visits]
    assert all(move is not None for move in moves), "planned wherever a layer is run again"
    return [move for move in moves if move is not None]


def _tag(index: int) -> Tag:
    return "activations" if index else "features"
