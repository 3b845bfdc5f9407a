"""All gradients of a module in one flat buffer: one all-reduce, no copies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import nn

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import RunError


class FlatGradients:
    """Makes each of these parameters `.grad` a view into one buffer; a missing gradient counts as zero.

    Args:
        parameters: those that are trained are chosen; there may be none.
        dtype, device: of all of them.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], dtype: torch.dtype, device: torch.device) -> None:
        self._chosen = chosen = [p for p in parameters if p.requires_grad]
        self.flat = torch.zeros(sum(p.numel() for p in chosen), dtype=dtype, device=device)
        self.attach()

    def attach(self) -> None:
        """Gradients are the buffer's."""
        start = 0
        for parameter in self._chosen:
            parameter.grad = self.flat[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()

    def detach(self) -> None:
        """There are none: an optimizer's step changes nothing."""
        for parameter in self._chosen:
            parameter.grad = None

    def all_reduce(self, comm: Communicator) -> None:
        """Sum over ranks."""
        comm.all_reduce(self.flat, "gradients")

    def clear(self) -> None:
        """Back to zero."""
        self.flat.zero_()


def assert_same_parameters(module: nn.Module, comm: Communicator) -> None:
    """Every rank must start from the same parameters: they are drawn from the seed alone."""
    digest = hashlib.sha256()
    for parameter in module.parameters():
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    if len(set(comm.gather_objects(digest.digest()))) > 1:
        raise RunError("ranks drew different initial parameters: mixed library versions or machines in one run?")
