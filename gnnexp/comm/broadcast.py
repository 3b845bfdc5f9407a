"""Every part's rows to every rank, asked for or not: Sancus' sequential broadcasts (criticised in NeutronTP, 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.rows import exchange_rows, packed_bytes
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.measure.ledger import Tag


@dataclass(frozen=True, eq=False)
class WholeParts:
    """A halo of everybody: N broadcasts one after another, whose transpose is one reduction.

    Attributes:
        lengths: rows of every rank.
        rank: this one.
    """

    lengths: Sequence[int]
    rank: int

    @property
    def num_local(self) -> int:
        """Rows that are here."""
        return self.lengths[self.rank]

    def fetch(self, local: Rows, comm: Communicator, tag: Tag) -> Rows:
        """(N-1) copies of every row, in N rounds; of sparse rows in one exchange."""
        if isinstance(local, SparseRows):
            return exchange_rows(local.rows(self._copies(local.device)), self._sent, self._received, comm, tag)
        parts = []
        for source, length in enumerate(self.lengths):
            block = local.contiguous() if source == self.rank else local.new_empty((length, *local.shape[1:]))
            comm.broadcast(block, source, tag)
            if source != self.rank:
                parts.append(block)
        return torch.cat(parts)

    def fetch_bytes(self, local: Rows) -> int:
        """Of all rows here, N-1 times."""
        if isinstance(local, SparseRows):
            return (len(self.lengths) - 1) * packed_bytes(local)
        return (len(self.lengths) - 1) * local.numel() * local.element_size()

    def scatter_add_home(self, rows: Tensor, comm: Communicator, tag: Tag) -> Tensor:
        """One round: every rank sends each part's rows to its owner, who adds them in order of rank."""
        returned = comm.all_to_all(rows[self.num_local :], self._received, self._sent, tag)
        own = rows[: self.num_local].clone()
        for part in torch.split_with_sizes(returned, self._sent):
            if part.shape[0]:
                own += part
        return own

    @property
    def _sent(self) -> list[int]:
        return [0 if rank == self.rank else self.num_local for rank in range(len(self.lengths))]

    @property
    def _received(self) -> list[int]:
        return [0 if rank == self.rank else length for rank, length in enumerate(self.lengths)]

    def _copies(self, device: torch.device) -> Tensor:
        return torch.arange(self.num_local, device=device).repeat(len(self.lengths) - 1)
