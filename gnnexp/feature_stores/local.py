"""Every rank reads all features: mapped from the artifact (one copy per machine), or copied into RAM or to its GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.packages import missing_package
from gnnexp.experiment.plan import GraphFacts
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.feature_stores.cache import FeatureCache
from gnnexp.feature_stores.rows import RowDtype, take_rows
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import InputRows, Rows, StoredRows
from gnnexp.kernels.crossing import across
from gnnexp.kernels.rows.gather import gather_rows
from gnnexp.ops.backends import has_nvidia_gpu_build, has_triton, is_interpreted
from gnnexp.tiers.pinned import pinned_array, registered_file

Tier = Literal["host", "device", "uva", "mapped", "auto"]
_UVA = "set feature_store.tier=uva"
_SPARSE = "sparse features are assembled on the host"
_ON_CPU = "the run is on the CPU"


class LocalStore(FeatureStore):
    """Reads rows of the whole feature matrix.

    Args:
        memory: `mapped` leaves the file in the page cache, shared by the machine's ranks; `ram` gives each rank its
            own copy.
        tier: where rows are read.
            `host`: the host gathers them.
            `device`: each rank copies all features to its GPU before the first epoch. Only ids that are on the host
            cross for a batch.
            `auto`: `device` if all features fit together with everything else that the preflight counts, else `host`.
            `uva`: each machine has one pinned copy of all features. Kernels of its GPUs read rows there, also the rows
            that a cache misses.
            `mapped`: the same without a copy: kernels read the mapped file, whose pages stay in memory. It has
            float32.
        cache: rows in the device tier, or None.
        dtype: `bfloat16`: rows are rounded, then moved with 2 bytes per value. With `mapped`, the file stays as it is.
            None: the run's dtype.
    """

    def __init__(
        self,
        memory: Literal["mapped", "ram"] = "mapped",
        tier: Tier = "host",
        cache: FeatureCache | None = None,
        dtype: RowDtype = None,
    ) -> None:
        super().__init__(cache, dtype)
        self.memory = memory
        self._take(tier)

    def _take(self, tier: Tier) -> None:
        self.tier = tier
        self.origins, self.direct = ("local" if tier == "device" else "host",), tier in ("uva", "mapped")
        self.on_device = tier == "device" or (self.direct and self.cache is None)

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts of rows that a GPU reads with other choices."""
        problems = super().check(experiment)
        if self.direct and not has_triton():
            problems.append(missing_package("feature_store.tier", self.tier, "triton", "feature_store.tier=host"))
        elif self.tier not in ("host", "auto") and (reason := self._stays_on_host(experiment)):
            problems.append(Problem("feature_store.tier", self.tier, reason, "set feature_store.tier=host"))
        return [*problems, *self._differs_from_file(experiment)] if self.tier == "mapped" else problems

    def _differs_from_file(self, experiment: Experiment) -> list[Problem]:
        """Options that ask for other rows than those of the file, which kernels read as they are."""
        asked: list[tuple[str, object, object]] = [
            ("feature_store.memory", self.memory, "mapped"),
            ("feature_store.dtype", self.dtype, None),
            ("train.dtype", experiment.train.dtype, "float32"),
        ]
        return [
            Problem(
                key,
                value,
                "with feature_store.tier=mapped, kernels read the file of the features as it is: mapped, in float32",
                f"{_UVA}, or {key}={'null' if good is None else good}",
            )
            for key, value, good in asked
            if value != good
        ]

    def _stays_on_host(self, experiment: Experiment) -> str:
        """Why features are read on the host; empty if they may be on the GPU."""
        if experiment.hardware.device == "cpu":
            return _ON_CPU
        if self.cache is not None and not self.direct:
            return "a cache has nothing to hold, since all rows are on the GPU"
        if not experiment.paradigm.reads_rows_on_gpu:
            return "this paradigm reads rows on the host"
        if self.direct and not (is_interpreted() or has_nvidia_gpu_build()):
            return "Triton needs an NVIDIA GPU and a build of torch for it"
        return ""

    def check_data(self, experiment: Experiment, facts: GraphFacts) -> list[Problem]:
        """Sparse features are assembled on the host."""
        problems = super().check_data(experiment, facts)
        if self.tier not in ("host", "auto") and facts.sparse:
            problems.append(Problem("feature_store.tier", self.tier, _SPARSE, "set feature_store.tier=host"))
        return problems

    def place(self, experiment: Experiment, facts: GraphFacts, room: Callable[[], tuple[int, int] | None]) -> str:
        """Settle `tier=auto`."""
        if self.tier != "auto":
            return self.tier
        reason = self._stays_on_host(experiment) or (_SPARSE if facts.sparse else "")
        free = None if reason else room()
        fits = False
        if free is not None:
            needed = facts.num_nodes * self.row_bytes(facts, getattr(torch, experiment.train.dtype).itemsize)
            others, available = free
            fits = needed + others <= available
            reason = (
                f"{needed} bytes of features and {others} other bytes {'fit' if fits else 'do not fit'} into "
                f"{available} bytes"
            )
        self._take("device" if fits else "host")
        return f"{self.tier}: {reason or _ON_CPU}"

    def prepare(self, shard: Shard) -> None:
        """Map or copy the features.

        Raises:
            ConfigError: a GPU should read rows, and the run is on the CPU.
            RunError: the host has too little memory for the pinned copy, or CUDA refuses the copy or the file.
        """
        features = features_of(shard)
        self._features = features
        if self.memory == "ram" and not self.direct:
            self._features = self.form.held(features) if self.form.narrow else features.clone()
        if self.tier not in ("host", "auto") and self._device.type == "cpu":
            raise ConfigError(
                Problem("feature_store.tier", self.tier, "no CUDA device is visible", "set feature_store.tier=host")
            )
        if self.tier == "mapped":
            assert isinstance(features, Tensor) and features.dtype == self._dtype, "other features were refused"
            self._features = registered_file(features, self._comm, self._device, _UVA)
        elif self.direct:
            assert isinstance(features, Tensor), "sparse features were refused"
            shape, kind = (features.shape[0], features.shape[1]), self.form.held(features[:0])
            self._features = pinned_array(shape, kind.dtype, self._fill(features), self._comm, self._device)
        elif self.tier == "device":
            assert isinstance(features, Tensor), "sparse features were refused"
            held = self.form.held(features)
            assert isinstance(held, Tensor)
            self._features = held.to(self._device)

    def fetch(self, ids: Tensor) -> Rows:
        """Rows `ids`, from the host tier or from the GPU."""
        if self.tier == "device":
            assert isinstance(self._features, Tensor)
            self._count_local(ids)
            return gather_rows(self._features, ids)
        if self.direct:
            return self._fetch_directly(ids)
        rows = take_rows(self._features, ids, self.pool)
        rows = rows if self.memory == "ram" and self.form.narrow else self.form.held(rows)
        self.count("host", rows.shape[0], rows.nbytes)
        return self.deliver(rows)

    @property
    def stored(self) -> str:
        """With `tier=device`, a matrix of a batch's rows is never written."""
        return "read where they are stored by the first layer's kernels" if self.tier == "device" else super().stored

    def read_stored(self, ids: Tensor) -> InputRows:
        """The whole matrix with the ids, if it is on the GPU."""
        if self.tier != "device":
            return super().read_stored(ids)
        assert isinstance(self._features, Tensor)
        self._count_local(ids)
        values = self._features.view(torch.bfloat16) if self.form.narrow else self._features
        return StoredRows(values, across(ids, values.device), self.form.dtype)

    def _count_local(self, ids: Tensor) -> None:
        """Rows that the GPU reads from its own memory, wherever it reads them. Only ids of the host cross."""
        self.count("local", ids.numel(), 0 if ids.is_cuda else ids.nbytes)

    def _fill(self, features: Tensor) -> Callable[[Tensor], None]:
        def fill(rows: Tensor) -> None:
            (rows.view(torch.bfloat16) if self.form.narrow else rows).copy_(features)

        return fill

    def _fetch_directly(self, ids: Tensor) -> Tensor:
        """Rows `ids`, read by a kernel over the link. Nothing else crosses, except ids that are on the host."""
        from gnnexp.kernels.cuda.fetch import fetch_rows

        assert isinstance(self._features, Tensor)
        out = self._features.new_empty((ids.numel(), self._features.shape[1]), device=self._device)
        self.count("host", ids.numel(), out.nbytes + (0 if ids.is_cuda else ids.nbytes))
        fetch_rows(self._features, ids, out)
        return out

    def read_cached(self, ids: Tensor, cache: FeatureCache) -> Rows:
        """Rows from the cache, and others from host memory: by one kernel if a GPU reads them there."""
        found = None
        if self.direct:
            assert isinstance(self._features, Tensor)
            found = cache.read_past(ids, self._features)
        if found is None:
            return super().read_cached(ids, cache)
        rows, missed = found
        row = rows.shape[1] * rows.element_size()
        self.count("host", missed, missed * row + (0 if ids.is_cuda else ids.nbytes))
        return rows

    def shared_bytes(self, all_rows: int, groups: int) -> int:
        """Bytes of the pinned copies, or of the file's pages, which groups share."""
        return all_rows * (groups if self.tier == "uva" else self.direct)

    def held_bytes(self, all_rows: int, num_parts: int) -> int:
        """Bytes of the copy with `memory=ram`, 0 if the file is mapped."""
        return all_rows if self.memory == "ram" and not self.direct else 0

    def device_bytes(self, all_rows: int) -> int:
        """Bytes of all rows with `tier=device`."""
        return all_rows if self.tier == "device" else 0

    def nbytes(self) -> int:
        """Bytes of the feature matrix."""
        return self._features.nbytes


def features_of(shard: Shard) -> Rows:
    """The features of the graph.

    Raises:
        DataError: the graph has no vertex features.
    """
    if shard.graph.features is None:
        raise DataError(
            Problem("dataset", shard.graph.name, "has no vertex features", "choose a dataset with features")
        )
    return shard.graph.features
