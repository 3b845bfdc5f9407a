"""The interface of feature stores: they read feature rows by vertex id, and count where each row came from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts
from gnnexp.feature_stores.cache import FeatureCache
from gnnexp.feature_stores.rows import RowDtype, RowForm
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import InputRows, Rows, SparseRows, StoredRows
from gnnexp.kernels.crossing import across
from gnnexp.kernels.pool import Pool
from gnnexp.measure.ledger import Counts, Tally, added


class FeatureStore(ABC):
    """Reads feature rows by original vertex id, through a cache if there is one. Counts where each row came from.

    Attributes:
        version: raised when the same options give other results or counts, or a default changes (CONTRIBUTING.md).
        cache: hot rows that are read without a fetch, or None.
        dtype: `bfloat16` if rows are held and moved in bfloat16, None if in the run's dtype.
        partitioned: whether a rank holds the rows of the vertices that it owns.
        origins: where rows may come from, see `take_counts`.
        pool: memory for the rows that are read.
        counts: fetched rows by origin, and bytes to the device. Hits are counted by the cache.
        communicates: whether `fetch` is a collective call of all ranks.
        on_device: whether kernels of the rank's GPU read all rows, so that `read` takes ids there.
        direct: whether kernels of the rank's GPU read rows in host memory.
        slices: whether a rank holds some columns of every row (push-pull).
        trainable: whether rows are trained. Such rows change after every step, and a read is part of autograd's graph.
    """

    version: ClassVar[int] = 1
    origins: tuple[str, ...] = ("host",)
    partitioned = False
    communicates = False
    trainable = False
    slices = False
    on_device = False
    direct = False

    def __init__(self, cache: FeatureCache | None = None, dtype: RowDtype = None) -> None:
        self.cache, self.dtype = cache, dtype
        self.pool = Pool()
        self.counts = Counts()

    def draw_from(self, pool: Pool) -> None:
        """Use the rank's pool as memory for rows, also in the cache."""
        self.pool = pool
        if self.cache is not None:
            self.cache.pool = pool

    @property
    def collective(self) -> bool:
        """Whether `read` is a collective call of all ranks."""
        return self.communicates or (self.cache is not None and self.cache.communicates)

    @property
    def needs_partition(self) -> bool:
        """Whether rows, or the cache's contents, follow the partition."""
        return self.partitioned or (self.cache is not None and self.cache.needs_partition)

    @property
    def needs_presampling(self) -> bool:
        """Whether the cache's contents follow pre-sampled frequencies."""
        return self.cache is not None and self.cache.needs_presampling

    @property
    def presampled_epochs(self) -> int:
        """Number of epochs to pre-sample for the cache."""
        return 0 if self.cache is None else self.cache.epochs

    @property
    def trained_columns(self) -> int | None:
        """Number of columns if the rows are trained, None if they are features of the dataset."""
        return None

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts with other choices of the experiment."""
        problems = [] if self.cache is None else self.cache.check(experiment)
        if self.dtype is not None and not experiment.paradigm.reads_narrow_rows:
            problems.append(
                Problem(
                    "feature_store.dtype",
                    self.dtype,
                    "this paradigm does not read all rows through the feature store onto the device",
                    "set feature_store.dtype=null",
                )
            )
        return problems

    def check_data(self, experiment: Experiment, facts: GraphFacts) -> list[Problem]:
        """Conflicts between the experiment and the features of the graph."""
        problems = [] if self.cache is None else self.cache.check_data(experiment, facts)
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

    def row_bytes(self, facts: GraphFacts, itemsize: int) -> int:
        """Bytes of a row that is held, if values of the run's dtype have `itemsize` bytes; 0 without features."""
        return facts.row_bytes(itemsize if self.dtype is None else torch.bfloat16.itemsize)

    def setup(
        self, shard: Shard, dtype: torch.dtype, device: torch.device, comm: Communicator, *, crosses: bool = True
    ) -> None:
        """Prepare the rows that this rank holds.

        Args:
            shard: features, and the owner of each vertex.
            dtype: data type of the rows that are read.
            device: where `read` puts rows.
            comm: communicator of the ranks that share the parts.
            crosses: whether rows that are read enter the device tier. If not, no bytes to the device are counted.
        """
        self._dtype, self._device, self._comm, self._crosses = dtype, device, comm, crosses
        self.form = RowForm(dtype, self.dtype is not None)
        self.prepare(shard)
        if self.cache is not None:
            self.cache.setup(shard, self.form, device, comm, direct=self.direct)
            self.on_device |= self.direct and self.cache.peer_access is not None

    def read(self, ids: Tensor) -> Rows:
        """Rows of `ids` `[n]` in the same order, in the run's dtype and on its device (thread-safe unless collective).

        Sparse rows are assembled on the host, then copied to the device.
        """
        return self.form.read(self._found(ids))

    def _found(self, ids: Tensor) -> Rows:
        """Rows of `ids` on the device, in the form in which they are held."""
        rows = self.fetch(ids) if self.cache is None else self.read_cached(ids, self.cache)
        return rows.on(self._device) if isinstance(rows, SparseRows) else rows

    @property
    def stored(self) -> str:
        """What `read_stored` leaves to the kernels of the first layer, for the record; empty if it is `read`."""
        return "widened by the first layer's kernels" if self.form.narrow else ""

    def read_stored(self, ids: Tensor) -> InputRows:
        """`read` for a layer that reads rows where they are stored: rows in bfloat16 are not widened."""
        rows = self._found(ids)
        if not self.form.narrow:
            return rows
        assert isinstance(rows, Tensor), "sparse features were refused"
        return StoredRows(rows.view(torch.bfloat16), None, self.form.dtype)

    def place(self, experiment: Experiment, facts: GraphFacts, room: Callable[[], tuple[int, int] | None]) -> str:
        """Choose where rows are held, before `setup`. By default, options say it.

        Args:
            experiment: the experiment of the run.
            facts: facts of the graph.
            room: gives two numbers, the same on all ranks: estimated bytes of everything else on the device, and
                bytes that a rank may use there. None if a rank is on the CPU. All ranks call it, or none.

        Returns:
            The choice with its reason, for the record.
        """
        return "device" if self.on_device else "host"

    @property
    def chosen(self) -> dict[str, str]:
        """Choices that `setup` made, with their reasons, for the record."""
        return {} if self.cache is None else self.cache.chosen

    def finish(self) -> None:
        """Wait until this rank reads no memory of other ranks. All ranks meet after it, and then free their memory."""
        if self.cache is not None and self.cache.peer_access is not None:
            self.cache.peer_access.finish()

    @abstractmethod
    def prepare(self, shard: Shard) -> None:
        """Map, copy or slice the rows that this rank holds."""

    def read_cached(self, ids: Tensor, cache: FeatureCache) -> Rows:
        """`fetch` of the rows that the cache does not hold, and the other rows from the cache."""
        return cache.read(ids, self.fetch)

    @abstractmethod
    def fetch(self, ids: Tensor) -> Rows:
        """`read` without a cache, in the form in which rows are held."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that this rank holds, without the cache."""

    def held_bytes(self, all_rows: int, num_parts: int) -> int:
        """Estimated bytes that a rank will hold, before `setup`; `all_rows` are the bytes of the whole matrix."""
        return all_rows // num_parts if self.partitioned else 0

    def shared_bytes(self, all_rows: int, groups: int) -> int:
        """Bytes of rows in memory that ranks of a machine share.

        Args:
            all_rows: as in `held_bytes`.
            groups: number of groups of ranks on the machine; each group makes its own copies.
        """
        return 0

    def device_bytes(self, all_rows: int) -> int:
        """Bytes of rows that this store, without its cache, holds on the device; `all_rows` as in `held_bytes`."""
        return 0

    @property
    def tallies(self) -> Sequence[Tally[str, Any]]:
        """The counters that `take_counts` reads. Code that prepares batches ahead counts apart in them."""
        return (self.counts,) if self.cache is None else (self.counts, *self.cache.tallies)

    def take_counts(self) -> dict[str, int]:
        """Rows by origin (`features_loaded_{local,peer,host,disk,remote}`) and bytes to the device since the last."""
        counts = self.counts.take()
        found = {f"features_loaded_{origin}": 0 for origin in self.origins} | {"tier/h2d_bytes": 0} | counts
        return found if self.cache is None else added(found, self.cache.take_counts())

    def count(self, origin: str, num_rows: int, num_bytes: int) -> None:
        """Count rows that came from `origin`, and their bytes to the device tier if rows enter it."""
        self.counts.add({f"features_loaded_{origin}": num_rows, "tier/h2d_bytes": num_bytes * self._crosses})

    def deliver(self, rows: Rows) -> Rows:
        """Rows in the form in which they are held. Dense rows are copied to the device of the run, to a GPU through
        pinned memory.
        """
        rows = rows if rows.dtype == torch.int16 and self.form.narrow else self.form.held(rows)
        return rows if isinstance(rows, SparseRows) else across(rows, self._device)
