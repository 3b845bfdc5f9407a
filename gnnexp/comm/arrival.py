"""When rows of other ranks are used: at once, again for some epochs (Sancus), or some epochs later (DistGNN, PipeGCN).

    fresh       what arrives in an epoch is used in it: exact
    stale(k)    fetched rows and sums are used until they are k epochs old, and are then fetched again (Sancus'
                historical embeddings); gradients with respect to them go home in every epoch
    late(k)     what arrived k epochs before is used, forwards and backwards (DistGNN's delayed aggregation, cd-r); in
                the first epochs nothing has arrived, so other ranks' parts are missing

Published, Sancus skips broadcasts while what others know is fresh enough; its artifact does it by a fixed schedule.
Here a row is at most k epochs old. With k = 0 everything is fresh.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gnnexp.comm.background import Background, Pending
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import Halo, reduce_home, shuffle
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.measure.ledger import Tag
from gnnexp.ops.first_order import FirstOrderFunction


class ExchangePoint(ABC):
    """One place of a model where rows are exchanged, once in every epoch unless everything is fresh.

    Attributes:
        halo: how rows come here and sums go home.
        skipped_bytes: what this rank did not send because old rows were used, since this was last set to 0.
    """

    def __init__(self, halo: Halo) -> None:
        self.halo, self.skipped_bytes = halo, 0

    @abstractmethod
    def gather(self, local: Rows, epoch: int, comm: Communicator, tag: Tag) -> Rows:
        """`[num_local + F, d]` as `shuffle` does; the same decision on all ranks."""

    @abstractmethod
    def reduce(self, rows: Tensor, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """`[num_local, d]` as `reduce_home` does."""

    def state(self) -> Any:
        """What a checkpoint holds of it."""
        return None

    def restore(self, state: Any, device: torch.device) -> None:  # noqa: B027  most have none
        """Take back what `state` gave."""

    def drain(self) -> None:  # noqa: B027  most wait at once
        """Wait for what is under way."""


class Fresh(ExchangePoint):
    """What arrives is used at once."""

    def gather(self, local: Rows, epoch: int, comm: Communicator, tag: Tag) -> Rows:
        """The exchange."""
        return shuffle(local, self.halo, comm, tag)

    def reduce(self, rows: Tensor, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """The exchange."""
        return reduce_home(rows, self.halo, comm, tag)


class Stale(ExchangePoint):
    """What was fetched is used again, until it is too old.

    Args:
        halo: how fresh rows come.
        epochs: that rows may be old, at least 1.

    Attributes:
        rows: `[F, d]` of other ranks, or `[num_local, d]` that they add, as they last came; None before.
        fetched_in: the epoch of that.
    """

    def __init__(self, halo: Halo, epochs: int) -> None:
        super().__init__(halo)
        self._epochs = epochs
        self.rows: Rows | None = None
        self.fetched_in = 0

    def gather(self, local: Rows, epoch: int, comm: Communicator, tag: Tag) -> Rows:
        """With fresh or with old foreign rows."""
        if comm.size == 1:
            return local
        if self._is_due(epoch):
            mixed = shuffle(local, self.halo, comm, tag)
            self.rows = _foreign(mixed, self.halo.num_local)
            return mixed
        self.skipped_bytes += self.halo.fetch_bytes(local)
        if isinstance(local, SparseRows):
            assert isinstance(self.rows, SparseRows)
            return local.followed_by(self.rows)
        old: Tensor = _Old.apply(local, self.rows, self.halo, comm, tag)  # type: ignore[no-untyped-call]
        return old

    def reduce(self, rows: Tensor, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """With fresh or with old parts of other ranks; gradients are fetched in every epoch."""
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

        home: Tensor = _Reduce.apply(rows, parts, lambda fetch: fetch(), self.halo, comm, tag)  # type: ignore[no-untyped-call]
        return home

    def _is_due(self, epoch: int) -> bool:
        due = self.rows is None or epoch - self.fetched_in > self._epochs
        if due:
            self.fetched_in = epoch
        return due

    def state(self) -> tuple[Any, int]:
        """The rows, sparse ones as `(indptr, columns, values, D)`, and their epoch."""
        rows = self.rows
        if isinstance(rows, SparseRows):
            return (rows.indptr, rows.columns, rows.values, rows.num_columns), self.fetched_in
        return rows, self.fetched_in

    def restore(self, state: tuple[Any, int], device: torch.device) -> None:
        """Take them back."""
        rows, self.fetched_in = state
        if isinstance(rows, tuple):
            self.rows = SparseRows(*rows).on(device)
        else:
            self.rows = None if rows is None else rows.to(device)


class Late(ExchangePoint):
    """What arrives is used some epochs later.

    Args:
        halo: how rows come and go.
        epochs: at least 1.
        beside: on what exchanges run while the loop computes, and among whom; None: the loop waits for them.

    Attributes:
        forwards, backwards: what arrived, or is under way, and has not been used; oldest first.
    """

    def __init__(self, halo: Halo, epochs: int, beside: tuple[Background, Communicator] | None = None) -> None:
        super().__init__(halo)
        self._epochs, self._beside = epochs, beside
        self.forwards: deque[Tensor | Pending[Tensor]] = deque()
        self.backwards: deque[Tensor | Pending[Tensor]] = deque()

    def gather(self, local: Rows, epoch: int, comm: Communicator, tag: Tag) -> Rows:
        """With foreign rows of some epochs ago."""
        assert isinstance(local, Tensor), "features are fresh: they are the same in every epoch"
        if comm.size == 1:
            return local
        among = comm if self._beside is None else self._beside[1]
        out: Tensor = _Gather.apply(local, self._forwards, self._backwards, self.halo, among, tag)  # type: ignore[no-untyped-call]
        return out

    def reduce(self, rows: Tensor, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """With parts of other ranks of some epochs ago."""
        if comm.size == 1:
            return rows
        among = comm if self._beside is None else self._beside[1]
        out: Tensor = _Reduce.apply(rows, self._forwards, self._backwards, self.halo, among, tag)  # type: ignore[no-untyped-call]
        return out

    def _forwards(self, exchange: Callable[[], Tensor]) -> Tensor:
        return self._later(exchange, self.forwards)

    def _backwards(self, exchange: Callable[[], Tensor]) -> Tensor:
        return self._later(exchange, self.backwards)

    def _later(self, exchange: Callable[[], Tensor], queue: deque[Tensor | Pending[Tensor]]) -> Tensor:
        fresh = exchange() if self._beside is None else self._beside[0].start(exchange)
        queue.append(fresh)
        if len(queue) > self._epochs:
            return _arrived(queue.popleft())
        queue[-1] = arrived = _arrived(fresh)  # what has been waited for is not waited for again
        return torch.zeros_like(arrived)

    def drain(self) -> None:
        """Nothing is under way afterwards."""
        for queue in (self.forwards, self.backwards):
            arrived = [_arrived(rows) for rows in queue]
            queue.clear()
            queue.extend(arrived)

    def state(self) -> tuple[list[Tensor], list[Tensor]]:
        """What is late."""
        return [_arrived(rows) for rows in self.forwards], [_arrived(rows) for rows in self.backwards]

    def restore(self, state: tuple[list[Tensor], list[Tensor]], device: torch.device) -> None:
        """Take it back."""
        for queue, kept in zip((self.forwards, self.backwards), state, strict=True):
            queue.clear()
            queue.extend(rows.to(device) for rows in kept)


@dataclass(frozen=True)
class Arrival:
    """One of the three.

    Attributes:
        kind: which.
        epochs: k.
    """

    kind: Literal["fresh", "stale", "late"] = "fresh"
    epochs: int = 0

    @property
    def approximates(self) -> str:
        """What is not exact, empty if everything is fresh."""
        if not self.epochs:
            return ""
        if self.kind == "stale":
            return f"rows of other ranks are up to {self.epochs} epochs old"
        return f"rows, sums and gradients of other ranks come {self.epochs} epochs late"

    def at(self, halo: Halo, beside: tuple[Background, Communicator] | None = None) -> ExchangePoint:
        """A place with this arrival; `beside` is what late exchanges run on, see `Late`."""
        if not self.epochs:
            return Fresh(halo)
        return Stale(halo, self.epochs) if self.kind == "stale" else Late(halo, self.epochs, beside)


FRESH = Arrival()


class _Old(FirstOrderFunction):
    """Local rows and old foreign ones; only gradients travel."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, old: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:
        ctx.rest = halo, comm, tag
        return torch.cat((local, old))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        halo, comm, tag = ctx.rest
        return halo.scatter_add_home(gradient, comm, tag), None, None, None, None


