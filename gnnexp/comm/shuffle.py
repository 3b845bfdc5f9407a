"""GSplit's shuffle (sections 3 and 5): rows of local vertices to the ranks that drew them, and gradients back.

The index is built once, while the batch is sampled, and used for every layer that reads the hop: forwards, and
transposed backwards. In the words of the design, `shuffle` is a gather whose transpose is a reduce.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.rows import exchange_rows
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.gather import add_rows, gather_rows
from gnnexp.measure.ledger import Tag


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


def shuffle(local: Rows, index: ShuffleIndex, comm: Communicator, tag: Tag) -> Rows:
    """`[num_local + num_foreign, d]`: local rows, then those of other ranks in order of rank.

    Args:
        local: `[num_local, d]`; sparse rows take no gradient.
        index: of the hop.
        comm: among the ranks that share the batch; all of them call.
        tag: what the rows are.
    """
    assert local.shape[0] == index.num_local, "one row per local vertex"
    if comm.size == 1:
        return local
    if isinstance(local, SparseRows):
        foreign = exchange_rows(local.rows(index.send_rows), index.sent, index.received, comm, tag)
        assert isinstance(foreign, SparseRows)
        return local.followed_by(foreign)
    mixed: Tensor = Shuffle.apply(local, index, comm, tag)  # type: ignore[no-untyped-call]
    return mixed


class Shuffle(Function):
    """The differentiable exchange behind `shuffle`."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, index: ShuffleIndex, comm: Communicator, tag: Tag) -> Tensor:  # noqa: ANN401
        """Gather, exchange, put behind the local rows."""
        ctx.rest = index, comm, tag
        foreign = comm.all_to_all(take_rows(local, index.send_rows), index.sent, index.received, tag)
        return torch.cat((local, foreign))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        """Gradients of foreign rows go home, where they are added rank by rank: the order of sums is fixed."""
        index, comm, tag = ctx.rest
        returned = comm.all_to_all(gradient[index.num_local :], index.received, index.sent, tag)
        own = gradient[: index.num_local].clone()
        start = 0
        for count in index.sent:
            add_to_rows(own, index.send_rows[start : start + count], returned[start : start + count])
            start += count
        return own, None, None, None


def take_rows(rows: Tensor, ids: Tensor) -> Tensor:
    """`rows[ids]`."""
    return rows.index_select(0, ids) if rows.is_cuda else gather_rows(rows, ids)


def add_to_rows(rows: Tensor, ids: Tensor, values: Tensor) -> None:
    """`rows[ids] += values`, unique `ids`, in place."""
    if rows.is_cuda:
        rows.index_add_(0, ids, values)
    else:
        add_rows(rows, ids, values)
