"""GSplit's shuffle (sections 3 and 5): rows of local vertices to the ranks that drew them, and gradients back.

The index is built once, while the batch is sampled, and used for every layer that reads the hop: forwards, and
transposed backwards. In the words of the design, `shuffle` is a gather whose transpose is a reduce.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.rows import exchange_rows, packed_bytes
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.rows.gather import add_rows, gather_rows
from gnnexp.measure.ledger import Tag
from gnnexp.ops.first_order import FirstOrderFunction


class Halo(Protocol):
    """Rows of other ranks that this one needs, and how they come here and their gradients go back."""

    @property
    def num_local(self) -> int:
        """Rows that are here."""

    def fetch(self, local: Rows, comm: Communicator, tag: Tag) -> Rows:
        """`[F, d]` foreign rows, in order of rank, given the `[num_local, d]` rows that are here; collective."""

    def fetch_bytes(self, local: Rows) -> int:
        """What this rank sends in a `fetch`."""

    def scatter_add_home(self, rows: Tensor, comm: Communicator, tag: Tag) -> Tensor:
        """The transpose: `[num_local, d]` sums at home of `[num_local + F, d]` rows here and elsewhere; collective."""


@dataclass(frozen=True, eq=False)
class ShuffleIndex:
    """Who needs which local row.

    Attributes:
        send_rows: `[sum(sent)]` int64 positions of local rows, those for rank 0 first.
        sent: rows for each rank, 0 for this one.
        received: rows from each rank.
        num_local: local rows.
    """

    send_rows: Tensor
    sent: tuple[int, ...]
    received: tuple[int, ...]
    num_local: int

    @property
    def num_foreign(self) -> int:
        """Rows that come from other ranks."""
        return sum(self.received)

    def nbytes(self) -> int:
        """Bytes of what lies on the device."""
        return self.send_rows.numel() * self.send_rows.element_size()

    def to(self, device: torch.device) -> ShuffleIndex:
        """The same index on another device."""
        return ShuffleIndex(self.send_rows.to(device), self.sent, self.received, self.num_local)

    def fetch(self, local: Rows, comm: Communicator, tag: Tag) -> Rows:
        """One round, only the rows that are needed."""
        if isinstance(local, SparseRows):
            return exchange_rows(local.rows(self.send_rows), self.sent, self.received, comm, tag)
        return comm.all_to_all(take_rows(local, self.send_rows), self.sent, self.received, tag)

    def fetch_bytes(self, local: Rows) -> int:
        """Of the rows that others need."""
        if isinstance(local, SparseRows):
            return packed_bytes(local.rows(self.send_rows))
        return self.send_rows.numel() * local.shape[1] * local.element_size()

    def scatter_add_home(self, rows: Tensor, comm: Communicator, tag: Tag) -> Tensor:
        """One round; what arrives is added rank by rank: the order of sums is fixed."""
        returned = comm.all_to_all(rows[self.num_local :], self.received, self.sent, tag)
        own = rows[: self.num_local].clone()
        start = 0
        for count in self.sent:
            add_to_rows(own, self.send_rows[start : start + count], returned[start : start + count])
            start += count
        return own


def shuffle(local: Rows, halo: Halo, comm: Communicator, tag: Tag) -> Rows:
    """`[num_local + F, d]`: local rows, then those of other ranks in order of rank (a *gather*).

    Args:
        local: `[num_local, d]`; sparse rows take no gradient.
        halo: what comes from where.
        comm: among the ranks that share the batch; all of them call.
        tag: what the rows are.
    """
    assert local.shape[0] == halo.num_local, "one row per local vertex"
    if comm.size == 1:
        return local
    if isinstance(local, SparseRows):
        foreign = halo.fetch(local, comm, tag)
        assert isinstance(foreign, SparseRows)
        return local.followed_by(foreign)
    mixed: Tensor = Shuffle.apply(local, halo, comm, tag)  # type: ignore[no-untyped-call]
    return mixed


def reduce_home(rows: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:
    """`[num_local, d]`: rows of `[num_local + F, d]` summed where their vertices live, the transpose of `shuffle`."""
    if comm.size == 1:
        return rows
    home: Tensor = ReduceHome.apply(rows, halo, comm, tag)  # type: ignore[no-untyped-call]
    return home


def reduce_max_home(rows: Tensor, index: ShuffleIndex, comm: Communicator, tag: Tag) -> Tensor:
    """`[num_local + F, d]`: the largest entries over all copies of a vertex, at every copy; no gradient, two rounds."""
    rows = rows.detach()
    if comm.size == 1:
        return rows
    own = rows[: index.num_local].clone()
    returned = comm.all_to_all(rows[index.num_local :], index.received, index.sent, tag)
    for places, part in zip(torch.split_with_sizes(index.send_rows, index.sent),
                            torch.split_with_sizes(returned, index.sent), strict=True):
        own[places] = torch.maximum(own[places], part)
    foreign = index.fetch(own, comm, tag)
    assert isinstance(foreign, Tensor)
    return torch.cat((own, foreign))


class Shuffle(FirstOrderFunction):
    """The differentiable exchange behind `shuffle`."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:  # noqa: ANN401
        """Gather, exchange, put behind the local rows."""
        ctx.rest = halo, comm, tag
        foreign = halo.fetch(local, comm, tag)
        assert isinstance(foreign, Tensor)
        return torch.cat((local, foreign))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        """Gradients of foreign rows go home."""
        halo, comm, tag = ctx.rest
        return halo.scatter_add_home(gradient, comm, tag), None, None, None


class ReduceHome(FirstOrderFunction):
    """The differentiable exchange behind `reduce_home`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:  # noqa: ANN401
        """Partial rows go home, where they are added."""
        ctx.rest = halo, comm, tag
        return halo.scatter_add_home(rows, comm, tag)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        """Every partial row's gradient is that of its sum."""
        halo, comm, tag = ctx.rest
        foreign = halo.fetch(gradient.contiguous(), comm, tag)
        return torch.cat((gradient, foreign)), None, None, None


def take_rows(rows: Tensor, ids: Tensor) -> Tensor:
    """`rows[ids]`."""
    return rows.index_select(0, ids) if rows.is_cuda else gather_rows(rows, ids)


def add_to_rows(rows: Tensor, ids: Tensor, values: Tensor) -> None:
    """`rows[ids] += values`, unique `ids`, in place."""
    if rows.is_cuda:
        rows.index_add_(0, ids, values)
    else:
        add_rows(rows, ids, values)
