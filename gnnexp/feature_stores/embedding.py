"""Rows that are trained with the model, for graphs without features. One rank holds each row and its optimizer state.

The rows that a batch reads are a leaf of its autograd graph. After the backward pass, `collect` sends their gradients
back to the ranks that hold the rows. The holders add the gradients, and `update` steps the rows. Rows with a gradient
of zero do not change, nor do their moments (PyTorch's SparseAdam). A batch therefore costs only the rows that it reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gnnexp.comm.communicator import Communicator
from gnnexp.components.eager import class_of, eager
from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.optimizer import OptimizerChoice
from gnnexp.components.options import wrong_options
from gnnexp.components.schema import MOST_COUNTED
from gnnexp.components.setting import Setting
from gnnexp.errors import ConfigError, Problem
from gnnexp.feature_stores.base import HELD, FeatureStore, FeatureStoreOptions, Share
from gnnexp.feature_stores.routing import Routes, route, together
from gnnexp.feature_stores.sliced import slice_bounds
from gnnexp.graph.shard import Shard
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.rows.gather import gather_rows
from gnnexp.kernels.rows.initial import uniform_rows

_PIECE_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class _Read:
    """The rows that a batch has read, and the routes on which their gradients go back."""

    leaf: Tensor
    own: Tensor  # [a] positions of the own rows among the held rows
    routes: Routes | None = None
    asked: Sequence[int] = ()  # number of rows that each rank has read here
    answered: Tensor | None = None  # [b] positions of those rows among the held rows


@dataclass(frozen=True)
class EmbeddingOptions(FeatureStoreOptions):
    """The owner of a vertex holds its whole trained row. Without a partition, each rank holds an equal range of ids.

    Trained rows change after every step, so they are not prefetched and not cached.

    Attributes:
        dim: number of columns.
        scale: initial values are uniform in [-scale, scale); null for Xavier's sqrt(6 / (V + dim)).
        lr: learning rate of the rows; null for `optimizer.lr`.
    """

    communicates = True

    dim: int
    scale: float | None = None
    lr: float | None = None

    def __post_init__(self) -> None:
        allowed = f"must be at least 1, and at most {MOST_COUNTED:,}"
        wrong = wrong_options("feature_store", (1 <= self.dim <= MOST_COUNTED, "dim", self.dim, allowed, 128))
        wrong += [
            Problem(f"feature_store.{name}", value, "must be positive", f"set feature_store.{name}=null")
            for name, value in (("scale", self.scale), ("lr", self.lr))
            if value is not None and not 0 < value < math.inf
        ]
        ConfigError.raise_all(wrong)

    @property
    def trained_columns(self) -> int:
        """See `dim`."""
        return self.dim

    def check(self, setting: Setting) -> list[Problem]:
        """There must be one copy of every row, and the optimizer must be able to step single rows."""
        problems = []
        if setting.ranks_together != setting.num_ranks:
            problems.append(
                Problem(
                    "paradigm.group_size",
                    setting.ranks_together,
                    "one rank holds each trained row, but each group needs its own copy",
                    "set paradigm.group_size=null",
                )
            )
        optimizer = setting.optimizer
        if row_optimizer(optimizer, nn.Parameter(torch.zeros(0, 1)), 1.0) is None:
            problems.append(
                Problem(
                    "optimizer",
                    optimizer.target,
                    "trained rows are stepped only if they have "
                    "a gradient; only plain Adam and SGD without momentum can do this",
                    "choose optimizer=adam",
                )
            )
        return problems

    def needs(self, facts: GraphFacts, row_bytes: int, share: Share) -> list[Need]:
        """Rows and their two moments, doubled for gradients in transit, in case a step reads all rows."""
        return [Need(HELD, "host", 6 * share.vertices * row_bytes // share.num_parts)]

    def make(self) -> EmbeddingStore:
        """The feature store of a rank."""
        return EmbeddingStore(self)


@dataclass(frozen=True)
class SlicedEmbeddingOptions(EmbeddingOptions):
    """Every rank holds some dimensions of all rows, as in push-pull. A rank's gradients are complete without others."""

    slices = True
    communicates = False

    def make(self) -> SlicedEmbeddingStore:
        """The feature store of a rank."""
        return SlicedEmbeddingStore(self)


