"""The interface of a trainer: what the training loop, evaluation and checkpoints call on each rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from gnnexp.measure.phases import Phase
from gnnexp.models.model import Model

B = TypeVar("B")


@dataclass(frozen=True)
class EpochCounts:
    """The counts of a rank in an epoch.

    Attributes:
        work: counts by name (`edges_sampled`, `features_loaded_host`, ...).
        batches: counts of every batch and layer by name (`edges`, `cross_edges`), `[steps][layers]`.
        untimed: phases that cannot be separated from other phases here. They are not recorded, instead of as 0.
        captured_bytes: peak of a captured step on the GPU. Its replays allocate nothing, but need this memory.
    """

    work: dict[str, int]
    batches: dict[str, list[list[int]]] = field(default_factory=dict)
    untimed: frozenset[Phase] = frozenset()
    captured_bytes: int = 0


class Stateful(Protocol):
    """What has a state that checkpoints hold."""

    def state_dict(self) -> dict[str, Any]:
        """The state: tensors and plain values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""


class Trainer(ABC, Generic[B]):
    """Training on one rank. `B` is the type of a batch. The constructor may communicate.

    Attributes:
        resumes_within_epoch: whether `batches` can begin at any step. If not, a run stops only at the end of an epoch.
    """

    resumes_within_epoch: ClassVar[bool] = False

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """Module whose parameters the optimizer updates. Parameters that are slices are marked (`ops/slices.py`)."""

    @abstractmethod
    def batches(self, epoch: int, first: int = 0) -> Generator[B, None, None]:
        """This rank's share of every global batch, in order, from step `first` on. All ranks have equally many.

        Only trainers with `resumes_within_epoch` get a `first` above 0.
        """

    @abstractmethod
    def forward_backward(self, batch: B) -> tuple[Tensor, int]:
        """Compute gradients of the *global* mean loss. Returns (this rank's loss sum, its number of targets)."""

    @abstractmethod
    def synchronize(self) -> None:
        """Make the gradients of replicated parameters the same on all ranks."""

    def clip_gradients(self, max_norm: float) -> None:
        """Scale all gradients down if their total norm is above `max_norm`. All ranks call, after `synchronize`."""
        nn.utils.clip_grad_norm_(self.module.parameters(), max_norm)

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Make the optimizer's step, update what is trained outside `module`, and clear gradients."""
        optimizer.step()
        self.clear_gradients()

    @abstractmethod
    def clear_gradients(self) -> None:
        """Clear all gradients before the next iteration."""

    @abstractmethod
    def end_epoch(self) -> EpochCounts:
        """The counts since the last call."""

    @abstractmethod
    def evaluation_model(self) -> Model:
        """The trained model for layer-wise inference."""

    def memory(self) -> dict[str, int]:
        """Bytes that this rank holds, by kind: `topology_bytes`, `vertex_bytes`, `buffers_bytes`."""
        return {}

    def facts(self) -> Mapping[str, Any]:
        """Choices made for the user, with reasons, and counts of the run. These plain values are recorded."""
        return {}

    @property
    def own_state(self) -> Stateful | None:
        """What this rank keeps besides model and optimizer, and a resumed run needs; None if that is nothing.

        If ranks have state of their own, a run resumes only with the same number of ranks.
        """
        return None
