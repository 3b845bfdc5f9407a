"""Some dimensions of all rows on every rank (P3, section 3.1): what push-pull parallelism reads."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.feature_stores.local import features_of
from gnnexp.feature_stores.rows import rows_nbytes, take_rows
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows, SparseRows


class SlicedStore(FeatureStore):
    """Rank r of P holds dimensions `r * D / P : (r + 1) * D / P` of every vertex; there is no part of it to cache.

    Args:
        tier: `host`, or `device` where the whole slice fits there, as P3* holds Orkut's (GSplit, section 6.1): nothing
            is brought from the host then.
    """

    slices = True

    def __init__(self, tier: Literal["host", "device"] = "host") -> None:
        super().__init__(None)
        self.tier = tier
        self.origins = ("host",) if tier == "host" else ("local",)

    def check(self, experiment: Experiment) -> list[Problem]:
        """The tier must be one of both."""
        return [] if self.tier in ("host", "device") else [
            Problem("feature_store.tier", self.tier, "must be host or device", "feature_store.tier=host")]

    def check_data(self, experiment: Experiment, facts: GraphFacts) -> list[Problem]:
        """A slice must fit into `hardware.device_memory`, where that says how much there is."""
        budget = experiment.hardware.device_memory
        if self.tier == "host" or budget is None or not facts.has_features:
            return []
        ranks = experiment.num_ranks
        itemsize = torch.empty(0, dtype=getattr(torch, experiment.train.dtype)).element_size()
        needed = facts.num_nodes * facts.row_bytes(itemsize) // ranks
        return [] if needed <= budget else [
            Problem("feature_store.tier", self.tier, f"takes {needed} bytes, hardware.device_memory is {budget} bytes",
                    "feature_store.tier=host, or more ranks")]

    def prepare(self, shard: Shard) -> None:
        """Copy this rank's dimensions."""
        features = features_of(shard)
        bounds = slice_bounds(features.shape[1], self._comm.size)
        self.dims = slice(bounds[self._comm.rank], bounds[self._comm.rank + 1])
        if isinstance(features, SparseRows):
            self._rows: Rows = features.columns_between(self.dims.start, self.dims.stop).to(self._dtype)
        else:
            self._rows = features[:, self.dims].to(self._dtype, copy=True).contiguous()
            if self.tier == "device":
                self._rows = self._rows.to(self._device)

    def fetch(self, ids: Tensor) -> Rows:
        """`[n, len(dims)]` from where they are."""
        if self.tier == "device":
            self.count("local", ids.shape[0], 0)
            if isinstance(self._rows, Tensor) and self._rows.is_cuda:
                return self._rows.index_select(0, ids.to(self._device))
            return take_rows(self._rows, ids, self.pool)
        rows = take_rows(self._rows, ids, self.pool)
        self.count("host", rows.shape[0], rows_nbytes(rows))
        return self.deliver(rows)

    def held_bytes(self, all_rows: int, num_parts: int) -> int:
        """Its dimensions of all rows."""
        return all_rows // num_parts

    def nbytes(self) -> int:
        """Bytes of the slice."""
        return rows_nbytes(self._rows)


def slice_bounds(num_dims: int, num_slices: int) -> list[int]:
    """`[num_slices + 1]` bounds of slices whose widths differ by at most one; some may be empty."""
    return [num_dims * number // num_slices for number in range(num_slices + 1)]
