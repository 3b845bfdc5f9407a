"""Every rank holds some dimensions of all rows (P3, section 3.1). Push-pull parallelism reads this store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.options import wrong_options
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem
from gnnexp.feature_stores.base import HELD, FeatureStore, FeatureStoreOptions, Share
from gnnexp.feature_stores.local import features_of
from gnnexp.feature_stores.rows import RowDtype, take_rows
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows, SparseRows


@dataclass(frozen=True)
class SlicedOptions(FeatureStoreOptions):
    """Rank r of P holds dimensions `r * D / P : (r + 1) * D / P` of every vertex. There is no cache.

    Attributes:
        tier: where a slice is held: `host`, or `device` if the whole slice fits there. With `device`, no rows are
            copied from the host. P3* holds the slices of Orkut so (GSplit, section 6.1).
        dtype: `bfloat16`: rows are rounded, then held and moved with 2 bytes per value. None: the run's dtype.
    """

    slices = True

    tier: Literal["host", "device"] = "host"
    dtype: RowDtype = None

    def check(self, setting: Setting) -> list[Problem]:
        """The tier must be `host` or `device`."""
        tier = (self.tier in ("host", "device"), "tier", self.tier, "must be host or device", "host")
        return wrong_options("feature_store", tier) or super().check(setting)

    def check_data(self, setting: Setting, facts: GraphFacts) -> list[Problem]:
        """A slice in the device tier must fit into `hardware.device_memory`, if that is set."""
        budget, problems = setting.hardware.device_memory, super().check_data(setting, facts)
        if self.tier == "host" or budget is None or not facts.has_features:
            return problems
        row_bytes = self.row_bytes(facts, setting.itemsize)
        needed = facts.num_nodes * row_bytes // setting.num_ranks
        return (
            problems
            if needed <= budget
            else [
                *problems,
                Problem(
                    "feature_store.tier",
                    self.tier,
                    f"takes {needed} bytes, hardware.device_memory is {budget} bytes",
                    "feature_store.tier=host, or more ranks",
                ),
            ]
        )

    def needs(self, facts: GraphFacts, row_bytes: int, share: Share) -> list[Need]:
        """One rank's dimensions of all rows."""
        return [Need(HELD, "host", share.vertices * row_bytes // share.num_parts)]

    def make(self) -> SlicedStore:
        """The feature store of a rank."""
        return SlicedStore(self)


class SlicedStore(FeatureStore):
    """A rank's dimensions of all rows.

    Attributes:
        dims: the dimensions that this rank holds; `prepare` sets them.
    """

    options: SlicedOptions
    dims: slice

    def __init__(self, options: SlicedOptions) -> None:
        super().__init__(options)
        self.origins = ("host",) if options.tier == "host" else ("local",)

    def prepare(self, shard: Shard) -> None:
        """Copy this rank's dimensions."""
        features = features_of(shard)
        bounds = slice_bounds(features.shape[1], self._comm.size)
        self.dims = slice(bounds[self._comm.rank], bounds[self._comm.rank + 1])
        if isinstance(features, SparseRows):
            self._rows: Rows = features.columns_between(self.dims.start, self.dims.stop).to(self._dtype)
        else:
            held = self.form.held(features[:, self.dims])
            assert isinstance(held, Tensor)
            same = features.dtype == self._dtype and not self.form.narrow
            self._rows = held.clone(memory_format=torch.contiguous_format) if same else held.contiguous()
            if self.options.tier == "device":
                self._rows = self._rows.to(self._device)

    def fetch(self, ids: Tensor) -> Rows:
        """`[n, len(dims)]`: this rank's dimensions of `ids`, from the tier that holds them."""
        if self.options.tier == "device":
            self.count("local", ids.shape[0], 0)
            return take_rows(self._rows, ids, self.pool)
        rows = take_rows(self._rows, ids, self.pool)
        self.count("host", rows.shape[0], rows.nbytes)
        return self.deliver(rows)

    def nbytes(self) -> int:
        """Bytes of the slice."""
        return self._rows.nbytes


def slice_bounds(num_dims: int, num_slices: int) -> list[int]:
    """`[num_slices + 1]` bounds of slices. Widths differ by at most one; some slices may be empty."""
    return [num_dims * number // num_slices for number in range(num_slices + 1)]
