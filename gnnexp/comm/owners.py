"""All ranks work on each rank's micro-batch: its tensors are summed at the rank that owns it, or spread from it.

These are the two exchanges of push-pull parallelism (P3), and each is the transpose of the other. The tensors of a rank
are flattened into one payload, so each exchange is one round for any number of tensors. A sum may be under way while
the training loop computes (`StartedSum`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.background import Background
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.late import UnderWay, arrived_rows
from gnnexp.measure.ledger import Tag
from gnnexp.ops.first_order import FirstOrderFunction, applied

Shapes = Sequence[Sequence[tuple[int, ...]]]


def sum_at_owners(parts: Sequence[Sequence[Tensor]], comm: Communicator, tag: Tag) -> list[Tensor]:
    """The tensors of this rank's batch, summed over all ranks in rank order.

    Args:
        parts: `[ranks][k]`, this rank's summands of the k tensors of each rank's batch.
        comm: all ranks; all of them call.
        tag: under which traffic is counted.
    """
    return StartedSum(parts, comm, tag).result()


class StartedSum:
    """A sum at owners that has been started. All ranks start their sums in the same order.

    Args:
        parts: as for `sum_at_owners`. They must stay as they are until `result`.
        comm: all ranks. The backward pass exchanges gradients with it.
        tag: under which traffic is counted.
        background: the thread that sums while the loop computes, and its communicator; None: sum now.
    """

    def __init__(
        self,
        parts: Sequence[Sequence[Tensor]],
        comm: Communicator,
        tag: Tag,
        background: tuple[Background, Communicator] | None = None,
    ) -> None:
        self._parts, self._comm, self._tag = parts, comm, tag
        self._total: Tensor | UnderWay | None = None  # a single rank has nothing to add
        if comm.size == 1:
            return
        packets = [_packed([part.detach() for part in of_rank]) for of_rank in parts]
        if background is None:
            self._total = _total(packets, comm, tag)
        else:
            thread, among = background
            sent_bytes = sum(packet.nbytes for rank, packet in enumerate(packets) if rank != comm.rank)
            self._total = UnderWay(lambda: _total(packets, among, tag), thread, among, tag, sent_bytes)

    def result(self) -> list[Tensor]:
        """Wait for the sum of the tensors of this rank's batch, and make it part of the loop's graph; call it once."""
        self.wait()
        assert not isinstance(self._total, UnderWay)
        parts, self._parts = self._parts, []
        shapes = [[tuple(part.shape) for part in of_rank] for of_rank in parts]
        return list(applied(_SumAtOwners, self._comm, self._tag, shapes, self._total, *_flat(parts)))

    def wait(self) -> None:
        """Wait until nothing of this sum is under way."""
        if self._total is not None:
            self._total = arrived_rows(self._total)


def spread_from_owners(own: Sequence[Tensor], shapes: Shapes, comm: Communicator, tag: Tag) -> list[list[Tensor]]:
    """Every rank's tensors, `[ranks][k]`, on every rank.

    Args:
        own: the k tensors of this rank's batch.
        shapes: `[ranks][k]` shapes of all tensors.
        comm: all ranks; all of them call.
        tag: under which traffic is counted.
    """
    return _by_rank(list(applied(_SpreadFromOwners, comm, tag, shapes, *own)), shapes)


class _SumAtOwners(FirstOrderFunction):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        comm: Communicator,
        tag: Tag,
        shapes: Shapes,
        total: Tensor | None,
        *parts: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.rest = comm, tag, shapes
        if total is None:
            return tuple(part.clone() for part in parts)
        return tuple(_unpacked(total, shapes[comm.rank]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # noqa: ANN401
        comm, tag, shapes = ctx.rest
        return None, None, None, None, *_flat(_spread(gradients, shapes, comm, tag))


class _SpreadFromOwners(FirstOrderFunction):
    @staticmethod
    def forward(ctx: Any, comm: Communicator, tag: Tag, shapes: Shapes, *own: Tensor) -> tuple[Tensor, ...]:  # noqa: ANN401
        ctx.rest = comm, tag, shapes
        return tuple(_flat(_spread(own, shapes, comm, tag)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # noqa: ANN401
        comm, tag, shapes = ctx.rest
        return None, None, None, *_sum(_by_rank(list(gradients), shapes), comm, tag)


def _sum(parts: Sequence[Sequence[Tensor]], comm: Communicator, tag: Tag) -> list[Tensor]:
    own = parts[comm.rank]
    if comm.size == 1:
        return [part.clone() for part in own]
    return _unpacked(_total([_packed(of_rank) for of_rank in parts], comm, tag), [tuple(part.shape) for part in own])


def _total(packets: Sequence[Tensor], comm: Communicator, tag: Tag) -> Tensor:
    """This rank's packet, summed over all ranks in rank order."""
    total = torch.zeros_like(packets[comm.rank])
    for packet in comm.trade(packets, [total.numel()] * comm.size, tag):
        total += packet
    return total


def _spread(own: Sequence[Tensor], shapes: Shapes, comm: Communicator, tag: Tag) -> list[list[Tensor]]:
    packet = _packed(own)
    lengths = [sum(prod(shape) for shape in of_rank) for of_rank in shapes]
    packets = comm.all_gather(packet, lengths, tag)
    return [_unpacked(part, of_rank) for part, of_rank in zip(packets, shapes, strict=True)]


def _packed(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _unpacked(packet: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    pieces = torch.split_with_sizes(packet, [prod(shape) for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _flat(parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [part for of_rank in parts for part in of_rank]


def _by_rank(flat: list[Tensor], shapes: Shapes) -> list[list[Tensor]]:
    rest = iter(flat)
    return [[next(rest) for _ in of_rank] for of_rank in shapes]
