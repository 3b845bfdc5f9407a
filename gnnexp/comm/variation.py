"""Adaptive skipping: a rank sends rows again only if they have moved enough (Sancus, Peng et al., PVLDB 15(9), 2022).

Sancus bounds how stale historical embeddings are: by epochs (`arrival.Stale`), or by the variation of the embeddings.
Each rank decides for itself and for each layer. It sends its rows again in epoch t, if

    |H_t - H_s|_F >= bound * |H_s|_F   and   H_t != H_s

H_t `[n, d]` are its embeddings of this epoch, before dropout. H_s are those of epoch s, in which it sent them last.
Otherwise all other ranks use the rows of epoch s again, dropped as they were. With bound 0 all rows are always sent.

One flag of each rank says who sends; it goes to all ranks before the rows. Gradients go home in every epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.arrival import Arrival, ExchangePoint, Fresh, used_with_old
from gnnexp.comm.background import Background
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.late import Bin
from gnnexp.comm.shuffle import Halo
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.measure.ledger import Tag


@dataclass(frozen=True)
class Variation(Arrival):
    """Rows of other ranks are used until they have moved by more than a bound.

    Attributes:
        bound: smallest relative variation that is sent, see the top of this file.
    """

    bound: float = 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether all rows are always sent."""
        return self.bound == 0

    @property
    def approximates(self) -> str:
        """The approximation in words, and that its traffic has no formula; empty if everything is fresh."""
        if self.is_fresh:
            return ""
        return (
            f"rows of other ranks are old until they move by {self.bound:g} of their norm; how much is sent depends on "
            f"values and cannot be counted without training"
        )

    def at(
        self,
        halo: Halo,
        bins: Sequence[Bin] | None = None,
        background: tuple[Background, Communicator] | None = None,
    ) -> ExchangePoint:
        """An exchange point with this arrival, for which there are no bins and no background."""
        return Fresh(halo) if self.is_fresh else Varied(halo, self.bound)


class Varied(ExchangePoint):
    """Fetched rows are reused until their owner says that they have moved.

    Args:
        halo: how rows come.
        bound: see the top of this file.

    Attributes:
        rows: `[F, d]` last rows of other ranks, in rank order; None before the first.
        sent: `[n, d]` embeddings of this rank, as they were when it sent its rows last; None for constant features.
    """

    def __init__(self, halo: Halo, bound: float) -> None:
        super().__init__(halo)
        self._bound = bound
        self._embeddings: Callable[[], Rows | None] = _constant
        self.rows: Rows | None = None
        self.sent: Tensor | None = None

    def watch(self, embeddings: Callable[[], Rows | None]) -> None:
        """Decide the next `gather` by these embeddings. Without a call, rows are constant and sent once."""
        self._embeddings = embeddings

    def gather(self, local: Rows, epoch: int, comm: Communicator, tag: Tag) -> Rows:
        """Local rows, with those rows of other ranks that moved, and old ones of the others."""
        if comm.size == 1:
            return local
        sends = self._moved()
        flags = comm.swap(torch.full((comm.size, 1), int(sends))).flatten().tolist()
        if not sends:
            self.skipped_bytes += self.halo.fetch_bytes(local)
        if any(flags):
            still = local.detach() if isinstance(local, Tensor) else local
            self._renew(self.halo.only(flags, comm.rank).fetch(still, comm, tag), flags)
        assert self.rows is not None, "all ranks send their first rows"
        return used_with_old(local, self.rows, self.halo, comm, tag)

    def reduce(self, rows: Tensor, epoch: int, comm: Communicator, tag: Tag) -> Tensor:
        """Not used: sums over a vertex-cut are refused."""
        raise AssertionError("sums have no variation of their own")

    def _moved(self) -> bool:
        """Whether this rank sends its rows. If so, `sent` are its embeddings of now."""
        with torch.no_grad():
            embeddings = self._embeddings()
        self._embeddings = _constant
        if isinstance(embeddings, Tensor):
            now = embeddings.detach()
            if self.sent is not None and not _has_moved(now, self.sent, self._bound):
                return False
            self.sent = now.clone()
            return True
        return self.rows is None

    def _renew(self, arrived: Rows, flags: Sequence[int]) -> None:
        """Replace the rows of the ranks that sent."""
        if self.rows is None:
            assert all(flags), "all ranks send their first rows"
            self.rows = arrived
            return
        assert isinstance(self.rows, Tensor), "sparse features are constant"
        assert isinstance(arrived, Tensor)
        counts = self.halo.received
        old = self.rows.split_with_sizes(list(counts))
        new = arrived.split_with_sizes([count if flag else 0 for count, flag in zip(counts, flags, strict=True)])
        self.rows = torch.cat([fresh if flag else kept for fresh, kept, flag in zip(new, old, flags, strict=True)])

    def state(self) -> Any:  # noqa: ANN401
        """The rows of other ranks and the embeddings that were sent; sparse rows as `(indptr, columns, values, D)`."""
        rows = self.rows
        if isinstance(rows, SparseRows):
            return (rows.indptr, rows.columns, rows.values, rows.num_columns), self.sent
        return rows, self.sent

    def restore(self, state: Any, device: torch.device) -> None:  # noqa: ANN401
        """Restore both."""
        rows, sent = state
        self.sent = None if sent is None else sent.to(device)
        if isinstance(rows, tuple):
            self.rows = SparseRows(*rows).on(device)
        else:
            self.rows = None if rows is None else rows.to(device)


def _constant() -> None:
    """Embeddings of constant rows: they need not be compared."""


def _has_moved(now: Tensor, before: Tensor, bound: float) -> bool:
    moved = float(torch.linalg.vector_norm(now - before))
    return moved > 0 and moved >= bound * float(torch.linalg.vector_norm(before))
