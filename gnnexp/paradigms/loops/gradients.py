"""What is trained, and its gradients: those of parameters lie in one flat buffer (one all-reduce, no copies)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

import torch
from torch import nn

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import RunError
from gnnexp.ops.slices import slices_of


class Trained(Protocol):
    """Something that an iteration trains: parameters, or rows of a feature store."""

    def collect(self) -> None:
        """Bring gradients together from all ranks, to where they are needed; all ranks call."""

    def update(self) -> None:
        """After the optimizer's step: take a step where the optimizer took none, and forget the gradients."""

    def forget(self) -> None:
        """Forget the gradients: nothing is trained by them."""


class FlatGradients:
    """Makes each of these parameters `.grad` a view into one buffer; a missing gradient counts as zero.

    Args:
        parameters: those that are trained are chosen; there may be none.
        comm: of the ranks over which gradients are summed; None: gradients are complete here.
        dtype, device: of all of them.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], comm: Communicator | None, dtype: torch.dtype,
                 device: torch.device) -> None:
        self._comm = comm
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

    def collect(self) -> None:
        """Sum over ranks."""
        if self._comm is not None:
            self._comm.all_reduce(self.flat, "gradients")

    def update(self) -> None:
        """The optimizer has stepped these parameters."""
        self.forget()

    def forget(self) -> None:
        """Back to zero."""
        self.flat.zero_()


def assert_same_parameters(module: nn.Module, comm: Communicator) -> None:
    """Every rank must start from the same parameters, but for slices: they are drawn from the seed alone."""
    digest, slices = hashlib.sha256(), slices_of(module)
    for name, parameter in module.named_parameters():
        digest.update(b"" if name in slices else parameter.detach().cpu().contiguous().numpy().tobytes())
    if len(set(comm.gather_objects(digest.digest()))) > 1:
        raise RunError("ranks drew different initial parameters: mixed library versions or machines in one run?")
