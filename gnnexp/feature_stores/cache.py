"""Caches of hot feature rows in the device tier: how their contents are chosen, and how large they may be."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final, get_args

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.components.facts import GraphFacts
from gnnexp.components.options import wrong_options
from gnnexp.components.setting import Setting
from gnnexp.errors import ConfigError, Problem, RunError
from gnnexp.feature_stores.rows import RowForm, take_rows
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows, SparseRows, row_nbytes
from gnnexp.kernels.pool import Pool
from gnnexp.measure.available import available_memory
from gnnexp.measure.ledger import Counts, Tally

if TYPE_CHECKING:
    from gnnexp.feature_stores.peer_access import PeerAccess

# What makes a row hot: many vertices may sample it (degree), pre-sampled epochs read it often (frequency), or its id is
# low (id). GNNLab has the second criterion, which GSplit uses for all systems. The artifact of GSplit has the third.
Policy = Literal["degree", "frequency", "id"]
# Which batches are pre-sampled: the global ones, or those that ranks sample.
Batches = Literal["global", "micro"]
Capacity = int | float | str
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"([0-9.]+)\s*([A-Za-z]+)")


class CacheOptions(ABC):
    """The options of a cache. The launcher checks them, and each rank makes its `FeatureCache` of them.

    Attributes:
        version: raised when the same options give other results or counts, or a default changes (CONTRIBUTING.md).
        capacity: per rank: rows (int), a fraction of all rows (float in [0, 1]), or bytes (`512MiB`). With 0 the cache
            holds no rows, and no read is a hit.
        policy: what makes a row hot.
        epochs: number of epochs to pre-sample for the policy `frequency`.
        batches: which batches are pre-sampled: `global` ones, in which a row that several ranks read counts once. Or
            `micro`: those of the ranks, with even shares of the targets. Then it counts for each of them.
    """

    version: ClassVar[int] = 1
    capacity: Capacity
    policy: Policy
    epochs: int
    batches: Batches = "global"

    def __post_init__(self) -> None:
        ConfigError.raise_all(self.problems())

    def problems(self) -> list[Problem]:
        """Options outside of their ranges."""
        forms, policies = "0 or more rows (10000), a fraction in [0, 1] (0.25) or bytes (512MiB)", get_args(Policy)
        return wrong_options(
            "feature_store.cache",
            (self.epochs >= 1, "epochs", self.epochs, "must be at least 1", 10),
            (_is_capacity(self.capacity), "capacity", self.capacity, forms, 0.25),
            (self.policy in policies, "policy", self.policy, f"must be one of: {', '.join(policies)}", "degree"),
            (self.batches in get_args(Batches), "batches", self.batches, "must be global or micro", "global"),
        )

    @property
    def communicates(self) -> bool:
        """Whether a read is a collective call of all ranks."""
        return False

    @property
    def needs_partition(self) -> bool:
        """Whether the contents follow the partition."""
        return False

    @property
    @final
    def presampled_epochs(self) -> int:
        """Number of epochs to pre-sample: 0 unless the contents follow the frequencies of such epochs."""
        return self.epochs if self.policy == "frequency" else 0

    def check(self, setting: Setting) -> list[Problem]:
        """Conflicts with other choices of the run."""
        if self.batches == "global" or setting.even_shares:
            return []
        return [
            Problem(
                "feature_store.cache.batches",
                self.batches,
                "ranks sample even shares of a batch only with paradigm=data_parallel and paradigm.assign=even",
                "set feature_store.cache.batches=global",
            )
        ]

    def check_data(self, setting: Setting, facts: GraphFacts, row_bytes: int) -> list[Problem]:
        """The cache must fit into `hardware.device_memory`, if that is set. `row_bytes` are those of a held row."""
        budget = setting.hardware.device_memory
        if budget is None or not facts.has_features:
            return []
        needed = row_bytes * self.held_rows(setting, facts, row_bytes)
        if needed <= budget:
            return []
        return [
            Problem(
                "feature_store.cache.capacity",
                self.capacity,
                f"takes {needed} bytes, hardware.device_memory is {budget} bytes",
                "make the cache smaller, or state more memory",
            )
        ]

    def most_rows(self, setting: Setting, facts: GraphFacts) -> int:
        """Upper bound of the rows that a rank holds, for any capacity."""
        return facts.num_nodes

    @final
    def held_rows(self, setting: Setting, facts: GraphFacts, row_bytes: int) -> int:
        """Number of rows that a rank holds."""
        return min(self.rows(facts.num_nodes, row_bytes), self.most_rows(setting, facts))

    @final
    def rows(self, num_nodes: int, row_bytes: int) -> int:
        """The capacity in rows, for a graph of `num_nodes` vertices and `row_bytes` bytes per row."""
        if isinstance(self.capacity, str):
            wanted = parse_size(self.capacity) // row_bytes
        else:
            wanted = int(self.capacity * num_nodes) if isinstance(self.capacity, float) else self.capacity
        return min(wanted, num_nodes)

    @abstractmethod
    def make(self) -> FeatureCache:
        """The cache of a rank."""


class FeatureCache(ABC):
    """Holds some rows in the device tier. The store fetches only the rows that the cache does not hold.

    Attributes:
        options: the options that were chosen.
        origins: where rows come from, see `take_counts`.
        communicates: whether a read is a collective call of all ranks.
        peer_access: kernels that look ids up, read peers' rows, and count what they read; or None.
    """

    options: CacheOptions
    origins: tuple[str, ...] = ("local",)
    communicates: bool
    peer_access: PeerAccess | None = None

    def __init__(self, options: CacheOptions) -> None:
        self.options, self.communicates = options, options.communicates
        self.counts, self.pool = Counts(), Pool()

    def setup(
        self, shard: Shard, form: RowForm, device: torch.device, comm: Communicator, *, direct: bool = False
    ) -> None:
        """Choose the rows that this rank holds, and copy them. With `direct`, `read_past` needs a table on the GPU.

        Raises:
            RunError: there is not enough memory.
        """
        assert shard.graph.features is not None
        self._comm, self._device = comm, device
        row_bytes = row_nbytes(shard.graph.features, form.itemsize)
        chosen = self.choose(shard, self.options.rows(shard.graph.num_nodes, row_bytes))
        needed = chosen.numel() * row_bytes
        available = available_bytes(device)
        if needed > available:
            raise RunError(
                f"the feature cache cannot be allocated: it needs {needed} bytes, {available} bytes are "
                f"available on {device}; make feature_store.cache.capacity={self.options.capacity} smaller"
            )
        self._row_of = torch.full((shard.graph.num_nodes,), -1, dtype=torch.int32)
        self._row_of[chosen] = torch.arange(chosen.numel(), dtype=torch.int32)
        held = form.held(take_rows(shard.graph.features, chosen))
        self._held: Rows = held if isinstance(held, SparseRows) else held.to(device)
        if direct:
            self._table = self.table().to(device)

    def table(self) -> Tensor:
        """`[V]` int32: row of each vertex among the cached rows, -1 if it is not there; see `cuda.fetch.fetch_rows`."""
        return self._row_of

    def read_past(self, ids: Tensor, rows: Tensor) -> tuple[Tensor, int] | None:
        """Rows of `ids` on the GPU, and how many of them are not in the cache: a kernel reads these from `rows`.

        Args:
            ids: `[n]` on the host; with `peer_access` also on the GPU.
            rows: `[V, D]` rows in pinned host memory.

        Returns:
            None if the cache has no such kernel. Then `read` is called. The number is 0 if the cache counts them.
        """
        return None

    @final
    def past(self, ids: Tensor, rows: Tensor) -> Tensor:
        """Rows of `ids` from the cache or from `rows` in host memory, by one kernel."""
        from gnnexp.kernels.cuda.fetch import fetch_rows

        assert isinstance(self._held, Tensor), "sparse features were refused"
        out = rows.new_empty((ids.numel(), rows.shape[1]), device=self._device)
        fetch_rows(rows, ids, out, self._table, self._held)
        return out

    @abstractmethod
    def choose(self, shard: Shard, num_rows: int) -> Tensor:
        """Ids of the rows that this rank holds. The same configuration and data always give the same ids."""

    @abstractmethod
    def read(self, ids: Tensor, fetch: Callable[[Tensor], Rows]) -> Rows:
        """Rows of `ids`. Rows that are not in the cache come from `fetch`."""

    @final
    def nbytes(self) -> int:
        """Bytes of this rank's rows."""
        return self._held.nbytes

    @property
    def chosen(self) -> dict[str, str]:
        """Choices that `setup` made, with their reasons, for the record."""
        return {}

    @property
    def tallies(self) -> Sequence[Tally[str, Any]]:
        """The counters that `take_counts` reads."""
        return (self.counts,)

    @final
    def count(self, origin: str, num_rows: int) -> None:
        """Count rows that needed no fetch."""
        self.counts.add({f"features_loaded_{origin}": num_rows})

    def take_counts(self) -> dict[str, int]:
        """Rows served since the last call: `features_loaded_local` (own hits), `features_loaded_peer`."""
        return {f"features_loaded_{origin}": 0 for origin in self.origins} | self.counts.take()

    @final
    def held_rows(self, rows: Tensor) -> Rows:
        """Cached rows at the positions `rows`."""
        return take_rows(self._held, rows, self.pool)


