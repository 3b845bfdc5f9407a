"""What the training loop and checkpoints call of a way of training, on each rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from gnnexp.measure.phases import Phase
from gnnexp.models.model import Model

B = TypeVar("B")


@dataclass(frozen=True)
class EpochCounts:
    """What a rank counted in an epoch.

    Attributes:
        work: by name (`edges_sampled`, `features_loaded_host`, ...).
        batches: of every batch by layer (`edges`, `cross_edges`), `[steps][layers]`.
        untimed: phases that are parts of others here and cannot be told apart: not recorded, rather than recorded as 0.
    """

    work: dict[str, int]
    batches: dict[str, list[list[int]]] = field(default_factory=dict)
    untimed: frozenset[Phase] = frozenset()


class Trainer(ABC, Generic[B]):
    """Training on one rank; `B` is what one iteration works on. Its constructor may communicate.

    Attributes:
        resumes_within_epoch: whether `batches` can begin at any step; if not, a run stops at the end of an epoch.
    """

    resumes_within_epoch: ClassVar[bool] = False

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """Whose parameters the optimizer updates; one of which a rank has a slice carries it (`ops/slices.py`)."""

    @abstractmethod
    def batches(self, epoch: int, first: int = 0) -> Generator[B, None, None]:
        """This rank's share of every global batch of the epoch from step `first` on, in order; as many on every rank.

        A `first` above 0 is asked for only where `resumes_within_epoch`.
        """

    @abstractmethod
    def forward_backward(self, batch: B) -> tuple[Tensor, int]:
        """Gradients of the *global* mean loss; returns (this rank's loss sum, this rank's number of targets)."""

    @abstractmethod
    def synchronize(self) -> None:
        """Make gradients the same wherever their parameters are replicated."""

    def clip_gradients(self, max_norm: float) -> None:
        """Scale all gradients down where their norm together is above `max_norm`; after `synchronize`, on all ranks."""
        nn.utils.clip_grad_norm_(self.module.parameters(), max_norm)

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer's step, of what is trained beside `module` too; gradients are cleared."""
        optimizer.step()
        self.clear_gradients()

    @abstractmethod
    def clear_gradients(self) -> None:
        """Before the next iteration."""

    @abstractmethod
    def end_epoch(self) -> EpochCounts:
        """What was counted since the last call."""

    @abstractmethod
    def evaluation_model(self) -> Model:
        """The trained model for layer-wise inference."""

    def memory(self) -> dict[str, int]:
        """Bytes this rank holds by kind: `topology_bytes`, `vertex_bytes`, `buffers_bytes`."""
        return {}

    def facts(self) -> Mapping[str, Any]:
        """What it chose for the user and why, and what it counted once: plain values; recorded."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What this rank knows beyond model and optimizer that a resumed run needs: tensors and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave on this rank.

        A run whose ranks have state of their own goes on with the same number of ranks only.
        """
