"""Split and gather (NeutronTP, section 3.1): from whole rows of some vertices to some columns of all, and back.

Both permute elements over the ranks, so each is the inverse and the transpose of the other. If rows or columns do not
divide evenly, the ranks' sizes differ by one. If there are fewer than ranks, some ranks have none. Columns may be
filled up with zeros before a split, as in the published code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnexp.comm.communicator import Communicator
from gnnexp.measure.ledger import Tag
from gnnexp.ops.first_order import FirstOrderFunction, applied


@dataclass(frozen=True)
class ColumnLayout:
    """Which rank has which rows, and which columns.

    Attributes:
        rows: number of rows of each rank.
        bounds: `[N + 1]`; rank r has the columns `bounds[r]:bounds[r + 1]`.
        rank: this rank.
    """

    rows: Sequence[int]
    bounds: Sequence[int]
    rank: int

    @property
    def columns(self) -> slice:
        """Columns of this rank."""
        return slice(self.bounds[self.rank], self.bounds[self.rank + 1])

    @property
    def width(self) -> int:
        """Number of columns of this rank."""
        return self.widths[self.rank]

    @property
    def widths(self) -> list[int]:
        """Number of columns of each rank. It is 0 for some if there are fewer columns than ranks."""
        return [stop - start for start, stop in pairwise(self.bounds)]


def even_sizes(count: int, num_ranks: int) -> list[int]:
    """`[N]` sizes that differ by at most one, the larger ones first."""
    return [count // num_ranks + (rank < count % num_ranks) for rank in range(num_ranks)]


def even_bounds(count: int, num_ranks: int) -> list[int]:
    """`[N + 1]` bounds of consecutive `even_sizes`."""
    return list(accumulate(even_sizes(count, num_ranks), initial=0))


def filled(rows: Tensor, layout: ColumnLayout) -> Tensor:
    """`[n, bounds[-1]]`: `rows` `[n, C]`, and zeros in the columns that only the layout has."""
    more = layout.bounds[-1] - rows.shape[1]
    return F.pad(rows, (0, more)) if more else rows


def unfilled(rows: Tensor, width: int) -> Tensor:
    """`[n, width]`: the rows without columns that `filled` added."""
    return rows if rows.shape[1] == width else rows[:, :width].contiguous()


def values_moved(rows: Sequence[int], bounds: Sequence[int]) -> int:
    """Values that all ranks send in one split, or in one gather: all but those that stay on their rank.

    Args:
        rows: number of rows of each rank.
        bounds: `[N + 1]` bounds of the ranks' columns.
    """
    kept = sum(count * (stop - start) for count, (start, stop) in zip(rows, pairwise(bounds), strict=True))
    return sum(rows) * bounds[-1] - kept


def to_columns(rows: Tensor, layout: ColumnLayout, comm: Communicator, tag: Tag) -> Tensor:
    """Split: from `[rows[rank], C]` to `[sum(rows), width]`, in rank order; one round, no gradient."""
    if comm.size == 1:
        return rows
    pieces = [rows[:, start:stop] for start, stop in pairwise(layout.bounds)]
    arrived = comm.trade(pieces, [count * layout.width for count in layout.rows], tag)
    return torch.cat([part.reshape(count, layout.width) for part, count in zip(arrived, layout.rows, strict=True)])


def to_rows(columns: Tensor, layout: ColumnLayout, comm: Communicator, tag: Tag) -> Tensor:
    """Gather: from `[sum(rows), width]`, in rank order, to `[rows[rank], C]`; one round, no gradient."""
    if comm.size == 1:
        return columns
    own, widths = layout.rows[layout.rank], layout.widths
    pieces = torch.split_with_sizes(columns, list(layout.rows))
    arrived = comm.trade(pieces, [own * width for width in widths], tag)
    return torch.cat([part.reshape(own, width) for part, width in zip(arrived, widths, strict=True)], 1)


def split(rows: Tensor, layout: ColumnLayout, comm: Communicator, tag: Tag) -> Tensor:
    """Differentiable `to_columns`."""
    return applied(_Split, rows, layout, comm, tag)


def gather(columns: Tensor, layout: ColumnLayout, comm: Communicator, tag: Tag) -> Tensor:
    """Differentiable `to_rows`."""
    return applied(_Gather, columns, layout, comm, tag)


def gather_all_rows(rows: Tensor, lengths: Sequence[int], comm: Communicator, tag: Tag) -> Tensor:
    """`[sum(lengths), k]`: every rank's rows on every rank. Backward sums the gradients of all ranks at the owner."""
    if comm.size == 1:
        return rows
    return applied(_GatherAllRows, rows, lengths, comm, tag)


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
        """Each rank used its own columns only, so its gradients are partial sums."""
        lengths, comm, tag = ctx.rest
        pieces = torch.split_with_sizes(gradient, list(lengths))
        total = torch.zeros_like(pieces[comm.rank])
        for part in comm.trade(pieces, [total.numel()] * comm.size, tag):
            total += part.view_as(total)
        return total, None, None, None
