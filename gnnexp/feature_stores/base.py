"""Where features come from."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows


class FeatureStore(ABC):
    """Reads feature rows by original vertex id, and counts where each row came from."""

    @abstractmethod
    def setup(self, shard: Shard, dtype: torch.dtype, device: torch.device) -> None:
        """Make this rank's share ready."""

    @abstractmethod
    def read(self, ids: Tensor) -> Rows:
        """Rows `ids` `[n]`, in that order, in the run's dtype, on its device (thread-safe)."""

    @abstractmethod
    def take_counts(self) -> dict[str, int]:
        """Rows read since the last call, by origin: `features_loaded_{local,peer,host,disk,remote}`."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that this rank holds."""

