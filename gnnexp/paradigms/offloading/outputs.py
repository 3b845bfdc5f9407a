"""The last layer's outputs of a rank's vertices, chunk by chunk, and their gradients on the host."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnexp.graph.subset import contains
from gnnexp.job import Job
from gnnexp.placement.chunks import Chunk
from gnnexp.tasks.base import Examples
from gnnexp.tiers.host_tier import HostTier
from gnnexp.tiers.tier import across


class Outputs:
    """What a loss reads of the last layer, and what it gives back.

    Args:
        job: of the rank.
        own: `[n]` its vertices, ascending.
        host: where gradients lie.
    """

    def __init__(self, job: Job, own: Tensor, host: HostTier) -> None:
        self._job = job
        # Outputs that no loss reads have no gradient; where examples are links, any may be an end of one.
        self._read = own
        if not job.task.pairs:
            mine = job.task.targets()
            self._read = torch.sort(mine[contains(own, mine)]).values
        self._rows = torch.searchsorted(own, self._read)
        # The same on the device: what a chunk's loss reads is cut out of them there.
        self._rows_there, self._read_there = across(self._rows, job.device), across(self._read, job.device)
        self.gradients = host.rows(self._read.numel(), job.model.widths[-1], job.dtype)

    def loss(self, chunk: Chunk, rows: Tensor, count: int) -> Tensor:
        """The loss sum of a chunk's targets, from its outputs `[D, C]`; their gradients go to the host.

        Those of a decoder are added to its parameters' own, chunk by chunk.

        Args:
            chunk: on the device.
            rows: of its destinations.
            count: targets of all ranks, which the loss is the mean over.
        """
        task, (part, places) = self._job.task, self._part(chunk)
        with torch.enable_grad():
            outputs = rows.index_select(0, places).requires_grad_()
            examples = Examples(self._read_there[part], outputs.shape[0])
            loss = task.loss_sum(task.decode(outputs, examples), examples)
            (loss / count).backward()  # type: ignore[no-untyped-call]
        assert outputs.grad is not None
        self._job.tier.leave(outputs.grad, self.gradients[part], "tier/d2h_rows_outputs")
        return loss.detach()

    def keep(self, chunk: Chunk, rows: Tensor) -> None:
        """A chunk's outputs `[D, C]`, for a loss that reads those of all; gradients may take their place."""
        self._job.tier.leave(rows, self.gradients[chunk.first : chunk.last], "tier/d2h_rows_outputs")

    def gradient(self, chunk: Chunk) -> Tensor:
        """`[D, C]` of a chunk's outputs, on the device; zero where no loss has read any."""
        part, places = self._part(chunk)
        given = self._job.tier.enter(self.gradients[part], counted="tier/h2d_rows_gradients")
        whole = torch.zeros(chunk.last - chunk.first, given.shape[1], dtype=given.dtype, device=self._job.device)
        return whole.index_copy_(0, places, given)

    def _part(self, chunk: Chunk) -> tuple[slice, Tensor]:
        """Which of the outputs that are read are a chunk's, and where among its destinations they are (there)."""
        bounds = torch.searchsorted(self._rows, torch.tensor([chunk.first, chunk.last])).tolist()
        part = slice(*bounds)
        return part, self._rows_there[part] - chunk.first
