"""Rows of vertices that all ranks of a machine share, in one mapped file per machine without a name.

The first rank of a machine makes an empty file, the other ranks open it, and then its name is removed. Only then it is
filled. The system frees the space after the last rank has closed it or died. If a rank is killed before the name is
removed, an empty file remains, which the next run removes (`machines`).
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

_BOOT = Path("/proc/sys/kernel/random/boot_id")  # differs between machines that have the same name
_PIECE_BYTES = 64 << 20  # bytes that a rank receives at once; gloo's throughput does not grow beyond 16 MB (measured)


@dataclass(frozen=True)
class Machines:
    """Which ranks share a machine.

    Attributes:
        comm: communicator of all ranks.
        first: `[ranks]`: for each rank, the first rank on its machine.
        directory: folder for the files; all ranks see it under this name.
    """

    comm: Communicator
    first: tuple[int, ...]
    directory: Path

    @property
    def mine(self) -> int:
        """The first rank of this rank's machine."""
        return self.first[self.comm.rank]

    def mapped(self, count: int, width: int, dtype: torch.dtype) -> Tensor:
        """`[count, width]` rows of zeros in memory that all ranks of a machine share. All ranks call this.

        Raises:
            OSError: the disk refuses the file; names the file.
        """
        path, first = self.directory / f".evaluation-{self.mine}.rows", self.comm.rank == self.mine
        num_bytes = count * width * dtype.itemsize
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600) if first else -1
        self.comm.barrier()
        if not first:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.comm.barrier()
        try:
            if first:
                path.unlink()
                with writing(path):
                    os.posix_fallocate(handle, 0, num_bytes)  # a full disk raises an error here, not a signal later
            self.comm.barrier()
            return torch.frombuffer(mmap.mmap(handle, num_bytes), dtype=dtype).view(count, width)
        finally:
            os.close(handle)

    def exchange(self, rows: Tensor, bounds: Sequence[int], *, shared: bool) -> None:
        """Fill the ranges of other ranks in `rows` `[n, width]`, and wait for complete rows. All ranks call this.

        A rank sends its range once to every other machine if ranks share rows, else to every other rank (tag
        `evaluation`).

        Args:
            rows: the rows; each rank has filled its own range.
            bounds: `[ranks + 1]` bounds of the ranges, one range per rank.
            shared: whether `rows` come from `mapped`; else each rank has its own copy.
        """
        comm, first = self.comm, self.first if shared else tuple(range(self.comm.size))
        if comm.size == 1:
            return
        elsewhere = sorted(set(first) - {first[comm.rank]})
        pages = MappedPages(rows)
        piece = max(1, _PIECE_BYTES // (comm.size * max(1, rows.shape[1]) * rows.element_size()))
        for start in range(0, max(last - begin for begin, last in pairwise(bounds)) if elsewhere else 0, piece):
            parts = [
                slice(min(begin + start, last), min(begin + start + piece, last)) for begin, last in pairwise(bounds)
            ]
            own = rows[parts[comm.rank]].to(comm.device)
            sent = [own.shape[0] * (rank in elsewhere) for rank in range(comm.size)]
            takes = comm.rank == first[comm.rank]
            received = [
                (part.stop - part.start) * (takes and first[rank] != comm.rank) for rank, part in enumerate(parts)
            ]
            arrived = comm.all_to_all(own.repeat(len(elsewhere), 1), sent, received, "evaluation")
            for part, values in zip(parts, torch.split_with_sizes(arrived, received), strict=True):
                rows[part][: values.shape[0]] = values
            pages.give_back()
        comm.barrier()


def machines(comm: Communicator, host: str, directory: Path) -> Machines:
    """Find the ranks that share a machine, and remove files that killed ranks left. All ranks call this.

    Args:
        comm: communicator of all ranks.
        host: name of this machine.
        directory: directory of the run.
    """
    if comm.rank == 0:
        for left in directory.glob(".evaluation-*.rows"):
            left.unlink(missing_ok=True)
    hosts = comm.gather_objects((host, _BOOT.read_text() if _BOOT.exists() else ""))
    return Machines(comm, tuple(hosts.index(name) for name in hosts), directory)
