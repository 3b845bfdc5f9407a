"""Rows of vertices that all ranks of a machine share: one mapped file per machine, which has no name.

The first rank of a machine makes an empty file, the others open it, and its name is removed before anything is in it.
The system frees its space when the last rank lets go of it, however that rank ends. A rank that is killed in between
leaves an empty file at most, which the next run removes (`machines`).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.files.disk import writing
from gnnexp.measure.memory import MappedPages

_BOOT = Path("/proc/sys/kernel/random/boot_id")  # machines of one name differ in it
_PIECE_BYTES = 64 << 20  # that a rank receives at once: gloo's throughput is flat from 16 MB on (measured)


@dataclass(frozen=True)
class Machines:
    """Who shares a machine.

    Attributes:
        comm: of all ranks.
        first: `[ranks]` the first rank of each rank's machine.
        directory: where files are made, which every rank sees under this name.
    """

    comm: Communicator
    first: tuple[int, ...]
    directory: Path

    @property
    def mine(self) -> int:
        """The first rank of this rank's machine."""
        return self.first[self.comm.rank]

    def mapped(self, count: int, width: int, dtype: torch.dtype) -> Tensor:
        """`[count, width]` rows of zeros, the same memory for all ranks of a machine; all ranks call.

        Raises:
            OSError: the disk refuses the file, which is named.
        """
        path, first = self.directory / f".evaluation-{self.mine}.rows", self.comm.rank == self.mine
        num_bytes = count * width * torch.empty(0, dtype=dtype).element_size()
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600) if first else -1
        self.comm.barrier()
        if not first:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.comm.barrier()
        try:
            if first:
                path.unlink()
                with writing(path):
                    os.posix_fallocate(handle, 0, num_bytes)  # a full disk is an error here, not a signal later
            self.comm.barrier()
            return torch.frombuffer(mmap.mmap(handle, num_bytes), dtype=dtype).view(count, width)
        finally:
            os.close(handle)

    def exchange(self, rows: Tensor, bounds: Sequence[int], *, shared: bool) -> None:
        """Fill in the other ranks' ranges of `rows` `[n, width]`, and wait until they are whole; all ranks call.

        What a rank has computed goes once to every other machine, or, where ranks have rows of their own, to every
        other rank (tag `evaluation`).

        Args:
            rows: this rank's range is filled in.
            bounds: `[ranks + 1]` of ranges, one per rank.
            shared: whether they come from `mapped`; else every rank has rows of its own.
        """
        comm, first = self.comm, self.first if shared else tuple(range(self.comm.size))
        if comm.size == 1:
            return
        elsewhere = sorted(set(first) - {first[comm.rank]})
        pages = MappedPages(rows)
        piece = max(1, _PIECE_BYTES // (comm.size * max(1, rows.shape[1]) * rows.element_size()))
        for start in range(0, max(last - begin for begin, last in pairwise(bounds)) if elsewhere else 0, piece):
            parts = [slice(min(begin + start, last), min(begin + start + piece, last))
                     for begin, last in pairwise(bounds)]
            own = rows[parts[comm.rank]].to(comm.device)
            sent = [own.shape[0] * (rank in elsewhere) for rank in range(comm.size)]
            takes = comm.rank == first[comm.rank]
            received = [(part.stop - part.start) * (takes and first[rank] != comm.rank)
                        for rank, part in enumerate(parts)]
            arrived = comm.all_to_all(own.repeat(len(elsewhere), 1), sent, received, "evaluation")
            for part, values in zip(parts, torch.split_with_sizes(arrived, received), strict=True):
                rows[part][: values.shape[0]] = values
            pages.give_back()
        comm.barrier()


def machines(comm: Communicator, host: str, directory: Path) -> Machines:
    """Who shares a machine; what killed ranks left of files is removed. All ranks call.

    Args:
        comm: of all ranks.
        host: this machine's name.
        directory: the run's.
    """
    if comm.rank == 0:
        for left in directory.glob(".evaluation-*.rows"):
            left.unlink(missing_ok=True)
    told = comm.gather_objects((host, _BOOT.read_text() if _BOOT.exists() else ""))
    return Machines(comm, tuple(told.index(one) for one in told), directory)
