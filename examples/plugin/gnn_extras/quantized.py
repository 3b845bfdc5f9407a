"""Features in one byte per value: each column is cut into 255 equal steps between its minimum and its maximum."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem
from gnnexp.feature_stores.base import HELD, FeatureStore, FeatureStoreOptions, Share
from gnnexp.feature_stores.local import features_of
from gnnexp.graph.shard import Shard

_STEPS, _CHUNK = 255, 1 << 16


@dataclass(frozen=True)
class QuantizedOptions(FeatureStoreOptions):
    """Every rank holds all rows, in a quarter of the memory of float32. A value is off by at most half a step."""

    def check_data(self, setting: Setting, facts: GraphFacts) -> list[Problem]:
        """Sparse features are refused: their zeros would take a byte each."""
        problem = Problem("feature_store", "quantized", "takes dense features only", "set feature_store=local")
        return [*super().check_data(setting, facts), *([problem] if facts.sparse else [])]

    def needs(self, facts: GraphFacts, row_bytes: int, share: Share) -> list[Need]:
        """One byte per value."""
        return [Need(HELD, "host", share.vertices * facts.row_bytes(1))]

    def make(self) -> QuantizedStore:
        """The feature store of a rank."""
        return QuantizedStore(self)


class QuantizedStore(FeatureStore):
    """Numbers of steps `[V, D]` in one byte each. Rows become floats when they are read."""

    def prepare(self, shard: Shard) -> None:
        """Quantize all rows, in chunks: a copy of all floats would need what the store saves."""
        features = features_of(shard)
        assert isinstance(features, Tensor), "sparse features were refused"
        self._low = features.min(0).values
        self._step = (features.max(0).values - self._low) / _STEPS
        steps = torch.where(self._step > 0, self._step, 1)  # a column of equal values has no steps
        self._codes = torch.empty(features.shape, dtype=torch.uint8)
        for codes, rows in zip(self._codes.split(_CHUNK), features.split(_CHUNK), strict=True):
            codes.copy_(((rows - self._low) / steps).round_())

    def fetch(self, ids: Tensor) -> Tensor:
        """Rows `[n, D]` of `ids`, as floats."""
        rows = (self._low + self._codes[ids.long()] * self._step).to(self._dtype)
        self.count("host", rows.shape[0], rows.nbytes)
        return self.deliver(rows)  # type: ignore[return-value]

    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return self._codes.nbytes
