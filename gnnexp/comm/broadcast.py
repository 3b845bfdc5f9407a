"""Sequential broadcasts of whole parts to all ranks, as in Sancus (criticised in NeutronTP, section 5.2)."""

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
    """A `Halo` (see `gnnexp.comm.shuffle`) with all rows of all other ranks: N broadcasts in sequence.

    Attributes:
        lengths: number of rows of each rank.
        rank: this rank.
        senders: for each rank, whether `fetch` has its rows; None: all ranks.
    """

    lengths: Sequence[int]
    rank: int
    senders: Sequence[bool] | None = None

    @property
    def num_local(self) -> int:
        """Number of local rows."""
        return self.lengths[self.rank]

    @property
    def received(self) -> Sequence[int]:
        """Number of rows from each rank."""
        return [length if rank != self.rank and self._sends(rank) else 0 for rank, length in enumerate(self.lengths)]

    def only(self, senders: Sequence[int], rank: int) -> WholeParts:
        """The same parts, of some ranks only (`Halo.only`)."""
        return WholeParts(self.lengths, rank, tuple(bool(sends) for sends in senders))

    @property
    def num_foreign(self) -> int:
        """Number of rows of all other ranks."""
        return sum(self.lengths) - self.num_local

    def fetch(self, local: Rows, comm: Communicator, tag: Tag) -> Rows:
        """The rows of the other ranks, in rank order. Dense rows take one round for each rank, sparse rows one."""
        if isinstance(local, SparseRows):
            return exchange_rows(local.rows(self._copies(local.device)), self._sent, self.received, comm, tag)
        parts = [local.new_empty((0, *local.shape[1:]))]
        for source, length in enumerate(self.lengths):
            if not self._sends(source):
                continue
            block = local.contiguous() if source == self.rank else local.new_empty((length, *local.shape[1:]))
            comm.broadcast(block, source, tag)
            if source != self.rank:
                parts.append(block)
        return torch.cat(parts)

    def fetch_bytes(self, local: Rows) -> int:
        """Bytes of N-1 copies of all local rows."""
        return (len(self.lengths) - 1) * (packed_bytes(local) if isinstance(local, SparseRows) else local.nbytes)

    def scatter_add_home(self, rows: Tensor, comm: Communicator, tag: Tag) -> Tensor:
        """One exchange sends each foreign row to its owner, which adds them to its own rows in rank order."""
        returned = comm.all_to_all(rows[self.num_local :], self.received, self._sent, tag)
        own = rows[: self.num_local].clone()
        for part in torch.split_with_sizes(returned, self._sent):
            if part.shape[0]:
                own += part
        return own

    def _sends(self, rank: int) -> bool:
        return self.senders is None or bool(self.senders[rank])

    @property
    def _sent(self) -> list[int]:
        own = self.num_local if self._sends(self.rank) else 0
        return [0 if rank == self.rank else own for rank in range(len(self.lengths))]

    def _copies(self, device: torch.device) -> Tensor:
        """Numbers of the local rows, once for each rank that gets them."""
        return torch.arange(self.num_local, device=device).repeat((len(self.lengths) - 1) * self._sends(self.rank))
