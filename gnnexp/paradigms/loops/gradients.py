"""What is trained, and its gradients: those of parameters lie in one flat buffer (one all-reduce, no copies)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import RunError
from gnnexp.ops.slices import slices_of


class Trained(Protocol):
    """Something that an iteration trains: parameters, or rows of a feature store."""

    def collect(self) -> None:
        """Bring gradients together from all ranks, to where they are needed; all ranks call."""

    @property
    def is_shared(self) -> bool:
        """Whether every rank has all of the gradients, rather than a part of them."""

    def square_sum(self) -> Tensor:
        """Sum of the squares of the gradients that are here, a scalar on their device."""

    def multiply(self, factor: Tensor) -> None:
        """Multiply the gradients by a scalar."""

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

    @property
    def is_shared(self) -> bool:
        """Gradients that are summed over ranks are the same on all of them."""
        return self._comm is not None

    def square_sum(self) -> Tensor:
        """Of the buffer."""
        return self.flat.square().sum()

    def multiply(self, factor: Tensor) -> None:
        """In place."""
        self.flat.mul_(factor)

    def update(self) -> None:
        """The optimizer has stepped these parameters."""
        self.forget()

    def forget(self) -> None:
        """Back to zero."""
        self.flat.zero_()


def clip(trained: Sequence[Trained], max_norm: float, comm: Communicator) -> None:
    """Scale gradients down where the norm of all of them together is above `max_norm`; all ranks call.

    Slices and rows that live on one rank count once: their squares are summed over ranks (8 bytes, tag `gradients`).
    The factor is that of `torch.nn.utils.clip_grad_norm_`.
    """
    total = torch.zeros((), dtype=torch.float64)
    for one in trained:
        if one.is_shared:
            total += one.square_sum().double().cpu()
    if any(not one.is_shared for one in trained):
        parts = torch.stack([one.square_sum().double().cpu() for one in trained if not one.is_shared]).sum().reshape(1)
        comm.all_reduce(parts, "gradients")
        total += parts[0]
    factor = max_norm / (total.sqrt() + 1e-6)
    if factor < 1:
        for one in trained:
            one.multiply(factor)


def assert_same_parameters(module: nn.Module, comm: Communicator) -> None:
    """Every rank must start from the same parameters, but for slices: they are drawn from the seed alone."""
    digest, slices = hashlib.sha256(), slices_of(module)
    for name, parameter in module.named_parameters():
        digest.update(b"" if name in slices else parameter.detach().cpu().contiguous().numpy().tobytes())
    if len(set(comm.gather_objects(digest.digest()))) > 1:
        raise RunError("ranks drew different initial parameters: mixed library versions or machines in one run?")
