"""Every rank reads all features: mapped from the artifact (one copy per machine), or copied into RAM or to its GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.packages import missing_package
from gnnexp.components.setting import Setting
from gnnexp.errors import ConfigError, DataError, Problem, Refusal
from gnnexp.feature_stores.base import HELD, FeatureStore, FeatureStoreOptions, Room, Share
from gnnexp.feature_stores.cache import CacheOptions
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
_ON_CPU = Refusal("the run is on the CPU")


@dataclass(frozen=True)
class LocalOptions(FeatureStoreOptions):
    """Every rank reads rows of the whole feature matrix.

    Attributes:
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

    memory: Literal["mapped", "ram"] = "mapped"
    tier: Tier = "host"
    cache: CacheOptions | None = None
    dtype: RowDtype = None

    @property
    def is_direct(self) -> bool:
        """Whether kernels of the rank's GPU read rows in host memory."""
        return self.tier in ("uva", "mapped")

    def check(self, setting: Setting) -> list[Problem]:
        """Conflicts of rows that a GPU reads with other choices."""
        problems = super().check(setting)
        if self.is_direct and not has_triton():
            problems.append(missing_package("feature_store.tier", self.tier, "triton", "feature_store.tier=host"))
        elif self.tier not in ("host", "auto") and (refusal := self.refuses_gpu(setting)):
            problems.append(Problem("feature_store.tier", self.tier, refusal.reason, "set feature_store.tier=host"))
        return [*problems, *self._file_problems(setting)] if self.tier == "mapped" else problems

    def _file_problems(self, setting: Setting) -> list[Problem]:
        """Options that ask for other rows than those of the file, which kernels read as they are."""
        asked: list[tuple[str, object, object]] = [
            ("feature_store.memory", self.memory, "mapped"),
            ("feature_store.dtype", self.dtype, None),
            ("train.dtype", setting.train.dtype, "float32"),
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

    def refuses_gpu(self, setting: Setting) -> Refusal | None:
        """Why features are read on the host; None if they may be on the GPU."""
        if setting.hardware.device == "cpu":
            return _ON_CPU
        if self.cache is not None and not self.is_direct:
            return Refusal("a cache has nothing to hold, since all rows are on the GPU")
        if not setting.reads_rows_on_gpu:
            return Refusal("this paradigm reads rows on the host")
        if self.is_direct and not (is_interpreted() or has_nvidia_gpu_build()):
            return Refusal("Triton needs an NVIDIA GPU and a build of torch for it")
        return None

    def check_data(self, setting: Setting, facts: GraphFacts) -> list[Problem]:
        """Sparse features are assembled on the host."""
        problems = super().check_data(setting, facts)
        if self.tier not in ("host", "auto") and facts.sparse:
            problems.append(Problem("feature_store.tier", self.tier, _SPARSE, "set feature_store.tier=host"))
        return problems

    def needs(self, facts: GraphFacts, row_bytes: int, share: Share) -> list[Need]:
        """A rank's copy with `memory=ram`; the pinned copies, or the file's pages; all rows with `tier=device`."""
        whole = facts.num_nodes * row_bytes
        copies = share.groups if self.tier == "uva" else int(self.is_direct)
        own = share.vertices * row_bytes if self.memory == "ram" and not self.is_direct else 0
        return [
            Need(HELD, "host", own),
            Need("pinned features that a machine's GPUs read", "host", whole * copies, per_rank=False),
            Need("features that the store holds on the GPU", "device", whole if self.tier == "device" else 0),
        ]

    def make(self) -> LocalStore:
        """The feature store of a rank."""
        return LocalStore(self)


class LocalStore(FeatureStore):
    """Reads rows of the whole feature matrix: mapped, copied, pinned, or on the rank's GPU."""

    options: LocalOptions

    def __init__(self, options: LocalOptions) -> None:
        super().__init__(options)
        self._settle(options.tier)

    def _settle(self, tier: Tier) -> None:
        self.tier = tier
        self.origins, self.direct = ("local" if tier == "device" else "host",), tier in ("uva", "mapped")
        self.on_device = tier == "device" or (self.direct and self.cache is None)

    def place(self, setting: Setting, facts: GraphFacts, room: Room) -> str:
        """Settle `tier=auto`."""
        if self.tier != "auto":
            return self.tier
        refusal = self.options.refuses_gpu(setting) or (Refusal(_SPARSE) if facts.sparse else None)
        free = None if refusal else room()
        if free is None:
            self._settle("host")
            return f"host: {refusal or _ON_CPU}"
        needed = facts.num_nodes * self.options.row_bytes(facts, setting.itemsize)
        others, available = free
        fits = needed + others <= available
        self._settle("device" if fits else "host")
        return (
            f"{self.tier}: {needed} bytes of features and {others} other bytes {'fit' if fits else 'do not fit'} into "
            f"{available} bytes"
        )

    def prepare(self, shard: Shard) -> None:
        """Map or copy the features.

        Raises:
            ConfigError: a GPU should read rows, and the run is on the CPU.
            RunError: the host has too little memory for the pinned copy, or CUDA refuses the copy or the file.
        """
        features = features_of(shard)
        self._features = features
        if self.options.memory == "ram" and not self.direct:
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
        rows = rows if self.options.memory == "ram" and self.form.narrow else self.form.held(rows)
        self.count("host", rows.shape[0], rows.nbytes)
        return self.deliver(rows)

    @property
    def stored(self) -> str | None:
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

    def read_cached(self, ids: Tensor) -> Rows:
        """Rows from the cache, and others from host memory: by one kernel if a GPU reads them there."""
        assert self.cache is not None
        if not self.direct:
            return super().read_cached(ids)
        assert isinstance(self._features, Tensor)
        past = self.cache.read_past(ids, self._features)
        if past is None:
            return super().read_cached(ids)
        rows, missed = past
        row = rows.shape[1] * rows.element_size()
        self.count("host", missed, missed * row + (0 if ids.is_cuda else ids.nbytes))
        return rows

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
