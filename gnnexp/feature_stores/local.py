"""All features within reach of every rank of a machine: mapped from the artifact (one copy for all) or in RAM."""

from __future__ import annotations

import threading
from typing import Literal

import torch
from torch import Tensor

from gnnexp.errors import DataError, Problem
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.gather import gather_rows


class LocalStore(FeatureStore):
    """Reads rows of the whole feature matrix.

    Args:
        memory: `mapped` leaves the file in the page cache, shared by the machine's ranks; `ram` gives each rank its
            own copy.
    """

    def __init__(self, memory: Literal["mapped", "ram"] = "mapped") -> None:
        self.memory = memory

    def setup(self, shard: Shard, dtype: torch.dtype, device: torch.device) -> None:
        """Map or copy the features."""
        features = shard.graph.features
        if features is None:
            raise DataError(
                Problem("dataset", shard.graph.name, "has no vertex features", "choose a dataset with features")
            )
        if self.memory == "ram" and isinstance(features, Tensor):
            features = features.clone()
        self._features: Rows = features
        self._dtype, self._device = dtype, device
        self._pinned = device.type == "cuda"
        self._lock = threading.Lock()
        self._rows_read = 0

    def read(self, ids: Tensor) -> Rows:
        """Rows `ids`; on CUDA through pinned memory."""
        with self._lock:
            self._rows_read += int(ids.numel())
        if isinstance(self._features, SparseRows):
            return self._features.rows(ids).to(self._dtype)
        rows = gather_rows(self._features, ids).to(self._dtype)
        if self._pinned:
            return rows.pin_memory().to(self._device, non_blocking=True)
        return rows

    def take_counts(self) -> dict[str, int]:
        """Every row comes from the host tier."""
        with self._lock:
            count, self._rows_read = self._rows_read, 0
        return {"features_loaded_host": count}

    def nbytes(self) -> int:
        """Bytes of the feature matrix."""
        if isinstance(self._features, SparseRows):
            return self._features.nbytes()
        return self._features.numel() * self._features.element_size()
