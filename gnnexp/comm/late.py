"""Rows that are used some epochs after they were sent: what is sent in an epoch, and what a rank uses meanwhile.

In epoch e, at an exchange of the model, with a delay of r epochs and n bins of vertices:

- *send* the rows of bin e mod n, in a background thread if there is one;
- *take* the rows that were sent in epoch e - r, which are those of bin (e - r) mod n; before epoch r there are none;
- *replace* the kept rows of this bin: kept = gamma kept + (1 - gamma) taken;
- *use* all kept rows. They are zero before their first arrival.

The bin of a vertex is its original id modulo n. So all copies of a vertex agree, in all layers and in both directions.
A row that is used was sent r to r + n - 1 epochs before.

DistGNN's cd-r (Md et al., SC 2021) is r = n. It calls this delayed remote partial aggregates. An epoch sends 1/n of
the partial sums, and each split vertex is sent every r epochs. In the published code (DGL pull request 2914), a sum
that arrived counts in one epoch only, and no gradients return. Here it counts until the next one arrives, and
gradients follow the same rule.

PipeGCN (Wan et al., ICLR 2022, Algorithm 1) is r = n = 1. Its smoothing (section 3.4) is gamma, for features (F),
gradients (G) or both (GF). As in its code (`helper/feature_buffer.py`), the average starts at zero, without a
correction.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.background import Background
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import Halo, ShuffleIndex
from gnnexp.measure.ledger import Tag, Traffic
from gnnexp.ops.first_order import FirstOrderFunction

ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Bin:
    """The rows that are sent in one epoch.

    Attributes:
        halo: exchange of these rows. Its local rows are the rows `own`.
        own: `[U]` positions of local rows that other ranks have copies of, or all local rows.
        foreign: `[F]` positions among foreign rows, or all of them.
    """

    halo: Halo
    own: Tensor | slice
    foreign: Tensor | slice

    def fetch(self, local: Tensor, comm: Communicator, tag: Tag) -> Tensor:
        """`[F, d]` foreign rows of the bin."""
        fetched = self.halo.fetch(local[self.own].contiguous(), comm, tag)
        assert isinstance(fetched, Tensor)
        return fetched

    def bring_home(self, foreign: Tensor, comm: Communicator, tag: Tag) -> Tensor:
        """`[U, d]`: what other ranks add to the rows `own`.

        Args:
            foreign: all foreign rows of this rank.
            comm: among the ranks that share the halo.
            tag: under which traffic is counted.
        """
        nothing = foreign.new_zeros(self.halo.num_local, foreign.shape[1])
        return self.halo.scatter_add_home(torch.cat((nothing, foreign[self.foreign])), comm, tag)


def bins_of(index: ShuffleIndex, ids: Tensor, num_bins: int) -> tuple[Bin, ...]:
    """The bins of a halo, without communication.

    Args:
        index: the whole halo.
        ids: `[num_local + F]` original ids of local rows, then of foreign rows.
        num_bins: n, the number of bins.
    """
    if num_bins == 1:
        return (Bin(index, ALL, ALL),)
    rows, bins = index.send_rows.cpu(), ids.cpu().long() % num_bins
    sent, foreign = bins[: index.num_local][rows], bins[index.num_local :]
    return tuple(_bin(index, rows, sent == number, foreign == number) for number in range(num_bins))


def _bin(index: ShuffleIndex, rows: Tensor, is_sent: Tensor, is_received: Tensor) -> Bin:
    """The bin of the sent rows and of the foreign rows that are marked."""
    device = index.send_rows.device
    own, places = torch.unique(rows[is_sent], return_inverse=True)
    part = ShuffleIndex(places, _counts(is_sent, index.sent), _counts(is_received, index.received), own.numel())
    return Bin(part.to(device), own.to(device), torch.nonzero(is_received).flatten().to(device))


def _counts(chosen: Tensor, lengths: Sequence[int]) -> tuple[int, ...]:
    """Number of chosen rows of each rank."""
    return tuple(int(piece.sum()) for piece in torch.split_with_sizes(chosen, list(lengths)))


class UnderWay:
    """An exchange in the background. Its traffic belongs to the epoch that starts it, and its seconds to the waiting.

    Args:
        exchange: one round of `sent_bytes`.
        background: the thread that runs it.
        comm: communicator of this thread.
        tag: under which traffic is counted.
        sent_bytes: bytes that this rank sends.
    """

    def __init__(
        self, exchange: Callable[[], Tensor], background: Background, comm: Communicator, tag: Tag, sent_bytes: int
    ) -> None:
        self._comm, self._tag, self._sent = comm, tag, Traffic(sent_bytes, 1)
        self._seen = Traffic()
        comm.ledger.add({tag: self._sent})

        def run() -> Tensor:
            with comm.ledger.apart() as counted:
                rows = exchange()
            self._seen = counted[tag]
            return rows

        self._pending = background.start(run)

    def result(self) -> Tensor:
        """Wait for the exchange; call it once."""
        rows = self._pending.result()
        seen = (self._seen.sent_bytes, self._seen.rounds)
        assert seen == (self._sent.sent_bytes, self._sent.rounds), f"{seen} were sent, and {self._sent} counted"
        self._comm.ledger.add({self._tag: Traffic(seconds=self._seen.seconds)})
        return rows


class LateRows:
    """The rows of one exchange in one direction.

    Args:
        epochs: r, the delay, at least 1.
        num_bins: n.
        smoothing: gamma, 0 for none.

    Attributes:
        sent: rows that have been sent and are not used yet, oldest first.
        kept: `[F, d]` or `[num_local, d]` rows that are used, None before the first epoch. Without bins and smoothing
            nothing is kept, because all rows are replaced in every epoch.
    """

    def __init__(self, epochs: int, num_bins: int = 1, smoothing: float = 0.0) -> None:
        self._epochs, self._num_bins, self._smoothing = epochs, num_bins, smoothing
        self.sent: deque[Tensor | UnderWay] = deque()
        self.kept: Tensor | None = None

    def __len__(self) -> int:
        return len(self.sent)

    @property
    def keeps(self) -> bool:
        """Whether rows are used in several epochs."""
        return self._num_bins > 1 or self._smoothing > 0

    def use(
        self, new: Tensor | UnderWay, epoch: int, nothing: Callable[[], Tensor], places: Sequence[Tensor | slice]
    ) -> Tensor:
        """The rows to use in this epoch; they change in the next one.

        Args:
            new: the exchange of this epoch.
            epoch: this epoch.
            nothing: makes zeros of the shape of the result.
            places: for each bin, its rows in the result.
        """
        self.sent.append(new)
        arrived = arrived_rows(self.sent.popleft()) if len(self.sent) > self._epochs else None
        if not self.keeps:
            return nothing() if arrived is None else arrived
        if self.kept is None:
            self.kept = nothing()
        if arrived is not None:
            place, gamma = places[(epoch - self._epochs) % self._num_bins], self._smoothing
            self.kept[place] = gamma * self.kept[place] + (1 - gamma) * arrived if gamma else arrived
        return self.kept

    def drain(self) -> None:
        """Wait for all exchanges that have been started."""
        arrived = [arrived_rows(rows) for rows in self.sent]
        self.sent.clear()
        self.sent.extend(arrived)

    def restore(self, sent: Sequence[Tensor], kept: Tensor | None, device: torch.device) -> None:
        """Restore `sent` and `kept`."""
        self.sent = deque(rows.to(device) for rows in sent)
        self.kept = None if kept is None else kept.to(device)


def arrived_rows(rows: Tensor | UnderWay) -> Tensor:
    """The rows; waits for them if they are under way."""
    return rows if isinstance(rows, Tensor) else rows.result()


class LateExchange:
    """Both directions of an exchange between all ranks.

    Args:
        halo: the whole exchange.
        bins: its bins.
        background: the thread that exchanges and its communicator; None: the loop waits for each exchange.

    Attributes:
        num_foreign: F, the number of foreign rows.
        skipped_bytes: bytes that this rank did not send, because their bin was not that of the epoch.
    """

    def __init__(self, halo: Halo, bins: Sequence[Bin], background: tuple[Background, Communicator] | None) -> None:
        self._halo, self._bins, self._background = halo, bins, background
        self._own, self._foreign = [it.own for it in bins], [it.foreign for it in bins]
        self.num_foreign, self.skipped_bytes = halo.num_foreign, 0

    def fetch(self, local: Tensor, late: LateRows, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """`[F, d]` foreign rows to use; sends local rows."""
        local, part = local.detach(), self._bins[epoch % len(self._bins)]
        num_bytes = part.halo.fetch_bytes(local)
        self.skipped_bytes += self._halo.fetch_bytes(local) - num_bytes
        new = self._start(lambda among: part.fetch(local, among, tag), comm, tag, num_bytes)
        shape = self.num_foreign, local.shape[1]
        return late.use(new, epoch, lambda: local.new_zeros(shape), self._foreign)

    def bring_home(self, foreign: Tensor, late: LateRows, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """`[num_local, d]` sums to add to local rows; sends foreign rows."""
        foreign, part = foreign.detach(), self._bins[epoch % len(self._bins)]
        row = foreign.shape[1] * foreign.element_size()
        self.skipped_bytes += (self.num_foreign - part.halo.num_foreign) * row
        new = self._start(lambda among: part.bring_home(foreign, among, tag), comm, tag, part.halo.num_foreign * row)
        shape = self._halo.num_local, foreign.shape[1]
        return late.use(new, epoch, lambda: foreign.new_zeros(shape), self._own)

    def _start(
        self, exchange: Callable[[Communicator], Tensor], comm: Communicator, tag: Tag, num_bytes: int
    ) -> Tensor | UnderWay:
        if self._background is None:
            return exchange(comm)
        thread, among = self._background
        return UnderWay(lambda: exchange(among), thread, among, tag, num_bytes)


class LateGather(FirstOrderFunction):
    """Local rows, then late foreign rows. Gradients of foreign rows come home late."""

    @staticmethod
    def forward(
        ctx: Any,
        local: Tensor,
        exchange: LateExchange,
        forwards: LateRows,
        backwards: LateRows,
        epoch: int,
        comm: Communicator,
        tag: Tag,
    ) -> Tensor:
        """`[num_local + F, d]`."""
        ctx.rest = exchange, backwards, epoch, comm, tag
        return torch.cat((local, exchange.fetch(local, forwards, epoch, comm, tag)))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """`[num_local, d]`."""
        exchange, backwards, epoch, comm, tag = ctx.rest
        count = gradient.shape[0] - exchange.num_foreign
        added = exchange.bring_home(gradient[count:], backwards, epoch, comm, tag)
        return gradient[:count] + added, *(None,) * 6


class LateReduce(FirstOrderFunction):
    """Sums of local rows with late parts of other ranks, the transpose of `LateGather`."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        exchange: LateExchange,
        forwards: LateRows,
        backwards: LateRows,
        epoch: int,
        comm: Communicator,
        tag: Tag,
    ) -> Tensor:
        """`[num_local, d]`."""
        ctx.rest = exchange, backwards, epoch, comm, tag
        count = rows.shape[0] - exchange.num_foreign
        return rows[:count] + exchange.bring_home(rows[count:], forwards, epoch, comm, tag)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """`[num_local + F, d]`."""
        exchange, backwards, epoch, comm, tag = ctx.rest
        return torch.cat((gradient, exchange.fetch(gradient, backwards, epoch, comm, tag))), *(None,) * 6