# Makes what is used now of an exchange.
When = Callable[[Callable[[], Tensor]], Tensor]


class _Gather(FirstOrderFunction):
    """Local rows and those that `forwards` makes of a fetch; `backwards` makes of bringing home what is added."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, forwards: When, backwards: When, halo: Halo, comm: Communicator,
                tag: Tag) -> Tensor:
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
    def forward(ctx: Any, rows: Tensor, forwards: When, backwards: When, halo: Halo, comm: Communicator,
                tag: Tag) -> Tensor:
        ctx.rest = backwards, halo, comm, tag
        count = halo.num_local
        return rows[:count] + forwards(lambda: _brought_home(rows[count:], halo, comm, tag))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        backwards, halo, comm, tag = ctx.rest
        return (torch.cat((gradient, backwards(lambda: _fetched(gradient, halo, comm, tag)))),
                None, None, None, None, None)


def _fetched(local: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:
    """`[F, d]` foreign rows."""
    fresh = halo.fetch(local.contiguous(), comm, tag)
    assert isinstance(fresh, Tensor)
    return fresh


def _brought_home(foreign: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:
    """`[num_local, d]` what other ranks add to the rows here."""
    nothing = foreign.new_zeros(halo.num_local, foreign.shape[1])
    return halo.scatter_add_home(torch.cat((nothing, foreign)), comm, tag)


def _foreign(mixed: Rows, num_local: int) -> Rows:
    """The rows behind the local ones, in memory of their own."""
    if isinstance(mixed, SparseRows):
        return mixed.rows(torch.arange(num_local, mixed.shape[0], device=mixed.device))
    return mixed[num_local:].detach().clone()


def _arrived(rows: Tensor | Pending[Tensor]) -> Tensor:
    return rows if isinstance(rows, Tensor) else rows.result()


def states_of(places: Sequence[ExchangePoint]) -> list[Any]:
    """What a checkpoint holds of places that are not fresh, in order."""
    return [place.state() for place in places if not isinstance(place, Fresh)]


def restore_all(places: Sequence[ExchangePoint], states: Sequence[Any], device: torch.device) -> None:
    """Take back what `states_of` gave."""
    for place, state in zip([place for place in places if not isinstance(place, Fresh)], states, strict=True):
        place.restore(state, device)


def take_skipped_bytes(places: Sequence[ExchangePoint]) -> int:
    """What this rank did not send since the last call."""
    skipped = sum(place.skipped_bytes for place in places)
    for place in places:
        place.skipped_bytes = 0
    return skipped
