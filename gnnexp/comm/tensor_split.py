"""Split and gather (NeutronTP, section 3.1): from whole rows of some vertices to some columns of all, and back.

Each is a permutation of elements over the ranks, so each is the other's inverse and transpose. Nothing is padded: rows
and columns that do not divide go to ranks whose shares differ by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.measure.ledger import Tag
from gnnexp.ops.first_order import FirstOrderFunction


@dataclass(frozen=True)
class ColumnLayout:
    """Who has which rows, and which columns.

    Attributes:
        rows: number of rows of every rank.
        bounds: `[N + 1]` columns; rank r has `bounds[r]:bounds[r + 1]`.
        rank: this one.
    """

    rows: Sequence[int]
    bounds: Sequence[int]
    rank: int

    @property
    def columns(self) -> slice:
        """This rank's."""
        return slice(self.bounds[self.rank], self.bounds[self.rank + 1])

    @property
    def width(self) -> int:
        """Number of this rank's columns."""
        return self.bounds[self.rank + 1] - self.bounds[self.rank]


def even_sizes(count: int, num_ranks: int) -> list[int]:
    """`[N]` sizes that differ by at most one, larger ones first."""
    return [count // num_ranks + (rank < count % num_ranks) for rank in range(num_ranks)]


def even_bounds(count: int, num_ranks: int) -> list[int]:
    """`[N + 1]` bounds of consecutive `even_sizes`."""
    bounds = [0]
    for size in even_sizes(count, num_ranks):
        bounds.append(bounds[-1] + size)
    return bounds


def to_columns(rows: Tensor, layout: ColumnLayout, comm: Communicator, tag: Tag) -> Tensor:
    """*Split*: `[rows[rank], C]` to `[sum(rows), width]`, those of rank 0 first; one round, no gradient."""
    if comm.size == 1:
        return rows
    pieces = [rows[:, start:stop] for start, stop in pairwise(layout.bounds)]
    sent = [0 if rank == layout.rank else piece.numel() for rank, piece in enumerate(pieces)]
    received = [0 if rank == layout.rank else count * layout.width for rank, count in enumerate(layout.rows)]
    payload = torch.cat([piece.reshape(-1) for rank, piece in enumerate(pieces) if rank != layout.rank])
    arrived = torch.split_with_sizes(comm.all_to_all(payload, sent, received, tag), received)
    whole = [pieces[rank] if rank == layout.rank else part.view(layout.rows[rank], layout.width)
             for rank, part in enumerate(arrived)]
    return torch.cat(whole)


def to_rows(columns: Tensor, layout: ColumnLayout, comm: Communicator, tag: Tag) -> Tensor:
    """*Gather*: `[sum(rows), width]`, rows of rank 0 first, to `[rows[rank], C]`; one round, no gradient."""
    if comm.size == 1:
        return columns
    own = layout.rows[layout.rank]
    widths = [stop - start for start, stop in pairwise(layout.bounds)]
    pieces = torch.split_with_sizes(columns, list(layout.rows))
    sent = [0 if rank == layout.rank else piece.numel() for rank, piece in enumerate(pieces)]
    received = [0 if rank == layout.rank else own * width for rank, width in enumerate(widths)]
    payload = torch.cat([piece.reshape(-1) for rank, piece in enumerate(pieces) if rank != layout.rank])
    arrived = torch.split_with_sizes(comm.all_to_all(payload, sent, received, tag), received)
    whole = [pieces[rank] if rank == layout.rank else part.view(own, widths[rank])
             for rank, part in enumerate(arrived)]
    return torch.cat(whole, 1)


def split(rows: Tensor, layout: ColumnLayout, comm: Communicator, tag: Tag) -> Tensor:
    """Differentiable `to_columns`."""
    columns: Tensor = _Split.apply(rows, layout, comm, tag)  # type: ignore[no-untyped-call]
    return columns


def gather(columns: Tensor, layout: ColumnLayout, comm: Communicator, tag: Tag) -> Tensor:
    """Differentiable `to_rows`."""
    rows: Tensor = _Gather.apply(columns, layout, comm, tag)  # type: ignore[no-untyped-call]
    return rows


def gather_all_rows(rows: Tensor, lengths: Sequence[int], comm: Communicator, tag: Tag) -> Tensor:
    """`[sum(lengths), k]`: every rank's rows on every rank; backward sums all ranks' gradients at the owner."""
    if comm.size == 1:
        return rows
    everyone: Tensor = _GatherAllRows.apply(rows, lengths, comm, tag)  # type: ignore[no-untyped-call]
    return everyone


class _Split(FirstOrderFunction):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, layout: ColumnLayout, comm: Communicator, tag: Tag) -> Tensor:  # noqa: ANN401
        ctx.rest = layout, comm, tag
        return to_columns(rows, layout, comm, tag)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        return to_rows(gradient, *ctx.rest), None, None, None


class _Gather(FirstOrderFunction):
    @staticmethod
    def forward(ctx: Any, columns: Tensor, layout: ColumnLayout, comm: Communicator, tag: Tag) -> Tensor:  # noqa: ANN401
        ctx.rest = layout, comm, tag
        return to_rows(columns, layout, comm, tag)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        return to_columns(gradient, *ctx.rest), None, None, None


class _GatherAllRows(FirstOrderFunction):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, lengths: Sequence[int], comm: Communicator, tag: Tag) -> Tensor:  # noqa: ANN401
        ctx.rest = lengths, comm, tag
        return torch.cat(comm.all_gather(rows, lengths, tag))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        """Each rank weighed with its own columns only: its gradients are parts of sums."""
        lengths, comm, tag = ctx.rest
        own = lengths[comm.rank]
        sent = [0 if rank == comm.rank else length for rank, length in enumerate(lengths)]
        received = [0 if rank == comm.rank else own for rank in range(comm.size)]
        pieces = torch.split_with_sizes(gradient, list(lengths))
        payload = torch.cat([piece for rank, piece in enumerate(pieces) if rank != comm.rank])
        arrived = torch.split_with_sizes(comm.all_to_all(payload, sent, received, tag), received)
        total = torch.zeros_like(pieces[comm.rank])
        for rank, part in enumerate(arrived):
            total += pieces[rank] if rank == comm.rank else part
        return total, None, None, None