class EmbeddingStore(FeatureStore):
    """Trained rows of the vertices that this rank owns.

    Attributes:
        is_shared: whether every rank has all gradients.
        dims: the columns that this rank holds of its rows; `prepare` sets them.
        optimizer: steps the rows; `begin` sets it.
    """

    options: EmbeddingOptions
    origins = ("host", "remote")
    is_shared = False
    dims: slice
    optimizer: Optimizer

    # --- placement -------------------------------------------------------------------------------------------------
    def prepare(self, shard: Shard) -> None:
        """Set the rows and columns that this rank holds."""
        self._num_nodes, rank = shard.graph.num_nodes, self._comm.rank
        self._home = self._homes(shard)
        self._ids = torch.from_numpy(np.flatnonzero(self._home == rank))
        self._row_of = torch.zeros(self._num_nodes, dtype=torch.int32)
        self._row_of[self._ids] = torch.arange(self._ids.numel(), dtype=torch.int32)
        self.dims = slice(0, self.options.dim)
        self._reads: list[_Read] = []

    def _homes(self, shard: Shard) -> np.ndarray:
        """`[V]`: the rank that holds each row."""
        if shard.partition is not None:
            return shard.owner.numpy()
        bounds = slice_bounds(self._num_nodes, self._comm.size)
        return np.repeat(np.arange(self._comm.size, dtype=np.int32), np.diff(bounds))

    @final
    def begin(self, optimizer: OptimizerChoice, seed: int) -> None:
        """Draw the initial rows from seed, vertex and column, and make their optimizer.

        The values do not depend on the rank that holds a row.
        """
        bound = self.options.scale or math.sqrt(6 / (self._num_nodes + self.options.dim))
        key = np.uint64(stream(seed, Purpose.INIT, 1 << 32))
        width = self.dims.stop - self.dims.start
        values = uniform_rows(key, self._ids.numpy(), self.dims.start, width, bound)
        self._table = nn.Parameter(torch.from_numpy(values).to(self._dtype))
        optimizer_of_rows = row_optimizer(optimizer, self._table, self.options.lr or optimizer.trial.defaults["lr"])
        assert optimizer_of_rows is not None, "see check"
        self.optimizer = optimizer_of_rows

    # --- the iteration ---------------------------------------------------------------------------------------------
    def fetch(self, ids: Tensor) -> Tensor:
        """Own rows from the host tier, all others from their holders (2 rounds, tag `features`); takes a gradient."""
        comm, table = self._comm, self._table.detach()
        routes = route(ids, self._home, comm.rank, comm.size)
        wanted, asked = comm.counted_all_to_all(routes.foreign, routes.sent, "features")
        answered = self._row_of[wanted.long()]
        answer = gather_rows(table, answered, self.pool)
        foreign = comm.all_to_all(answer, asked, routes.sent, "features")
        own = self._row_of[routes.own.long()]
        rows, num_bytes = together(table, own, foreign, routes, self.pool)
        self.count("remote", foreign.shape[0], foreign.nbytes)
        self.count("host", own.numel(), num_bytes)
        leaf = self._leaf(rows)
        self._reads.append(_Read(leaf, own, routes, asked, answered))
        return leaf

    def _leaf(self, rows: object) -> Tensor:
        assert isinstance(rows, Tensor)
        delivered = self.deliver(rows)
        assert isinstance(delivered, Tensor)
        return delivered.requires_grad_()

    @final
    def collect(self) -> None:
        """Send gradients of the rows read to their holders, who add them (1 round per read, tag `embeddings`)."""
        places, values = [], []
        for read in self._reads:
            for where, gradient in self._returned(read):
                places.append(where.long())
                values.append(gradient)
        self._reads.clear()
        if not places:
            return
        shape = self._table.shape
        summed = torch.sparse_coo_tensor(
            torch.cat(places).unsqueeze(0), torch.cat(values), shape, check_invariants=False
        ).coalesce()
        touched = self._anywhere(summed.values().ne(0).any(1))
        if not self._table.numel():
            return  # nothing to step: torch's SGD writes out of bounds if rows have no columns
        self._table.grad = torch.sparse_coo_tensor(
            summed.indices()[:, touched], summed.values()[touched], shape, is_coalesced=True, check_invariants=False
        )

    def _anywhere(self, touched: Tensor) -> Tensor:
        """`[n]`: whether each row has a nonzero gradient in any column, also in columns that other ranks hold."""
        return touched

    def _returned(self, read: _Read) -> Iterator[tuple[Tensor, Tensor]]:
        """`(positions of held rows [n], gradients [n, d])`: of this rank's own read, then of other ranks in order."""
        gradient = torch.zeros_like(read.leaf) if read.leaf.grad is None else read.leaf.grad
        gradient = gradient.to(self._table.device)
        if read.routes is None or read.answered is None:
            yield read.own, gradient
            return
        yield read.own, gradient[read.routes.own_places]
        back = self._comm.all_to_all(gradient[read.routes.foreign_places], read.routes.sent, read.asked, "embeddings")
        yield read.answered, back

    @final
    def square_sum(self) -> Tensor:
        """Sum of squares of the gradients that this rank received in `collect`."""
        gradient = self._table.grad
        return self._table.new_zeros(()) if gradient is None else gradient.coalesce().values().square().sum()

    @final
    def multiply(self, factor: Tensor) -> None:
        """Multiply the gradients that this rank received by a scalar, in place."""
        if self._table.grad is not None:
            self._table.grad.mul_(factor)

    @final
    def update(self) -> None:
        """Step the rows that have a gradient."""
        self.optimizer.step()
        self._table.grad = None

    @final
    def forget(self) -> None:
        """Drop the pending reads: their rows get no gradient."""
        self._reads.clear()

    # --- all of it -------------------------------------------------------------------------------------------------
    @final
    def gather(self, out: Tensor, comm: Communicator) -> None:
        """Copy all rows into `out` `[V, dim]` on every rank, piece by piece (tag `evaluation`)."""
        for source in range(comm.size):
            ids, columns = self._placed(source)
            width = columns.stop - columns.start
            step = max(1, _PIECE_BYTES // max(1, width * self._table.element_size()))
            for first in range(0, ids.numel(), step):
                piece = ids[first : first + step]
                rows = torch.empty(piece.numel(), width, dtype=self._dtype)
                if source == comm.rank:
                    rows.copy_(self._table.detach()[first : first + step])
                comm.broadcast(rows, source, "evaluation")
                out[piece, columns] = rows

    def _placed(self, rank: int) -> tuple[Tensor, slice]:
        """Ids and columns of the rows that `rank` holds."""
        return torch.from_numpy(np.flatnonzero(self._home == rank)), slice(0, self.options.dim)

    @final
    def state_dict(self) -> dict[str, Any]:
        """Ids, first column, values and optimizer state of the rows that this rank holds."""
        return {
            "ids": self._ids,
            "first": self.dims.start,
            "value": self._table.detach(),
            "state": dict(self.optimizer.state.get(self._table, {})),
        }

    @final
    def load_pieces(self, pieces: Iterable[Mapping[str, Any]]) -> None:
        """Load this rank's rows from the `state_dict` of all ranks. The number of ranks may have changed."""
        here = torch.zeros(self._num_nodes, dtype=torch.bool)
        here[self._ids] = True
        for piece in pieces:
            chosen = here[piece["ids"]]
            rows = self._row_of[piece["ids"][chosen]].long()
            start = piece["first"]
            columns = slice(max(start, self.dims.start), min(start + piece["value"].shape[1], self.dims.stop))
            if columns.start >= columns.stop:
                continue
            into = slice(columns.start - self.dims.start, columns.stop - self.dims.start)
            taken = slice(columns.start - start, columns.stop - start)
            state = self.optimizer.state[self._table] if piece["state"] else {}
            with torch.no_grad():
                self._table[rows, into] = piece["value"][chosen][:, taken]
            for name, value in piece["state"].items():
                if isinstance(value, Tensor) and value.dim():
                    kept = state.setdefault(name, torch.zeros_like(self._table))
                    kept[rows, into] = value[chosen][:, taken]
                else:
                    state[name] = value

    @final
    def nbytes(self) -> int:
        """Bytes of the rows that this rank holds."""
        return self._table.nbytes

    @final
    def state_nbytes(self) -> int:
        """Bytes of the two moments that SparseAdam keeps; 0 with SGD."""
        return 2 * self.nbytes() * isinstance(self.optimizer, torch.optim.SparseAdam)


class SlicedEmbeddingStore(EmbeddingStore):
    """A rank's dimensions of all trained rows."""

    def _homes(self, shard: Shard) -> np.ndarray:
        return np.full(self._num_nodes, self._comm.rank, np.int32)

    def prepare(self, shard: Shard) -> None:
        """Set the dimensions that this rank holds of all rows."""
        super().prepare(shard)
        bounds = slice_bounds(self.options.dim, self._comm.size)
        self.dims = slice(bounds[self._comm.rank], bounds[self._comm.rank + 1])

    def fetch(self, ids: Tensor) -> Tensor:
        """`[n, len(dims)]`: this rank's dimensions of `ids` from the host tier; takes a gradient."""
        places = ids.to(torch.int32)
        rows = gather_rows(self._table.detach(), places, self.pool)
        leaf = self._leaf(rows)
        self.count("host", leaf.shape[0], leaf.nbytes)
        self._reads.append(_Read(leaf, places))
        return leaf

    def _anywhere(self, touched: Tensor) -> Tensor:
        """`[n]`: whether each row has a nonzero gradient on any rank; all ranks have read the same rows.

        A row may have no gradient here: dropout can drop all columns that this rank holds.
        """
        flags = touched.to(torch.int32)
        self._comm.all_reduce(flags, "embeddings")
        return flags > 0

    def _placed(self, rank: int) -> tuple[Tensor, slice]:
        bounds = slice_bounds(self.options.dim, self._comm.size)
        return torch.arange(self._num_nodes), slice(bounds[rank], bounds[rank + 1])


def row_optimizer(choice: OptimizerChoice, table: nn.Parameter, lr: float) -> Optimizer | None:
    """An optimizer that steps only rows with a gradient, in the way of `choice`. None if there is no such optimizer.

    Weight decay is not applied, because rows that no batch reads would need it too.
    """
    options = choice.trial.defaults
    if class_of(choice.trial) is torch.optim.Adam and not options["amsgrad"] and not options["maximize"]:
        return eager(torch.optim.SparseAdam)([table], lr=lr, betas=options["betas"], eps=options["eps"])
    if class_of(choice.trial) is torch.optim.SGD and not options["momentum"] and not options["maximize"]:
        return eager(torch.optim.SGD)([table], lr=lr)
    return None
