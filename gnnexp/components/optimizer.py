"""The chosen optimizer, which ranks make of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that only read records import this module: they do not wait for torch
    from torch.optim import Optimizer


@dataclass(frozen=True, eq=False)
class OptimizerChoice:
    """A class of torch with its options.

    Attributes:
        target: dotted name of the class, for messages.
        trial: an optimizer of one small parameter, which shows its class and defaults.
        make: makes an optimizer of parameters or groups of them.
    """

    target: str
    trial: Optimizer
    make: Callable[..., Optimizer]