def hottest(shard: Shard, policy: Policy, among: Tensor | None = None) -> Tensor:
    """Vertex ids, hottest first. Equally hot vertices are in ascending order of ids.

    Args:
        shard: has the degrees and the pre-sampled frequencies.
        policy: what makes a row hot.
        among: ids of the candidates, ascending; None for all vertices.
    """
    ids = torch.arange(shard.graph.num_nodes) if among is None else among
    if policy == "id":
        return ids
    if policy == "degree":
        heat = shard.graph.out_degree
    else:
        assert shard.frequency is not None, "the launcher pre-samples for this policy"
        heat = shard.frequency
    order = np.argsort(-heat[ids].numpy(), kind="stable")
    return ids[torch.from_numpy(order)]


def available_bytes(device: torch.device) -> int:
    """Free bytes of the GPU, or of the host that emulates a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory()


def parse_size(text: str) -> int:
    """Bytes of `512MiB`.

    Raises:
        ValueError: the text is not a number with a unit.
    """
    parts = _SIZE.fullmatch(text.strip())
    if parts is None or parts[2] not in _UNITS:
        raise ValueError(f"{text!r} is not a size: write a number and one of {', '.join(_UNITS)}")
    return int(float(parts[1]) * _UNITS[parts[2]])


def _is_capacity(capacity: object) -> bool:
    if isinstance(capacity, str):
        try:
            return parse_size(capacity) >= 0
        except ValueError:
            return False
    if isinstance(capacity, bool) or not isinstance(capacity, int | float):
        return False
    return capacity >= 0 if isinstance(capacity, int) else 0 <= capacity <= 1
