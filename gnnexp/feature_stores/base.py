"""The interface of feature stores: options, and what reads feature rows by vertex id on a rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem
from gnnexp.feature_stores.cache import CacheOptions
from gnnexp.feature_stores.rows import RowDtype, RowForm
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import InputRows, Rows, SparseRows, StoredRows
from gnnexp.kernels.crossing import across
from gnnexp.kernels.pool import Pool
from gnnexp.measure.ledger import Counts, Tally, added
from gnnexp.tiers.link import HostLink

Room = Callable[[], tuple[int, int] | None]
HELD = "features that the store holds"


@dataclass(frozen=True)
class Share:
    """How features are shared, for estimates of memory.

    Attributes:
        vertices: number of vertices whose rows a rank may hold.
        num_parts: number of parts of the partition, or of ranks without one.
        groups: number of groups of ranks on a machine; each group makes its own copies.
    """

    vertices: int
    num_parts: int
    groups: int = 1


class FeatureStoreOptions(ABC):
    """The options of a feature store. The launcher checks them, and each rank makes its `FeatureStore` of them.

    A subclass is a frozen dataclass. Its fields are its options, with the names of its YAML file.

    Attributes:
        version: raised when the same options give other results or counts, or a default changes (CONTRIBUTING.md).
        partitioned: whether a rank holds the rows of the vertices that it owns.
        communicates: whether a fetch is a collective call of all ranks.
        slices: whether a rank holds some columns of every row (push-pull).
        cache: hot rows that are read without a fetch, or None.
        dtype: `bfloat16` if rows are held and moved in bfloat16, None if in the run's dtype.
    """

    version: ClassVar[int] = 1
    partitioned: ClassVar[bool] = False
    communicates: ClassVar[bool] = False
    slices: ClassVar[bool] = False
    cache: CacheOptions | None = None
    dtype: RowDtype = None

    @property
    def trained_columns(self) -> int | None:
        """Number of columns if the rows are trained; None: they are features of the dataset."""
        return None

    @property
    @final
    def is_collective(self) -> bool:
        """Whether a read is a collective call of all ranks."""
        return self.communicates or (self.cache is not None and self.cache.communicates)

    @property
    @final
    def needs_partition(self) -> bool:
        """Whether rows, or the cache's contents, follow the partition."""
        return self.partitioned or (self.cache is not None and self.cache.needs_partition)

    @property
    @final
    def presampled_epochs(self) -> int:
        """Number of epochs to pre-sample for the cache."""
        return 0 if self.cache is None else self.cache.presampled_epochs

    @property
    @final
    def presamples_micro(self) -> bool:
        """Whether the batches of each rank are pre-sampled, and not the global ones."""
        return self.cache is not None and self.cache.batches == "micro"

    @final
    def row_bytes(self, facts: GraphFacts, itemsize: int) -> int:
        """Bytes of a row that is held, if values of the run's dtype have `itemsize` bytes; 0 without features."""
        return facts.row_bytes(itemsize if self.dtype is None else torch.bfloat16.itemsize)

    def check(self, setting: Setting) -> list[Problem]:
        """Conflicts with other choices of the run."""
        problems = [] if self.cache is None else self.cache.check(setting)
        if self.dtype is not None and not setting.reads_narrow_rows:
            problems.append(
                Problem(
                    "feature_store.dtype",
                    self.dtype,
                    "this paradigm does not read all rows through the feature store onto the device",
                    "set feature_store.dtype=null",
                )
            )
        return problems

    def check_data(self, setting: Setting, facts: GraphFacts) -> list[Problem]:
        """Conflicts with the features of the graph."""
        problems = []
        if self.cache is not None:
            problems += self.cache.check_data(setting, facts, self.row_bytes(facts, setting.itemsize))
        if self.dtype is not None and facts.sparse:
            problems.append(
                Problem(
                    "feature_store.dtype",
                    self.dtype,
                    "sparse features have no other form",
                    "set feature_store.dtype=null",
                )
            )
        return problems

    def needs(self, facts: GraphFacts, row_bytes: int, share: Share) -> list[Need]:
        """Memory for the rows, without the cache.

        Args:
            facts: facts of the graph.
            row_bytes: bytes of a row that is held (`row_bytes`).
            share: which rows a rank holds.
        """
        return []

    @abstractmethod
    def make(self) -> FeatureStore:
        """The feature store of a rank."""


