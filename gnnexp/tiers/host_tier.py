"""The host tier of offloaded training: rows of vertices in RAM (pinned if there is a GPU), or in files.

A file is mapped and unlinked at once. It needs space until the process ends in any way, and leaves nothing on disk.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gnnexp.errors import DataError, Problem
from gnnexp.kernels.shape_tensor import shaped

HostMemory = Literal["ram", "file"]


class HostTier:
    """Allocates rows of vertices in host memory.

    Args:
        place: `ram`, or `file` for files in `folder`.
        folder: must exist if `place` is `file`.
        pinned: whether RAM is page-locked, so that a GPU can copy from it while it computes.
        computes: whether rows have values. If not, they take no memory.

    Attributes:
        num_bytes: bytes of all rows that were allocated so far.
    """

    def __init__(self, place: HostMemory, folder: Path, *, pinned: bool, computes: bool = True) -> None:
        self._place, self._folder, self._pinned, self._computes = place, folder, pinned, computes
        self.num_bytes = 0

    def rows(self, count: int, width: int, dtype: torch.dtype) -> Tensor:
        """`[count, width]` rows of zeros.

        Raises:
            DataError: the disk has no room for the file.
        """
        num_bytes = count * width * dtype.itemsize
        self.num_bytes += num_bytes
        if not self._computes:
            return shaped((count, width), dtype)
        if self._place == "ram" or not num_bytes:
            return torch.zeros(count, width, dtype=dtype, pin_memory=self._pinned and num_bytes > 0)
        return torch.from_numpy(self._mapped(num_bytes)).view(dtype).view(count, width)

    def to_add_up(self, like: Tensor) -> Tensor:
        """Zeros in RAM with the shape of `like` `[n, d]`, for sums that are copied to `like` at the end.

        The result is `like` itself if that is in RAM. Sums are accumulated in random order. In a mapped file, each
        addition would dirty a page for one row, and the system would write the page to disk many times.
        """
        if self._place == "ram" or not like.numel() or not self._computes:
            return like.zero_()
        # Memory from mmap returns to the system when it is freed. The heap that ranks keep would not return it.
        pages = mmap.mmap(-1, like.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        room = np.frombuffer(pages, np.uint8)
        return torch.from_numpy(room).view(like.dtype).view(like.shape)

    def _mapped(self, num_bytes: int) -> np.ndarray:
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=".rows")
        try:
            os.posix_fallocate(handle, 0, num_bytes)  # a full disk raises an error here, instead of a signal later
            return np.memmap(name, np.uint8, "r+", shape=(num_bytes,))
        except OSError as error:
            raise DataError(
                Problem(
                    "paradigm.host",
                    "file",
                    f"{num_bytes} bytes in {self._folder}: {error.strerror}",
                    "set hydra.run.dir to a disk with room, or paradigm.host=ram",
                )
            ) from error
        finally:
            os.close(handle)
            Path(name).unlink()
