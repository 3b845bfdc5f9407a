"""Collectives with a purpose: every exchange is tagged, timed and counted to the byte.

Time spent waiting for the slowest rank is not communication: before each payload exchange all ranks meet in a barrier
that is timed as the phase `wait`; what the exchange itself takes stays in the caller's phase and in the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from gnnexp.comm.environment import Environment
from gnnexp.measure.ledger import Ledger, Tag, all_reduce_share
from gnnexp.measure.phases import PhaseTimer


def connect(environment: Environment, device: torch.device, timeout_s: float) -> str:
    """Join the process group through the launcher's rendezvous (MASTER_ADDR, MASTER_PORT); returns how.

    NCCL needs a GPU per rank; where ranks outnumber GPUs, and on CPU, gloo is used (staged through pinned host memory
    for CUDA tensors).
    """
    if environment.num_ranks == 1:
        return "none"
    if dist.is_initialized():  # a caller that keeps its own group (a pool of test ranks, a notebook)
        return str(dist.get_backend())
    own_gpu = device.type == "cuda" and environment.local_ranks <= torch.cuda.device_count()
    backend = "nccl" if own_gpu else "gloo"
    dist.init_process_group(
        backend, rank=environment.rank, world_size=environment.num_ranks, timeout=timedelta(seconds=timeout_s)
    )
    return backend if own_gpu or device.type == "cpu" else "gloo, staged through pinned host memory"


class Communicator:
    """The collectives of one run.

    Args:
        environment: this rank's place.
        timer: charged with `wait`.
        device: where payload tensors live.
    """

    def __init__(self, environment: Environment, timer: PhaseTimer, device: torch.device) -> None:
        self.rank, self.size = environment.rank, environment.num_ranks
        self.device = device
        self._timer, self._ledger = timer, Ledger()
        self._staged = self.size > 1 and device.type == "cuda" and dist.get_backend() == "gloo"

    @property
    def ledger(self) -> Ledger:
        """Traffic since it was last taken."""
        return self._ledger

    def all_reduce(self, tensor: Tensor, tag: Tag) -> None:
        """Sum `tensor` over all ranks, in place, on every rank."""
        if self.size == 1:
            return
        with self._exchange(tag, all_reduce_share(_num_bytes(tensor), self.rank, self.size)):
            payload = self._stage(tensor)
            dist.all_reduce(payload)
            if payload is not tensor:
                tensor.copy_(payload)

    def broadcast(self, tensor: Tensor, source: int, tag: Tag) -> None:
        """Rank `source`'s `tensor` to every rank, in place; the source sends N-1 copies."""
        if self.size == 1:
            return
        with self._exchange(tag, (self.size - 1) * _num_bytes(tensor) if self.rank == source else 0):
            payload = self._stage(tensor)
            dist.broadcast(payload, src=source)
            if payload is not tensor:
                tensor.copy_(payload)

    def gather_objects(self, value: object) -> list[object]:
        """Every rank's `value` on every rank: small records and agreements outside the epoch, not counted."""
        if self.size == 1:
            return [value]
        values: list[object] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            dist.barrier()

    def close(self) -> None:
        """Leave the process group once every rank is done."""
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()

    @contextmanager
    def _exchange(self, tag: Tag, sent_bytes: int) -> Iterator[None]:
        with self._timer.phase("wait"):
            dist.barrier()
        start = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._ledger.add(tag, sent_bytes, 1, time.perf_counter() - start)

    def _stage(self, tensor: Tensor) -> Tensor:
        return tensor.cpu().pin_memory() if self._staged else tensor


def _num_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