class FeatureStore(ABC):
    """Reads feature rows by original vertex id, through a cache if there is one. Counts where each row came from.

    Attributes:
        options: the options that were chosen.
        origins: where rows may come from, see `take_counts`.
        on_device: whether kernels of the rank's GPU read all rows, so that `read` takes ids there.
        direct: whether kernels of the rank's GPU read rows in host memory.
    """

    options: FeatureStoreOptions
    origins: tuple[str, ...] = ("host",)
    on_device: bool = False
    direct: bool = False

    def __init__(self, options: FeatureStoreOptions) -> None:
        self.options = options
        self.cache = None if options.cache is None else options.cache.make()
        self.counts, self.pool = Counts(), Pool()

    @property
    @final
    def is_collective(self) -> bool:
        """Whether `read` is a collective call of all ranks."""
        return self.options.communicates or (self.cache is not None and self.cache.communicates)

    @final
    def setup(
        self,
        shard: Shard,
        dtype: torch.dtype,
        device: torch.device,
        comm: Communicator,
        *,
        crosses: bool = True,
        pool: Pool | None = None,
        link: HostLink | None = None,
    ) -> None:
        """Prepare the rows that this rank holds.

        Args:
            shard: features, and the owner of each vertex.
            dtype: data type of the rows that are read.
            device: where `read` puts rows.
            comm: communicator of the ranks that share the parts.
            crosses: whether rows that are read enter the device tier. If not, no bytes to the device are counted.
            pool: memory for the rows that are read; None: the store has its own.
            link: link over which rows enter the device tier; None: as fast as the machine.
        """
        self._link = HostLink() if link is None else link
        self._dtype, self._device, self._comm, self._crosses = dtype, device, comm, crosses
        self.form = RowForm(dtype, self.options.dtype is not None)
        self.pool = self.pool if pool is None else pool
        self.prepare(shard)
        if self.cache is not None:
            self.cache.pool = self.pool
            self.cache.setup(shard, self.form, device, comm, direct=self.direct)
            self.on_device |= self.direct and self.cache.peer_access is not None

    @final
    def read(self, ids: Tensor) -> Rows:
        """Rows of `ids` `[n]` in the same order, in the run's dtype and on its device (thread-safe unless collective).

        Sparse rows are assembled on the host, then copied to the device.
        """
        return self.form.read(self._read_held(ids))

    def _read_held(self, ids: Tensor) -> Rows:
        """Rows of `ids` on the device, in the form in which they are held."""
        rows = self.fetch(ids) if self.cache is None else self.read_cached(ids)
        return rows.on(self._device) if isinstance(rows, SparseRows) else rows

    @property
    def stored(self) -> str | None:
        """What `read_stored` leaves to the kernels of the first layer, for the record; None if it is `read`."""
        return "widened by the first layer's kernels" if self.form.narrow else None

    def read_stored(self, ids: Tensor) -> InputRows:
        """`read` for a layer that reads rows where they are stored: rows in bfloat16 are not widened."""
        rows = self._read_held(ids)
        if not self.form.narrow:
            return rows
        assert isinstance(rows, Tensor), "sparse features were refused"
        return StoredRows(rows.view(torch.bfloat16), None, self.form.dtype)

    def place(self, setting: Setting, facts: GraphFacts, room: Room) -> str:
        """Choose where rows are held, before `setup`. By default, options say it.

        Args:
            setting: the other choices of the run.
            facts: facts of the graph.
            room: gives two numbers, the same on all ranks: estimated bytes of everything else on the device, and
                bytes that a rank may use there. None if a rank is on the CPU. All ranks call it, or none.

        Returns:
            The choice with its reason, for the record.
        """
        return "device" if self.on_device else "host"

    @property
    @final
    def chosen(self) -> dict[str, str]:
        """Choices that `setup` made, with their reasons, for the record."""
        return {} if self.cache is None else self.cache.chosen

    @final
    def finish(self) -> None:
        """Wait until this rank reads no memory of other ranks. All ranks meet after it, and then free their memory."""
        if self.cache is not None and self.cache.peer_access is not None:
            self.cache.peer_access.finish()

    @abstractmethod
    def prepare(self, shard: Shard) -> None:
        """Map, copy or slice the rows that this rank holds."""

    def read_cached(self, ids: Tensor) -> Rows:
        """`fetch` of the rows that the cache does not hold, and the other rows from the cache."""
        assert self.cache is not None
        return self.cache.read(ids, self.fetch)

    @abstractmethod
    def fetch(self, ids: Tensor) -> Rows:
        """`read` without a cache, in the form in which rows are held."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that this rank holds, without the cache."""

    @property
    @final
    def tallies(self) -> Sequence[Tally[str, Any]]:
        """The counters that `take_counts` reads. Code that prepares batches ahead counts apart in them."""
        return (self.counts,) if self.cache is None else (self.counts, *self.cache.tallies)

    @final
    def take_counts(self) -> dict[str, int]:
        """Rows by origin (`features_loaded_{local,peer,host,disk,remote}`) and bytes to the device since the last."""
        counts = self.counts.take()
        own = {f"features_loaded_{origin}": 0 for origin in self.origins} | {"tier/h2d_bytes": 0} | counts
        return own if self.cache is None else added(own, self.cache.take_counts())

    @final
    def count(self, origin: str, num_rows: int, num_bytes: int) -> None:
        """Count rows that came from `origin`, and their bytes to the device tier if rows enter it."""
        crossing = num_bytes * self._crosses
        self.counts.add({f"features_loaded_{origin}": num_rows, "tier/h2d_bytes": crossing})
        self._link.crossed("h2d", crossing)

    @final
    def deliver(self, rows: Rows) -> Rows:
        """Rows in the form in which they are held. Dense rows are copied to the device of the run, to a GPU through
        pinned memory.
        """
        rows = rows if rows.dtype == torch.int16 and self.form.narrow else self.form.held(rows)
        return rows if isinstance(rows, SparseRows) else across(rows, self._device)
