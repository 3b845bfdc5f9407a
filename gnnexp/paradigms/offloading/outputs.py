"""Outputs of the last layer for a rank's vertices, chunk by chunk, and their gradients on the host."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnexp.graph.subset import contains
from gnnexp.kernels.crossing import across
from gnnexp.paradigms.job import Job
from gnnexp.placement.chunks import Chunk
from gnnexp.tasks.base import Examples
from gnnexp.tiers.host_tier import HostTier


class Outputs:
    """Outputs of the last layer that a loss reads, and their gradients.

    Args:
        job: job of the rank.
        own: `[n]` vertices of the rank, ascending.
        host: host tier for the gradients.
    """

    def __init__(self, job: Job, own: Tensor, host: HostTier) -> None:
        self._job = job
        # Outputs that no loss reads have no gradient. If examples are links, any vertex may be an end of a link.
        self._read = own
        if not job.task.options.pairs:
            mine = job.task.targets()
            self._read = torch.sort(mine[contains(own, mine)]).values
        self._rows = torch.searchsorted(own, self._read)
        # Copies on the device, from which each chunk takes its slice.
        self._rows_there, self._read_there = across(self._rows, job.device), across(self._read, job.device)
        self.gradients = host.rows(self._read.numel(), job.model.widths[-1], job.dtype)

    def loss(self, chunk: Chunk, rows: Tensor, count: int) -> Tensor:
        """The loss sum of a chunk's targets, from outputs `[D, C]`. Gradients of the outputs go to the host.

        Gradients of a decoder's parameters are added up, chunk by chunk.

        Args:
            chunk: chunk on the device.
            rows: outputs of its destinations.
            count: number of targets of all ranks; the loss is the mean over them.
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
        """Store a chunk's outputs `[D, C]` on the host, if a loss reads all outputs. Gradients may replace them."""
        self._job.tier.leave(rows, self.gradients[chunk.first : chunk.last], "tier/d2h_rows_outputs")

    def gradient(self, chunk: Chunk) -> Tensor:
        """Gradient `[D, C]` of a chunk's outputs, on the device; zero for outputs that no loss reads."""
        part, places = self._part(chunk)
        given = self._job.tier.enter(self.gradients[part], counted="tier/h2d_rows_gradients")
        whole = torch.zeros(chunk.last - chunk.first, given.shape[1], dtype=given.dtype, device=self._job.device)
        return whole.index_copy_(0, places, given)

    def _part(self, chunk: Chunk) -> tuple[slice, Tensor]:
        """The chunk's slice of the outputs that are read, and their places among its destinations (on the device)."""
        bounds = torch.searchsorted(self._rows, torch.tensor([chunk.first, chunk.last])).tolist()
        part = slice(*bounds)
        return part, self._rows_there[part] - chunk.first
