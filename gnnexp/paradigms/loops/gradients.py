"""All gradients of a module in one flat buffer: one all-reduce, no copies."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import RunError


class FlatGradients:
    """Makes each of these parameters `.grad` a view into one buffer; a missing gradient counts as zero."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._chosen = chosen = [p for p in parameters if p.requires_grad]
        self.flat = torch.zeros(sum(p.numel() for p in chosen), dtype=chosen[0].dtype, device=chosen[0].device)
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
    with torch.no_grad():
        digest = [float(p.double().abs().sum()) for p in module.parameters()]
    if any(other != digest for other in comm.gather_objects(digest)):
        raise RunError("ranks drew different initial parameters: mixed library versions or machines in one run?")
