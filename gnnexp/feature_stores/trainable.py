"""The interface of feature stores whose rows are trained."""

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
    """Rows are trainable and change after every step, so they must not be prefetched or cached.

    Attributes:
        dim: number of columns.
        optimizer: steps the rows; `begin` sets it.
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
        """Initialise the rows, and make their optimizer; called after `setup`.

        The initial values depend on `seed` only, and not on the rank that holds a row.
        """

    @abstractmethod
    def collect(self) -> None:
        """Send the gradients of all rows read in this step to the ranks that hold them. All ranks call this."""

    @abstractmethod
    def square_sum(self) -> Tensor:
        """Sum of squares of the gradients that this rank received in `collect`."""

    @abstractmethod
    def multiply(self, factor: Tensor) -> None:
        """Multiply the gradients that this rank received by a scalar, in place."""

    @abstractmethod
    def update(self) -> None:
        """Step the rows, then drop their gradients."""

    @abstractmethod
    def forget(self) -> None:
        """Drop the pending reads: their rows get no gradient."""

    @abstractmethod
    def gather(self, out: Tensor, comm: Communicator) -> None:
        """Copy all rows into `out` `[V, D]` on the host. All ranks call this."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The state of this rank's rows that a resumed run needs."""

    @abstractmethod
    def load_pieces(self, pieces: Iterable[Mapping[str, Any]]) -> None:
        """Load this rank's rows from the `state_dict` of all ranks. The number of ranks may have changed."""

    @abstractmethod
    def state_nbytes(self) -> int:
        """Bytes of the optimizer's state for the rows that this rank holds."""
