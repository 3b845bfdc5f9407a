"""What carries the payloads of a communicator: process groups of torch, or (in `virtual.py`) ranks in one process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class Carrier(ABC):
    """The collectives of a group of ranks, without tags, times and counts. Ranks have numbers within the group."""

    @abstractmethod
    def all_reduce(self, payload: Tensor) -> None:
        """Sum `payload` over all ranks, in place."""

    @abstractmethod
    def broadcast(self, payload: Tensor, source: int) -> None:
        """Copy the `payload` of rank `source` to every rank, in place."""

    @abstractmethod
    def all_to_all(self, target: Tensor, payload: Tensor, received: Sequence[int], sent: Sequence[int]) -> None:
        """Fill `target` with `received[r]` rows from each rank r; `payload` has `sent[r]` rows for each rank r."""

    @abstractmethod
    def spread(self, payload: Tensor, parts: Sequence[Tensor], rank: int) -> None:
        """Fill `parts[r]` with the `payload` of each other rank r. This rank is `rank`."""

    @abstractmethod
    def gather(self, own: Tensor, size: int) -> list[Tensor]:
        """The host tensors of all `size` ranks, which have the same shape."""

    @abstractmethod
    def start_max(self, numbers: Tensor) -> dist.Work:
        """Start to replace `numbers` by their maximum over ranks."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks."""

    def among(self, ranks: Sequence[int], rank: int) -> Carrier | None:
        """The carrier of another group of these ranks of the run, one of which is `rank`; None: torch makes groups."""
        return None


class TorchCarrier(Carrier):
    """A process group of torch.

    Args:
        group: the group; None: torch's default group.
        ranks: number of each rank of the group in the default group.
    """

    def __init__(self, group: dist.ProcessGroup | None, ranks: Sequence[int]) -> None:
        self._group, self._ranks = group, ranks

    def all_reduce(self, payload: Tensor) -> None:
        """See `Carrier`."""
        dist.all_reduce(payload, group=self._group)

    def broadcast(self, payload: Tensor, source: int) -> None:
        """See `Carrier`."""
        dist.broadcast(payload, src=self._ranks[source], group=self._group)

    def all_to_all(self, target: Tensor, payload: Tensor, received: Sequence[int], sent: Sequence[int]) -> None:
        """See `Carrier`."""
        dist.all_to_all_single(target, payload, list(received), list(sent), group=self._group)

    def spread(self, payload: Tensor, parts: Sequence[Tensor], rank: int) -> None:
        """See `Carrier`. All peers get the same tensor. An all-to-all of uneven parts would need a copy for each."""
        peers = [peer for peer in range(len(parts)) if peer != rank]
        steps = [dist.P2POp(dist.isend, payload, self._ranks[peer], self._group) for peer in peers if payload.numel()]
        steps += [
            dist.P2POp(dist.irecv, parts[peer], self._ranks[peer], self._group) for peer in peers if parts[peer].numel()
        ]
        for work in dist.batch_isend_irecv(steps) if steps else ():
            work.wait()

    def gather(self, own: Tensor, size: int) -> list[Tensor]:
        """See `Carrier`."""
        gathered = [torch.empty_like(own) for _ in range(size)]
        dist.all_gather(gathered, own, group=self._group)
        return gathered

    def start_max(self, numbers: Tensor) -> dist.Work:
        """See `Carrier`."""
        work: dist.Work = dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
        return work

    def barrier(self) -> None:
        """See `Carrier`."""
        dist.barrier(self._group)
