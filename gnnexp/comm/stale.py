"""Rows of other ranks that are used again for some epochs before they are fetched anew (Sancus' historical embeddings).

Published: broadcasts are skipped while what others know is fresh enough; the artifact does it by a fixed schedule and
always sends gradients back. Here a row is at most `bound` epochs old, and gradients with respect to old rows go home
in every epoch. With bound 0 nothing is ever old: exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import Halo, shuffle
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.measure.ledger import Tag
from gnnexp.ops.first_order import FirstOrderFunction


class StaleRows:
    """The foreign rows of one layer and when they were fetched.

    Args:
        halo: how fresh rows come.
        bound: epochs that rows may be old.

    Attributes:
        rows: `[F, d]` as they were last fetched, None before.
        fetched_in: the epoch of that.
        skipped_bytes: what this rank did not send because of that, since this was last set to 0.
    """

    def __init__(self, halo: Halo, bound: int) -> None:
        self._halo, self._bound = halo, bound
        self.rows: Rows | None = None
        self.fetched_in, self.skipped_bytes = 0, 0

    def gather(self, local: Rows, epoch: int, comm: Communicator, tag: Tag) -> Rows:
        """`[num_local + F, d]` as `shuffle` does, with fresh or with old foreign rows; the same on all ranks."""
        if comm.size == 1:
            return local
        if self.rows is None or epoch - self.fetched_in > self._bound:
            mixed = shuffle(local, self._halo, comm, tag)
            if self._bound:  # else nothing may be used again, in a later step of the epoch neither
                self.fetched_in, self.rows = epoch, _foreign(mixed, self._halo.num_local)
            return mixed
        self.skipped_bytes += self._halo.fetch_bytes(local)
        if isinstance(local, SparseRows):
            assert isinstance(self.rows, SparseRows)
            return local.followed_by(self.rows)
        old: Tensor = _Old.apply(local, self.rows, self._halo, comm, tag)  # type: ignore[no-untyped-call]
        return old

    def state(self) -> tuple[Any, int]:
        """What a checkpoint holds of it: the rows, sparse ones as `(indptr, columns, values, D)`, and their epoch."""
        rows = self.rows
        if isinstance(rows, SparseRows):
            return (rows.indptr, rows.columns, rows.values, rows.num_columns), self.fetched_in
        return rows, self.fetched_in

    def restore(self, state: tuple[Any, int], device: torch.device) -> None:
        """Take back what `state` gave."""
        rows, self.fetched_in = state
        if isinstance(rows, tuple):
            self.rows = SparseRows(*rows).on(device)
        else:
            self.rows = None if rows is None else rows.to(device)

    def forget(self) -> None:
        """As if nothing had been fetched."""
        self.rows, self.fetched_in, self.skipped_bytes = None, 0, 0


def _foreign(mixed: Rows, num_local: int) -> Rows:
    """The rows behind the local ones, in memory of their own."""
    if isinstance(mixed, SparseRows):
        return mixed.rows(torch.arange(num_local, mixed.shape[0], device=mixed.device))
    return mixed[num_local:].detach().clone()


class _Old(FirstOrderFunction):
    """Local rows and old foreign ones; only gradients travel."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, old: Tensor, halo: Halo, comm: Communicator, tag: Tag) -> Tensor:  # noqa: ANN401
        ctx.rest = halo, comm, tag
        return torch.cat((local, old))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        halo, comm, tag = ctx.rest
        return halo.put_back(gradient, comm, tag), None, None, None, None
