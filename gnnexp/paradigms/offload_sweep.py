"""Sweeps over the chunks of a rank, one layer at a time: the two loops of HongTu's Algorithm 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from gnnexp.graph.block import Batch, BatchKey
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
        plan: for it.
        options: of the paradigm.
    """

    def __init__(self, job: Job, plan: OffloadPlan, options: OffloadOptions) -> None:
        self._job, self._prefetch, inter = job, options.prefetch, options.duplicates.inter
        self._visits = tuple(it.to(job.device, inter) for it in plan.transitions.visits)
        self._capacity = plan.transitions.capacity
        self._neighbours = NeighbourBuffer(job.tier, job.comm, job.batch_comm, inter)
        self._layers = [OffloadLayer(job.model, index, kept) for index, kept in enumerate(plan.keeps_sums)]
        self.host = HostTier(options.host, job.directory / "host_tier", pinned=job.device.type == "cuda")
        count = max(it.chunk.last for it in self._visits)
        widths = job.model.widths

        def rows(width: int) -> Tensor:
            return self.host.rows(count, width, job.dtype)

        self._inputs = [rows(width) for width in widths[:-1]]
        self._sums = [rows(width) if layer.keeps_sums else None
                      for layer, width in zip(self._layers, widths[:-1], strict=True)]
        # Gradients of a layer's inputs (and of the logits). Where it is as wide, they take the place of the inputs of
        # the layer above, which nobody needs by then.
        self._gradients: list[Tensor | None] = [None]
        for index in range(1, len(widths)):
            above = self._inputs[index + 1] if index + 1 < len(self._inputs) else None
            fits = above is not None and widths[index] == widths[index + 1]
            self._gradients.append(above if fits else rows(widths[index]))
        # In the device tier, for all layers in turn. Zeros: places that nothing was put in must not hold what is no
        # number; and gradients are zero again whenever the last of them has left.
        self._rows = self._room(max(widths[:-1]))
        self._row_gradients = self._room(max(widths[1:-1], default=0))

    def load(self, own: Tensor) -> Tensor:
        """Read the features of the own vertices `[n]` into the host tier."""
        features = self._inputs[0]
        step = max(1, _PIECE_BYTES // max(1, features.shape[1] * features.element_size()))
        for first in range(0, own.numel(), step):
            piece = self._job.store.read(own[first : first + step])
            assert isinstance(piece, Tensor), "sparse features are refused"
            features[first : first + step] = piece
        return features

    # --- forward ---------------------------------------------------------------------------------------------------
    def forward(self, index: int, key: BatchKey) -> None:
        """A hidden layer for all chunks."""
        outputs = self._inputs[index + 1]
        for chunk, out in self._forward(index, key):
            self._job.tier.leave(out, outputs[chunk.first : chunk.last], "tier/d2h_rows_outputs")

    def forward_last(self, key: BatchKey, batch: Batch, rows: Tensor) -> Tensor:
        """The last layer, with the loss of every chunk: its sum; the logits' gradients go to the host, not the logits.

        Args:
            key: of the epoch.
            batch: this rank's targets, of how many.
            rows: `[t]` where among the own vertices the targets are.
        """
        job, gradients = self._job, self._gradients[-1]
        assert gradients is not None
        order = torch.argsort(rows)
        rows, targets = rows[order], batch.targets[order]
        total = torch.zeros((), dtype=job.dtype, device=job.device)
        for chunk, out in self._forward(len(self._layers) - 1, key):
            start, stop = torch.searchsorted(rows, torch.tensor([chunk.first, chunk.last])).tolist()
            logits = out.requires_grad_()
            with torch.enable_grad():
                chosen = logits.index_select(0, (rows[start:stop] - chunk.first).to(job.device))
                loss = job.task.loss_sum(chosen, targets[start:stop])
                (gradient,) = torch.autograd.grad(loss / max(1, batch.global_count), logits)
            total += loss.detach()
            job.tier.leave(gradient, gradients[chunk.first : chunk.last], "tier/d2h_rows_outputs")
        return total

    def _forward(self, index: int, key: BatchKey) -> Iterator[tuple[Chunk, Tensor]]:
        """`(chunk, its outputs)`, while it is in the device tier."""
        tier, layer, sums = self._job.tier, self._layers[index], self._sums[index]
        buffer = self._view(self._rows, index)
        with tier.holding(self._rows, self._row_gradients):
            moves = [it.forward for it in self._visits]
            for it in self._loaded(index, self._visits, moves, buffer, "forward"):
                if not it.chunk.block.num_dst:
                    continue
                with visit(it.chunk, tier, self._elsewhere()) as here, torch.no_grad():
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
        buffer = None if layer.keeps_sums else self._view(self._rows, index)
        into = None if wanted is None else self._view(self._row_gradients, index)
        with tier.holding(self._rows, self._row_gradients):
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
        with visit(chunk, tier, self._elsewhere(), backward=True) as here:
            gradient = tier.enter(given[part], counted="tier/h2d_rows_gradients")
            if buffer is not None:
                layer.backward(here.block, buffer, key, gradient, into)
                return
            assert sums is not None
            kept = tier.enter(sums[part], counted="tier/h2d_rows_sums")
            own = tier.enter(self._inputs[index][part], counted="tier/h2d_rows_own")
            layer.backward_from_sums(here.block, kept, own, key, gradient, into)

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

    def _room(self, width: int) -> Tensor:
        return torch.zeros(self._capacity * width, dtype=self._job.dtype, device=self._job.device)

    def _view(self, room: Tensor, index: int) -> Tensor:
        """`[capacity, width]` of the inputs of a layer."""
        width = self._inputs[index].shape[1]
        return room[: self._capacity * width].view(self._capacity, width)

    def _elsewhere(self) -> list[Tensor]:
        """What chunks are worked on with and is counted elsewhere: the host's rows, and what the tier holds."""
        held = (*self._inputs, *self._sums, *self._gradients, self._rows, self._row_gradients)
        return [rows for rows in held if rows is not None]


def _back(visits: Sequence[Visit]) -> list[Move]:
    moves = [it.back for it in visits]
    assert all(move is not None for move in moves), "planned wherever a layer is run again"
    return [move for move in moves if move is not None]


def _tag(index: int) -> Tag:
    return "activations" if index else "features"
