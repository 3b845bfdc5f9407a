"""Arrays in host memory that kernels of GPUs read: one copy per machine, which each rank registers with CUDA.

The first rank of a machine makes the memory, without a name in any folder. The other ranks open it by its process. So
it is freed when the last rank has ended, however that happens. A rank that cannot open it, such as one in another
container, has its own copy.
"""

from __future__ import annotations

import math
import mmap
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import RunError

_BOOT = Path("/proc/sys/kernel/random/boot_id")  # differs between machines that have the same name


class _Registered:
    """Mapped memory that is registered with CUDA as long as an array over it exists."""

    def __init__(self, pages: mmap.mmap, device: torch.device, fix: str) -> None:
        self._pages, self._device = pages, device
        whole = np.frombuffer(pages, np.uint8)
        self.__array_interface__ = whole.__array_interface__
        self._address = int(whole.ctypes.data)
        cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        self._unregister = cudart.cudaHostUnregister
        if code := int(cudart.cudaHostRegister(self._address, len(pages), 0)):
            self._address = 0
            raise RunError(f"CUDA refuses to register {len(pages)} bytes of host memory (error {code}); {fix}")

    def __del__(self) -> None:
        if self._address and not sys.is_finalizing():  # the end of the process frees everything
            torch.cuda.synchronize(self._device)  # kernels may still read
            self._unregister(self._address)


@dataclass(frozen=True)
class Use:
    """What an array is for, in messages.

    Attributes:
        what: name of the array.
        fix: what a user can do if it cannot be pinned.
    """

    what: str = "features"
    fix: str = "set feature_store.tier=host"


FEATURES = Use()


def pinned_array(
    shape: tuple[int, ...], dtype: torch.dtype, fill: Callable[[Tensor], object], comm: Communicator | None,
    device: torch.device, use: Use = FEATURES,
) -> Tensor:
    """An array `shape` in host memory that the GPU `device` can read. All ranks of `comm` call this.

    Args:
        shape: size of each dimension.
        dtype: data type of the values.
        fill: writes the values; called once per machine.
        comm: the ranks that share the array; None: this rank has it for itself.
        device: GPU of this rank.
        use: what the array is for.

    Raises:
        RunError: a machine has too little memory, or CUDA refuses it.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    if not num_bytes:
        return torch.empty(shape, dtype=dtype)
    handle, problem, own = (*_made(num_bytes, use.what), True) if comm is None else _of_machine(num_bytes, comm, use)
    if not problem:
        pages = mmap.mmap(handle, num_bytes)
        if own:
            fill(torch.frombuffer(pages, dtype=dtype).view(shape))
    if comm is not None:
        problems = [one for one in comm.gather_objects(problem) if one]  # from here on, the array is complete
        problem = str(problems[0]) if problems else ""
    if handle >= 0:
        os.close(handle)
    if problem:
        raise RunError(f"{problem}; {use.fix}")
    return torch.from_numpy(np.asarray(_Registered(pages, device, use.fix))).view(dtype).view(shape)


def _of_machine(num_bytes: int, comm: Communicator, use: Use) -> tuple[int, str, bool]:
    """Memory that the ranks of a machine share: its descriptor or -1, a problem, and whether this rank fills it."""
    machine = platform.node(), _BOOT.read_text() if _BOOT.exists() else ""
    first = comm.gather_objects(machine).index(machine)
    handle, problem = _made(num_bytes, use.what) if first == comm.rank else (-1, "")
    offers: Any = comm.gather_objects((os.getpid(), handle, os.fstat(handle).st_ino if handle >= 0 else 0))
    if first != comm.rank and offers[first][1] >= 0:
        handle = _opened(*offers[first])
    own = first == comm.rank or handle < 0
    if handle < 0 and not problem:
        handle, problem = _made(num_bytes, use.what)
    return handle, problem, own


def _made(num_bytes: int, what: str) -> tuple[int, str]:
    """New shared memory for `what`: its file descriptor, or -1 and the reason."""
    available = psutil.virtual_memory().available
    if num_bytes > available:
        return -1, f"pinned {what} need {num_bytes} bytes of host memory, {available} bytes are available"
    handle = os.memfd_create(f"gnnexp-{what}")
    try:
        os.posix_fallocate(handle, 0, num_bytes)
    except OSError as error:
        os.close(handle)
        return -1, f"pinned {what} cannot be allocated: {error}"
    return handle, ""


def _opened(process: int, handle: int, number: int) -> int:
    """Another process's memory with this inode number; -1 if this process cannot open it."""
    try:
        found = os.open(f"/proc/{process}/fd/{handle}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1
    if os.fstat(found).st_ino == number:
        return found
    os.close(found)
    return -1
