"""When a rank uses the rows of other ranks: at once, repeatedly (Sancus), or some epochs later (DistGNN, PipeGCN).

    fresh       Rows are used in the epoch in which they arrive. This is exact.
    stale(k)    Fetched rows and sums are reused until they are k epochs old, then fetched again (the historical
                embeddings of Sancus). Their gradients go home in every epoch.
    late(k)     Rows, sums and gradients are used k epochs after they were sent (DistGNN's cd-r, PipeGCN). In the
                first k epochs nothing has arrived, and the parts of other ranks are missing. `gnnexp.comm.late` has
                bins of vertices and averages over epochs.

The Sancus paper skips a broadcast while the receivers' copies are fresh enough. Its artifact uses a fixed schedule.
Here a row is at most k epochs old. With k = 0 everything is fresh. `variation.py` bounds how far rows move instead.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gnnexp.comm.background import Background
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.late import ALL, Bin, LateExchange, LateGather, LateReduce, LateRows
from gnnexp.comm.shuffle import Halo, reduce_home, shuffle
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.measure.ledger import Tag
from gnnexp.ops.first_order import FirstOrderFunction, applied


class ExchangePoint(ABC):
    """A point of a model where ranks exchange rows: once per epoch, unless everything is fresh.

    Attributes:
        halo: how rows come here, and how sums go home.
        skipped_bytes: bytes that this rank did not send because old rows were used, since the last reset to 0.
    """

    def __init__(self, halo: Halo) -> None:
        self.halo, self.skipped_bytes = halo, 0

    def watch(self, embeddings: Callable[[], Rows | None]) -> None:  # noqa: B027  most need none
        """Before `gather`: what gives this rank's embeddings before dropout (`gnnexp.comm.variation`)."""

    @abstractmethod
    def gather(self, local: Rows, epoch: int, comm: Communicator, tag: Tag) -> Rows:
        """`[num_local + F, d]` as `shuffle`; all ranks decide alike whether to exchange."""

    @abstractmethod
    def reduce(self, rows: Tensor, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """`[num_local, d]` as `reduce_home`."""

    def take_skipped(self) -> int:
        """`skipped_bytes`, which are reset."""
        skipped, self.skipped_bytes = self.skipped_bytes, 0
        return skipped

    def state(self) -> Any:
        """The state that a checkpoint holds."""
        return None

    def restore(self, state: Any, device: torch.device) -> None:  # noqa: B027  most have none
        """Restore the result of `state`."""


class Fresh(ExchangePoint):
    """Rows are used when they arrive."""

    def gather(self, local: Rows, epoch: int, comm: Communicator, tag: Tag) -> Rows:
        """Exchange in every epoch."""
        return shuffle(local, self.halo, comm, tag)

    def reduce(self, rows: Tensor, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """Exchange in every epoch."""
        return reduce_home(rows, self.halo, comm, tag)


def used_with_old(local: Rows, old: Rows, halo: Halo, comm: Communicator, tag: Tag) -> Rows:
    """`[num_local + F, d]`: local rows, then old rows of other ranks, whose gradients go home."""
    if isinstance(local, SparseRows):
        assert isinstance(old, SparseRows)
        return SparseRows.concatenated([local, old])
    assert isinstance(old, Tensor)
    return applied(_Old, local, old, halo, comm, tag)


class Stale(ExchangePoint):
    """Fetched rows are reused until they are too old.

    Args:
        halo: how fresh rows come.
        epochs: largest age of a row in epochs, at least 1.

    Attributes:
        rows: last fetched rows: `[F, d]` rows of other ranks, or their `[num_local, d]` sums; None before the first.
        fetched_in: epoch of the last fetch.
    """

    def __init__(self, halo: Halo, epochs: int) -> None:
        super().__init__(halo)
        self._epochs = epochs
        self.rows: Rows | None = None
        self.fetched_in = 0

    def gather(self, local: Rows, epoch: int, comm: Communicator, tag: Tag) -> Rows:
        """Local rows, with fresh or old foreign rows."""
        if comm.size == 1:
            return local
        if self._is_due(epoch):
            mixed = shuffle(local, self.halo, comm, tag)
            self.rows = _foreign(mixed, self.halo.num_local)
            return mixed
        self.skipped_bytes += self.halo.fetch_bytes(local)
        assert self.rows is not None
        return used_with_old(local, self.rows, self.halo, comm, tag)

    def reduce(self, rows: Tensor, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """Local sums, with fresh or old parts of other ranks; gradients are fetched in every epoch."""
        if comm.size == 1:
            return rows
        due = self._is_due(epoch)
        if not due:
            self.skipped_bytes += (rows.shape[0] - self.halo.num_local) * rows.shape[1] * rows.element_size()

        def parts(exchange: Callable[[], Tensor]) -> Tensor:
            if due:
                self.rows = exchange()
            assert isinstance(self.rows, Tensor)
            return self.rows

        return applied(_Reduce, rows, parts, lambda fetch: fetch(), self.halo, comm, tag)

    def _is_due(self, epoch: int) -> bool:
        due = self.rows is None or epoch - self.fetched_in > self._epochs
        if due:
            self.fetched_in = epoch
        return due

    def state(self) -> tuple[Any, int]:
        """The fetched rows and their epoch; sparse rows as `(indptr, columns, values, D)`."""
        rows = self.rows
        if isinstance(rows, SparseRows):
            return (rows.indptr, rows.columns, rows.values, rows.num_columns), self.fetched_in
        return rows, self.fetched_in

    def restore(self, state: tuple[Any, int], device: torch.device) -> None:
        """Restore rows and epoch."""
        rows, self.fetched_in = state
        if isinstance(rows, tuple):
            self.rows = SparseRows(*rows).on(device)
        else:
            self.rows = None if rows is None else rows.to(device)


class Late(ExchangePoint):
    """Rows are used some epochs after they were sent, see `gnnexp.comm.late`.

    Args:
        halo: how rows come and go.
        arrival: delay, bins and smoothing.
        bins: the bins of the halo; None: one bin.
        background: the thread that exchanges while the loop computes, and its communicator; None: the loop waits for
            each exchange.

    Attributes:
        forwards, backwards: rows or sums, and gradients: under way, or kept.
    """

    def __init__(
        self,
        halo: Halo,
        arrival: Arrival,
        bins: Sequence[Bin] | None = None,
        background: tuple[Background, Communicator] | None = None,
    ) -> None:
        super().__init__(halo)
        bins = (Bin(halo, ALL, ALL),) if bins is None else bins
        assert len(bins) == arrival.bins, f"{len(bins)} bins, and not {arrival.bins}"
        self._exchange = LateExchange(halo, bins, background)
        self.forwards = LateRows(arrival.epochs, arrival.bins, arrival.smooth_features)
        self.backwards = LateRows(arrival.epochs, arrival.bins, arrival.smooth_gradients)

    def gather(self, local: Rows, epoch: int, comm: Communicator, tag: Tag) -> Rows:
        """Local rows, with late foreign rows."""
        assert isinstance(local, Tensor), "features are fresh: they are the same in every epoch"
        if comm.size == 1:
            return local
        return applied(LateGather, local, self._exchange, self.forwards, self.backwards, epoch, comm, tag)

    def reduce(self, rows: Tensor, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """Local sums, with late parts of the other ranks."""
        if comm.size == 1:
            return rows
        return applied(LateReduce, rows, self._exchange, self.forwards, self.backwards, epoch, comm, tag)

    def take_skipped(self) -> int:
        """Bytes of the bins that were not sent."""
        skipped, self._exchange.skipped_bytes = self._exchange.skipped_bytes, 0
        return skipped

    def state(self) -> tuple[Any, ...]:
        """Rows that are not used yet, `(forwards, backwards)`; with bins or smoothing, then the kept rows of both."""
        self.forwards.drain()
        self.backwards.drain()
        sent = list(self.forwards.sent), list(self.backwards.sent)
        keeps = self.forwards.keeps or self.backwards.keeps
        return (*sent, self.forwards.kept, self.backwards.kept) if keeps else sent

    def restore(self, state: tuple[Any, ...], device: torch.device) -> None:
        """Restore the result of `state`."""
        forwards, backwards, *kept = state
        of_forwards, of_backwards = kept or (None, None)
        self.forwards.restore(forwards, of_forwards, device)
        self.backwards.restore(backwards, of_backwards, device)


@dataclass(frozen=True)
class Arrival:
    """When rows of other ranks are used; see the top of this file.

    Attributes:
        kind: which of the three.
        epochs: k, largest age or delay in epochs.
        bins: for `late`: number of bins of vertices, of which an epoch sends one.
        smooth_features, smooth_gradients: for `late`: gamma of the averages of rows and sums, and of gradients.
    """

    kind: Literal["fresh", "stale", "late"] = "fresh"
    epochs: int = 0
    bins: int = 1
    smooth_features: float = 0.0
    smooth_gradients: float = 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether all rows are those of this epoch, which is exact."""
        return not self.epochs

    @property
    def approximates(self) -> str:
        """The approximation in words; empty if everything is fresh."""
        if not self.epochs:
            return ""
        if self.kind == "stale":
            return f"rows of other ranks are up to {self.epochs} epochs old"
        said = f"rows, sums and gradients of other ranks come {self.epochs} epochs late"
        if self.bins > 1:
            said += f", and those of a vertex are sent every {self.bins} epochs"
        for what, gamma in (("rows and sums", self.smooth_features), ("gradients", self.smooth_gradients)):
            said += f"; {what} are averages over epochs, with {gamma:g} of the last average" if gamma else ""
        return said

    def at(
        self,
        halo: Halo,
        bins: Sequence[Bin] | None = None,
        background: tuple[Background, Communicator] | None = None,
    ) -> ExchangePoint:
        """An exchange point with this arrival. `bins` and `background` are for late exchanges, see `Late`."""
        if not self.epochs:
            return Fresh(halo)
        return Stale(halo, self.epochs) if self.kind == "stale" else Late(halo, self, bins, background)


FRESH = Arrival()


class _Old(FirstOrderFunction):
    """Local rows and old foreign rows; only gradients are exchanged."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, old: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:
        ctx.rest = halo, comm, tag
        return torch.cat((local, old))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        halo, comm, tag = ctx.rest
        return halo.scatter_add_home(gradient, comm, tag), None, None, None, None


# Takes an exchange, and returns the result that is used now: of this exchange, or of an earlier one.
When = Callable[[Callable[[], Tensor]], Tensor]


class _Reduce(FirstOrderFunction):
    """Local sums, and parts of other ranks as `forwards` gives them; `backwards` gives gradients of foreign rows."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, forwards: When, backwards: When, halo: Halo, comm: Communicator, tag: Tag
    ) -> Tensor:
        ctx.rest = backwards, halo, comm, tag
        count = halo.num_local
        return rows[:count] + forwards(lambda: _brought_home(rows[count:], halo, comm, tag))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        backwards, halo, comm, tag = ctx.rest
        return (
            torch.cat((gradient, backwards(lambda: _fetched(gradient, halo, comm, tag)))),
            None,
            None,
            None,
            None,
            None,
        )


def _fetched(local: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:
    """`[F, d]` foreign rows."""
    fresh = halo.fetch(local.contiguous(), comm, tag)
    assert isinstance(fresh, Tensor)
    return fresh


def _brought_home(foreign: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:
    """`[num_local, d]`: the sums that other ranks add to local rows."""
    nothing = foreign.new_zeros(halo.num_local, foreign.shape[1])
    return halo.scatter_add_home(torch.cat((nothing, foreign)), comm, tag)


def _foreign(mixed: Rows, num_local: int) -> Rows:
    """A copy of the rows after the local ones."""
    if isinstance(mixed, SparseRows):
        return mixed.rows(torch.arange(num_local, mixed.shape[0], device=mixed.device))
    return mixed[num_local:].detach().clone()


class KeptExchanges:
    """The exchange points of a rank that keep rows for later epochs.

    Args:
        arrival: when rows of other ranks are used.
        points: all exchange points of the rank, in order. Fresh ones keep nothing.
        device: device of the rows.
    """

    def __init__(self, arrival: Arrival, points: Iterable[ExchangePoint], device: torch.device) -> None:
        self._arrival, self._device = arrival, device
        self._points = [point for point in points if not isinstance(point, Fresh)]

    def take_counts(self) -> dict[str, int]:
        """Bytes that this rank did not send since the last call, because old rows were used; none if all are sent."""
        if self._arrival.kind != "stale" and self._arrival.bins == 1:
            return {}
        return {"comm/bytes_skipped": sum(point.take_skipped() for point in self._points)}

    def state_dict(self) -> dict[str, Any]:
        """The kept rows, sums and gradients, for a checkpoint; empty if everything is fresh."""
        return {self._arrival.kind: [point.state() for point in self._points]} if not self._arrival.is_fresh else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        if state:
            for point, kept in zip(self._points, state[self._arrival.kind], strict=True):
                point.restore(kept, self._device)
