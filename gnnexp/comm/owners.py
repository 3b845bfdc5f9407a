"""All ranks work on each rank's micro-batch: its tensors are summed at the rank that owns it, or spread from it.

These are the two exchanges of push-pull parallelism (P3), and each is the transpose of the other. The tensors of a rank
are flattened into one payload, so each exchange is one round for any number of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
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
    shapes = [[tuple(part.shape) for part in of_rank] for of_rank in parts]
    return list(applied(_SumAtOwners, comm, tag, shapes, *_flat(parts)))


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
    def forward(ctx: Any, comm: Communicator, tag: Tag, shapes: Shapes, *parts: Tensor) -> tuple[Tensor, ...]:  # noqa: ANN401
        ctx.rest = comm, tag, shapes
        return tuple(_sum(_by_rank(list(parts), shapes), comm, tag))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # noqa: ANN401
        comm, tag, shapes = ctx.rest
        return None, None, None, *_flat(_spread(gradients, shapes, comm, tag))


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
    packets = [_packed(of_rank) for of_rank in parts]
    total = torch.zeros_like(packets[comm.rank])
    for packet in comm.trade(packets, [total.numel()] * comm.size, tag):
        total += packet
    return _unpacked(total, [tuple(part.shape) for part in own])


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
