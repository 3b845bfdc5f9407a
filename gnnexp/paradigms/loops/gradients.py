"""Trained values and their gradients. Gradients of parameters are in one flat buffer: one all-reduce, no copies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.slices import slices_of
from gnnexp.errors import RunError


class Trained(Protocol):
    """Trained values: parameters, or rows of a feature store."""

    def collect(self) -> None:
        """Sum gradients over ranks, where they are needed. All ranks call."""

    @property
    def is_shared(self) -> bool:
        """Whether every rank has all gradients, and not only a part of them."""

    def square_sum(self) -> Tensor:
        """Sum of squares of the gradients on this rank, a scalar on their device."""

    def multiply(self, factor: Tensor) -> None:
        """Multiply the gradients by a scalar."""

    def update(self) -> None:
        """Called after the optimizer's step. Update values that the optimizer does not, and clear gradients."""

    def forget(self) -> None:
        """Clear the gradients without a step."""


class FlatGradients:
    """Gradients of parameters as views of one buffer. A missing gradient counts as zero.

    Args:
        parameters: parameters, of which those with `requires_grad` are used; there may be none.
        comm: ranks over which gradients are summed; None: gradients are complete here.
        dtype, device: type and device of all parameters.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], comm: Communicator | None, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._comm = comm
        self._chosen = [p for p in parameters if p.requires_grad]
        self.flat = torch.zeros(sum(p.numel() for p in self._chosen), dtype=dtype, device=device)
        self.attach()

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return self.flat.nbytes

    def attach(self) -> None:
        """Make each `.grad` a view of the buffer."""
        parts = torch.split_with_sizes(self.flat, [parameter.numel() for parameter in self._chosen])
        for parameter, part in zip(self._chosen, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def detach(self) -> None:
        """Remove each `.grad`, so that an optimizer's step changes nothing."""
        for parameter in self._chosen:
            parameter.grad = None

    def collect(self) -> None:
        """Sum the buffer over ranks."""
        if self._comm is not None:
            self._comm.all_reduce(self.flat, "gradients")

    @property
    def is_shared(self) -> bool:
        """True if gradients are summed over ranks: they are the same on all ranks."""
        return self._comm is not None

    def square_sum(self) -> Tensor:
        """Sum of squares of the buffer."""
        return self.flat.square().sum()

    def multiply(self, factor: Tensor) -> None:
        """Multiply the buffer in place."""
        self.flat.mul_(factor)

    def update(self) -> None:
        """Clear gradients. The optimizer has already updated the parameters."""
        self.forget()

    def forget(self) -> None:
        """Set the buffer to zero."""
        self.flat.zero_()


def clip(trained: Sequence[Trained], max_norm: float, comm: Communicator) -> None:
    """Scale gradients down if their total norm is above `max_norm`. All ranks call.

    Slices, and rows of one rank, count once: their squares are summed over ranks (8 bytes, tag `gradients`).
    The factor is that of `torch.nn.utils.clip_grad_norm_`.
    """
    total = torch.zeros((), dtype=torch.float64)
    for values in trained:
        if values.is_shared:
            total += values.square_sum().double().cpu()
    own = [values.square_sum().double().cpu() for values in trained if not values.is_shared]
    if own:
        parts = torch.stack(own).sum().reshape(1)
        comm.all_reduce(parts, "gradients")
        total += parts[0]
    factor = max_norm / (total.sqrt() + 1e-6)
    if factor < 1:
        for values in trained:
            values.multiply(factor)


def assert_same_parameters(module: nn.Module, comm: Communicator) -> None:
    """Check that all ranks start from the same parameters, except slices. The seed alone decides parameters."""
    digest, slices = hashlib.sha256(), slices_of(module)
    for name, parameter in module.named_parameters():
        digest.update(b"" if name in slices else parameter.detach().cpu().contiguous().numpy().tobytes())
    if len(set(comm.gather_objects(digest.digest()))) > 1:
        raise RunError("ranks drew different initial parameters: mixed library versions or machines in one run?")
