"""When a rank uses the rows of other ranks: at once, repeatedly (Sancus), or some epochs later (DistGNN, PipeGCN).

    fresh       Rows are used in the epoch in which they arrive. This is exact.
    stale(k)    Fetched rows and sums are reused until they are k epochs old, then fetched again (the historical
                embeddings of Sancus). Their gradients go home in every epoch.
    late(k)     Rows, sums and gradients are used k epochs after they were sent (the delayed aggregation cd-r of
                DistGNN). In the first k epochs nothing has arrived, and the parts of other ranks are missing.

The Sancus paper skips a broadcast while the receivers' copies are fresh enough. Its artifact uses a fixed schedule.
Here a row is at most k epochs old. With k = 0 everything is fresh. `variation.py` bounds how far rows move instead.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gnnexp.comm.background import Background, PendingExchange
from gnnexp.comm.communicator import Communicator
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

    def state(self) -> Any:
        """The state that a checkpoint holds."""
        return None

    def restore(self, state: Any, device: torch.device) -> None:  # noqa: B027  most have none
        """Restore the result of `state`."""

    def drain(self) -> None:  # noqa: B027  most wait at once
        """Wait for pending exchanges."""


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
    """Rows are used some epochs after they were sent.

    Args:
        halo: how rows come and go.
        epochs: the delay, at least 1.
        background: the thread that exchanges while the loop computes, and its communicator; None: the loop waits for
            each exchange.

    Attributes:
        forwards, backwards: results that arrived or are pending, and are not used yet; oldest first.
    """

    def __init__(self, halo: Halo, epochs: int, background: tuple[Background, Communicator] | None = None) -> None:
        super().__init__(halo)
        self._epochs, self._background = epochs, background
        self.forwards: deque[Tensor | PendingExchange[Tensor]] = deque()
        self.backwards: deque[Tensor | PendingExchange[Tensor]] = deque()

    def gather(self, local: Rows, epoch: int, comm: Communicator, tag: Tag) -> Rows:
        """Local rows, with the foreign rows of `epochs` epochs ago."""
        assert isinstance(local, Tensor), "features are fresh: they are the same in every epoch"
        if comm.size == 1:
            return local
        among = comm if self._background is None else self._background[1]
        return applied(_Gather, local, self._forwards, self._backwards, self.halo, among, tag)

    def reduce(self, rows: Tensor, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """Local sums, with the other ranks' parts of `epochs` epochs ago."""
        if comm.size == 1:
            return rows
        among = comm if self._background is None else self._background[1]
        return applied(_Reduce, rows, self._forwards, self._backwards, self.halo, among, tag)

    def _forwards(self, exchange: Callable[[], Tensor]) -> Tensor:
        return self._later(exchange, self.forwards)

    def _backwards(self, exchange: Callable[[], Tensor]) -> Tensor:
        return self._later(exchange, self.backwards)

    def _later(self, exchange: Callable[[], Tensor], queue: deque[Tensor | PendingExchange[Tensor]]) -> Tensor:
        fresh = exchange() if self._background is None else self._background[0].start(exchange)
        queue.append(fresh)
        if len(queue) > self._epochs:
            return _arrived(queue.popleft())
        queue[-1] = arrived = _arrived(fresh)  # a result that has arrived is not waited for again
        return torch.zeros_like(arrived)

    def drain(self) -> None:
        """Wait for all pending exchanges."""
        for queue in (self.forwards, self.backwards):
            arrived = [_arrived(rows) for rows in queue]
            queue.clear()
            queue.extend(arrived)

    def state(self) -> tuple[list[Tensor], list[Tensor]]:
        """Results that are not used yet: `(forwards, backwards)`."""
        return [_arrived(rows) for rows in self.forwards], [_arrived(rows) for rows in self.backwards]

    def restore(self, state: tuple[list[Tensor], list[Tensor]], device: torch.device) -> None:
        """Restore the results that are not used yet."""
        for queue, kept in zip((self.forwards, self.backwards), state, strict=True):
            queue.clear()
            queue.extend(rows.to(device) for rows in kept)


@dataclass(frozen=True)
class Arrival:
    """When rows of other ranks are used; see the top of this file.

    Attributes:
        kind: which of the three.
        epochs: k, largest age or delay in epochs.
    """

    kind: Literal["fresh", "stale", "late"] = "fresh"
    epochs: int = 0

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
        return f"rows, sums and gradients of other ranks come {self.epochs} epochs late"

    def at(self, halo: Halo, background: tuple[Background, Communicator] | None = None) -> ExchangePoint:
        """An exchange point with this arrival; late exchanges run on `background`, see `Late`."""
        if not self.epochs:
            return Fresh(halo)
        return Stale(halo, self.epochs) if self.kind == "stale" else Late(halo, self.epochs, background)


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


class _Gather(FirstOrderFunction):
    """Local rows, then foreign rows as `forwards` gives them; `backwards` gives the gradients that come home."""

    @staticmethod
    def forward(
        ctx: Any, local: Tensor, forwards: When, backwards: When, halo: Halo, comm: Communicator, tag: Tag
    ) -> Tensor:
        ctx.rest = backwards, halo, comm, tag
        return torch.cat((local, forwards(lambda: _fetched(local, halo, comm, tag))))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        backwards, halo, comm, tag = ctx.rest
        count = halo.num_local
        added = backwards(lambda: _brought_home(gradient[count:], halo, comm, tag))
        return gradient[:count] + added, None, None, None, None, None


class _Reduce(FirstOrderFunction):
    """The transpose of `_Gather`."""

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


def _arrived(rows: Tensor | PendingExchange[Tensor]) -> Tensor:
    return rows if isinstance(rows, Tensor) else rows.result()


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

    def drain(self) -> None:
        """Wait for all pending exchanges."""
        for point in self._points:
            point.drain()

    def take_counts(self) -> dict[str, int]:
        """Bytes that this rank did not send since the last call, because old rows were used."""
        if self._arrival.kind != "stale":
            return {}
        skipped = sum(point.skipped_bytes for point in self._points)
        for point in self._points:
            point.skipped_bytes = 0
        return {"comm/bytes_skipped": skipped}

    def state_dict(self) -> dict[str, Any]:
        """The kept rows, sums and gradients, for a checkpoint; empty if everything is fresh."""
        return {self._arrival.kind: [point.state() for point in self._points]} if not self._arrival.is_fresh else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        if state:
            for point, kept in zip(self._points, state[self._arrival.kind], strict=True):
                point.restore(kept, self._device)
