"""GSplit's shuffle (sections 3 and 5): local rows go to the ranks that drew them, and gradients come back.

The index is built once per batch, during sampling. Every layer that reads the hop uses it, and backward uses its
transpose. `shuffle` is a gather, and its transpose is a reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.rows import exchange_rows, packed_bytes
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.crossing import across
from gnnexp.kernels.rows.gather import add_rows, gather_rows
from gnnexp.measure.ledger import Tag
from gnnexp.ops.first_order import FirstOrderFunction, applied


class Halo(Protocol):
    """The rows of other ranks that this rank needs: how they come here, and how their gradients go back."""

    @property
    def num_local(self) -> int:
        """Number of local rows."""

    @property
    def received(self) -> Sequence[int]:
        """Number of rows from each rank."""

    def only(self, senders: Sequence[int], rank: int) -> Halo:
        """The same halo for `fetch`, with rows of those ranks only whose entry in `senders` `[N]` is not 0.

        Args:
            senders: which ranks send.
            rank: this rank.
        """

    @property
    def num_foreign(self) -> int:
        """F, the number of rows that come from other ranks."""

    def fetch(self, local: Rows, comm: Communicator, tag: Tag) -> Rows:
        """Collective: `[F, d]` foreign rows in rank order, from the `[num_local, d]` local rows of all ranks."""

    def fetch_bytes(self, local: Rows) -> int:
        """Bytes that this rank sends in a `fetch`."""

    def scatter_add_home(self, rows: Tensor, comm: Communicator, tag: Tag) -> Tensor:
        """Collective, the transpose: `[num_local, d]` sums of local rows and of their copies on all ranks.

        Args:
            rows: `[num_local + F, d]`, local rows and then foreign rows in rank order.
            comm: among the ranks that share the halo.
            tag: under which traffic is counted.
        """


@dataclass(frozen=True, eq=False)
class ShuffleIndex:
    """Which rank needs which local row.

    Attributes:
        send_rows: `[sum(sent)]` int64 positions of local rows, ordered by receiving rank.
        sent: number of rows for each rank, 0 for this rank.
        received: number of rows from each rank.
        num_local: number of local rows.
    """

    send_rows: Tensor
    sent: tuple[int, ...]
    received: tuple[int, ...]
    num_local: int

    @property
    def num_foreign(self) -> int:
        """Number of rows that come from other ranks."""
        return sum(self.received)

    def nbytes(self) -> int:
        """Bytes of `send_rows`, which lies on the device."""
        return self.send_rows.nbytes

    def to(self, device: torch.device) -> ShuffleIndex:
        """The same index on another device."""
        return ShuffleIndex(across(self.send_rows, device), self.sent, self.received, self.num_local)

    def only(self, senders: Sequence[int], rank: int) -> ShuffleIndex:
        """The same index, with rows of some ranks only (`Halo.only`)."""
        received = tuple(count if sends else 0 for count, sends in zip(self.received, senders, strict=True))
        if senders[rank]:
            return replace(self, received=received)
        return ShuffleIndex(self.send_rows[:0], (0,) * len(self.sent), received, self.num_local)

    def fetch(self, local: Rows, comm: Communicator, tag: Tag) -> Rows:
        """One round; only needed rows are sent."""
        if isinstance(local, SparseRows):
            return exchange_rows(local.rows(self.send_rows), self.sent, self.received, comm, tag)
        return comm.all_to_all(gather_rows(local, self.send_rows), self.sent, self.received, tag)

    def fetch_bytes(self, local: Rows) -> int:
        """Bytes of the rows that other ranks need."""
        if isinstance(local, SparseRows):
            return packed_bytes(local.rows(self.send_rows))
        return self.send_rows.numel() * local.shape[1] * local.element_size()

    def scatter_add_home(self, rows: Tensor, comm: Communicator, tag: Tag) -> Tensor:
        """One round. Received rows are added in rank order, so that sums are deterministic."""
        returned = comm.all_to_all(rows[self.num_local :], self.received, self.sent, tag)
        own = rows[: self.num_local].clone()
        start = 0
        for count in self.sent:
            add_rows(own, self.send_rows[start : start + count], returned[start : start + count])
            start += count
        return own


def shuffle(local: Rows, halo: Halo, comm: Communicator, tag: Tag) -> Rows:
    """`[num_local + F, d]`: local rows, then the rows of other ranks in rank order (a gather).

    Args:
        local: `[num_local, d]`; sparse rows take no gradient.
        halo: which rows come from which rank.
        comm: among the ranks that share the batch; all of them call.
        tag: under which traffic is counted.
    """
    assert local.shape[0] == halo.num_local, "one row per local vertex"
    if comm.size == 1:
        return local
    if isinstance(local, SparseRows):
        foreign = halo.fetch(local, comm, tag)
        assert isinstance(foreign, SparseRows)
        return SparseRows.concatenated([local, foreign])
    return applied(Shuffle, local, halo, comm, tag)


def reduce_home(rows: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:
    """`[num_local, d]`: the rows of a vertex on all ranks, summed at its owner; the transpose of `shuffle`."""
    if comm.size == 1:
        return rows
    return applied(ReduceHome, rows, halo, comm, tag)


def reduce_max_home(rows: Tensor, index: ShuffleIndex, comm: Communicator, tag: Tag) -> Tensor:
    """`[num_local + F, d]`: the maximum over all copies of a vertex, at every copy. Two rounds; no gradient."""
    rows = rows.detach()
    if comm.size == 1:
        return rows
    own = rows[: index.num_local].clone()
    returned = comm.all_to_all(rows[index.num_local :], index.received, index.sent, tag)
    for places, part in zip(
        torch.split_with_sizes(index.send_rows, index.sent), torch.split_with_sizes(returned, index.sent), strict=True
    ):
        own[places] = torch.maximum(own[places], part)
    foreign = index.fetch(own, comm, tag)
    assert isinstance(foreign, Tensor)
    return torch.cat((own, foreign))


class Shuffle(FirstOrderFunction):
    """The differentiable exchange behind `shuffle`."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:  # noqa: ANN401
        """Exchange, and append foreign rows to local rows."""
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
        """Partial rows go to their owners, who add them."""
        ctx.rest = halo, comm, tag
        return halo.scatter_add_home(rows, comm, tag)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        """The gradient of a partial row is the gradient of its sum."""
        halo, comm, tag = ctx.rest
        foreign = halo.fetch(gradient.contiguous(), comm, tag)
        return torch.cat((gradient, foreign)), None, None, None
