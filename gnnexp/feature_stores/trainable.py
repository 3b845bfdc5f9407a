"""What a feature store whose rows are trained can do beside reading them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from gnnexp.comm.communicator import Communicator
from gnnexp.experiment.experiment import Choice
from gnnexp.feature_stores.base import FeatureStore


class TrainableStore(FeatureStore):
    """What is read takes a gradient, and is another thing after every step: nothing is read ahead, or kept.

    Attributes:
        dim: columns of a row.
        optimizer: of the rows, set by `begin`.
    """

    trainable = True
    is_shared = False
    dim: int
    optimizer: Optimizer

    @property
    def trained_columns(self) -> int:
        """See `dim`."""
        return self.dim

    @abstractmethod
    def begin(self, optimizer: Choice[Optimizer], seed: int) -> None:
        """Make the rows, after `setup`: a pure function of `seed`, wherever they are; and their optimizer."""

    @abstractmethod
    def collect(self) -> None:
        """Bring the gradients of what was read for this step to where the rows are; all ranks call."""

    @abstractmethod
    def square_sum(self) -> Tensor:
        """Sum of the squares of the gradients that `collect` brought here."""

    @abstractmethod
    def multiply(self, factor: Tensor) -> None:
        """Multiply these gradients by a scalar."""

    @abstractmethod
    def update(self) -> None:
        """Step the rows, and forget their gradients."""

    @abstractmethod
    def forget(self) -> None:
        """What was read is not trained."""

    @abstractmethod
    def gather(self, out: Tensor, comm: Communicator) -> None:
        """All rows into `out` `[V, D]` on the host; all ranks call."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs of the rows that are here."""

    @abstractmethod
    def load_pieces(self, pieces: Iterable[Mapping[str, Any]]) -> None:
        """Take this rank's part of what `state_dict` gave on all ranks, however many those were."""

    @abstractmethod
    def state_nbytes(self) -> int:
        """Bytes that the optimizer keeps of the rows."""
