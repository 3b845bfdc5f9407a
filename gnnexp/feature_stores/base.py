"""Where features come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts
from gnnexp.feature_stores.cache import FeatureCache
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.pool import Pool
from gnnexp.measure.tally import Counts
from gnnexp.tiers.tier import across


class FeatureStore(ABC):
    """Reads feature rows by original vertex id, through a cache where there is one, and counts where each came from.

    Attributes:
        cache: decorates the store, or None.
        partitioned: whether rows are placed by owner.
        origins: where rows may come from, see `take_counts`.
        pool: memory of the rows that are read.
        counts: rows by origin and bytes to the device, those that needed no fetch apart.
        communicates: whether `fetch` is a collective that all ranks have to take part in.
        slices: whether a rank has a slice of every row's columns (push-pull).
        trainable: whether rows are trained: what is read takes a gradient, and is another thing after every step.
    """

    origins: tuple[str, ...] = ("host",)
    partitioned = False
    communicates = False
    trainable = False
    slices = False

    def __init__(self, cache: FeatureCache | None = None) -> None:
        self.cache = cache
        self.pool = Pool()
        self.counts = Counts()

    def draw_from(self, pool: Pool) -> None:
        """Take the memory of rows from the rank's pool, the cache's too."""
        self.pool = pool
        if self.cache is not None:
            self.cache.pool = pool

    @property
    def collective(self) -> bool:
        """Whether every `read` needs all ranks."""
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
        """How many epochs are counted for that."""
        return 0 if self.cache is None else self.cache.epochs

    @property
    def trained_columns(self) -> int | None:
        """Columns of its rows where these are trained; None where they are the data's."""
        return None

    def check(self, experiment: Experiment) -> list[Problem]:
        """What is wrong beside the other choices of the experiment."""
        return [] if self.cache is None else self.cache.check(experiment)

    def check_data(self, experiment: Experiment, facts: GraphFacts) -> list[Problem]:
        """What of the experiment does not fit the features of `graph`."""
        return [] if self.cache is None else self.cache.check_data(experiment, facts)

    def setup(
        self, shard: Shard, dtype: torch.dtype, device: torch.device, comm: Communicator, *, crosses: bool = True
    ) -> None:
        """Make this rank's share ready.

        Args:
            shard: features, and who owns what.
            dtype: of the run.
            device: where rows are wanted.
            comm: among the ranks that share the parts.
            crosses: whether rows are wanted in the device tier; if not, none is counted as going there.
        """
        self._dtype, self._device, self._comm, self._crosses = dtype, device, comm, crosses
        self.prepare(shard)
        if self.cache is not None:
            self.cache.setup(shard, dtype, device, comm)

    def read(self, ids: Tensor) -> Rows:
        """Rows `ids` `[n]`, in that order, in the run's dtype, on its device (thread-safe unless collective).

        Sparse rows are put together on the host, and cross at the end.
        """
        rows = self.fetch(ids) if self.cache is None else self.cache.read(ids, self.fetch)
        return rows.on(self._device) if isinstance(rows, SparseRows) else rows

    @abstractmethod
    def prepare(self, shard: Shard) -> None:
        """Map, copy or cut this rank's rows."""

    @abstractmethod
    def fetch(self, ids: Tensor) -> Rows:
        """`read` without a cache."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that this rank holds, the cache apart."""

    def held_bytes(self, all_rows: int, num_parts: int) -> int:
        """Before it is set up: about how many bytes a rank will hold of `all_rows`, bytes of the whole matrix."""
        return all_rows // num_parts if self.partitioned else 0

    @property
    def tallies(self) -> Sequence[Counts]:
        """What `take_counts` reads, for who prepares batches that may be thrown away."""
        return (self.counts,) if self.cache is None else (self.counts, self.cache.counts)

    def take_counts(self) -> dict[str, int]:
        """Rows since the last call by origin (`features_loaded_{local,peer,host,disk,remote}`), bytes to the device."""
        counts = self.counts.take()
        found = {f"features_loaded_{origin}": 0 for origin in self.origins} | {"tier/h2d_bytes": 0} | counts
        return found if self.cache is None else found | self.cache.take_counts()

    def count(self, origin: str, num_rows: int, num_bytes: int) -> None:
        """Note rows that came from `origin`, across to the device tier where they are wanted there."""
        self.counts.add({f"features_loaded_{origin}": num_rows, "tier/h2d_bytes": num_bytes * self._crosses})

    def deliver(self, rows: Rows) -> Rows:
        """Rows in the run's dtype; dense ones on its device, through pinned memory where that is a GPU."""
        rows = rows.to(self._dtype)
        return rows if isinstance(rows, SparseRows) else across(rows, self._device)

