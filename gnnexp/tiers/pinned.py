"""Arrays in host memory that kernels of GPUs read. Each rank registers them with CUDA.

They are a copy, or a mapped file: then the ranks of a machine share the pages of the system's cache. Of copies there is
one per machine.

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
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import Refusal, RunError
from gnnexp.measure.available import available_memory, total_memory

# cudaHostRegisterMapped and cudaHostRegisterReadOnly: pages of a file that is open for reading.
_FROM_FILE = 2 | 8
_PROBED_BYTES = 1 << 20
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # differs between machines that have the same name


class _RegisteredArray:
    """An array in mapped memory whose pages are registered with CUDA as long as an array over it exists.

    CUDA registers whole pages. A file's header makes an array begin inside of a page.
    """

    def __init__(self, array: np.ndarray, device: torch.device, fix: str, flags: int = 0) -> None:
        self._array, self._device, self._start = array, device, 0
        self.__array_interface__ = array.__array_interface__
        start, num_bytes = _pages(array)
        if refusal := _register(start, num_bytes, flags):
            raise RunError(f"{refusal}; {fix}")
        self._start = start

    def __del__(self) -> None:
        if self._start and not sys.is_finalizing():  # the end of the process frees everything
            torch.cuda.synchronize(self._device)  # kernels may still read
            _cudart().cudaHostUnregister(self._start)


def _cudart() -> Any:  # noqa: ANN401  torch has no types for it
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _pages(array: np.ndarray) -> tuple[int, int]:
    """Address and bytes of the pages in which a contiguous array lies."""
    first = int(array.ctypes.data)
    start = first - first % mmap.PAGESIZE
    return start, -(-(first + array.nbytes - start) // mmap.PAGESIZE) * mmap.PAGESIZE


def _register(start: int, num_bytes: int, flags: int) -> Refusal | None:
    """Register memory with CUDA; returns what CUDA says if it refuses, else None."""
    cudart = _cudart()
    code = cudart.cudaHostRegister(start, num_bytes, flags)
    if not int(code):
        return None
    return Refusal(
        f"CUDA refuses to register {num_bytes} bytes of host memory: {cudart.cudaGetErrorString(code)} "
        f"(error {int(code)})"
    )


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
    shape: tuple[int, ...],
    dtype: torch.dtype,
    fill: Callable[[Tensor], object],
    comm: Communicator | None,
    device: torch.device,
    use: Use = FEATURES,
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
    if comm is None:
        (handle, refusal), own = _new_memory(num_bytes, use.what), True
    else:
        handle, refusal, own = _of_machine(num_bytes, comm, use)
    if refusal is None:
        pages = mmap.mmap(handle, num_bytes)
        if own:
            fill(torch.frombuffer(pages, dtype=dtype).view(shape))
    reasons: list[Any] = [refusal and refusal.reason]
    if comm is not None:
        reasons = comm.gather_objects(reasons[0])  # from here on, the array is complete
    if handle >= 0:
        os.close(handle)
    if reason := next(filter(None, reasons), None):
        raise RunError(f"{reason}; {use.fix}")
    registered = _RegisteredArray(np.frombuffer(pages, np.uint8), device, use.fix)
    return torch.from_numpy(np.asarray(registered)).view(dtype).view(shape)


def registered_file(values: Tensor, comm: Communicator, device: torch.device, fix: str) -> Tensor:
    """`values`, which are mapped from a file, so that kernels of the GPU `device` can read them.

    All ranks of `comm` call this. Nothing is copied. CUDA reads the file into the system's cache and keeps it there.
    First it registers a few pages: some systems and drivers refuse pages of files.

    Args:
        values: contiguous.
        comm: the ranks that read the file.
        device: GPU of this rank.
        fix: what a user can do if the file cannot be registered.

    Raises:
        RunError: the values are not mapped from a file, memory is too small for them, or CUDA refuses its pages.
    """
    array = values.numpy()
    if not array.nbytes:
        return values
    refusal = _register_refusal(array)
    reasons = comm.gather_objects(None if refusal is None else refusal.reason)
    if reason := next(filter(None, reasons), None):
        raise RunError(f"{reason}; {fix}")
    return torch.from_numpy(np.asarray(_RegisteredArray(array, device, fix, _FROM_FILE)))


def _register_refusal(array: np.ndarray) -> Refusal | None:
    """Why a mapped array cannot be registered with CUDA; None if some of its pages can."""
    start, num_bytes = _pages(array)
    if not is_mapped_from_file(start):
        return Refusal("the features are not mapped from a file")
    if num_bytes > (total := total_memory()):
        return Refusal(f"the features take {num_bytes} bytes, this machine has {total} bytes of memory")
    if refusal := _register(start, min(num_bytes, _PROBED_BYTES), _FROM_FILE):
        return Refusal(f"{refusal}. These are pages of the features' file")
    _cudart().cudaHostUnregister(start)
    return None


def is_mapped_from_file(address: int) -> bool:
    """Whether the page at an address of this process is mapped from a file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        pages, _, _, _, inode, *_ = line.split()
        first, end = (int(edge, 16) for edge in pages.split("-"))
        if first <= address < end:
            return inode != "0"
    return False


def _of_machine(num_bytes: int, comm: Communicator, use: Use) -> tuple[int, Refusal | None, bool]:
    """Memory that the ranks of a machine share: its descriptor or -1 and why, and whether this rank fills it."""
    machine = this_machine()
    first = comm.gather_objects(machine).index(machine)
    handle, refusal = _new_memory(num_bytes, use.what) if first == comm.rank else (-1, None)
    offers: Any = comm.gather_objects((os.getpid(), handle, os.fstat(handle).st_ino if handle >= 0 else 0))
    if first != comm.rank and offers[first][1] >= 0:
        handle = _opened(*offers[first])
    own = first == comm.rank or handle < 0
    if handle < 0 and refusal is None:
        handle, refusal = _new_memory(num_bytes, use.what)
    return handle, refusal, own


def this_machine() -> tuple[str, str]:
    """Identifies the machine, or the container, of this process."""
    return platform.node(), _BOOT.read_text() if _BOOT.exists() else ""


def _new_memory(num_bytes: int, what: str) -> tuple[int, Refusal | None]:
    """New shared memory for `what`: its file descriptor, or -1 and why there is none."""
    available = available_memory()
    if num_bytes > available:
        return -1, Refusal(f"pinned {what} need {num_bytes} bytes of host memory, {available} bytes are available")
    handle = os.memfd_create(f"gnnexp-{what}")
    try:
        os.posix_fallocate(handle, 0, num_bytes)
    except OSError as error:
        os.close(handle)
        return -1, Refusal(f"pinned {what} cannot be allocated: {error}")
    return handle, None


def _opened(process: int, handle: int, number: int) -> int:
    """Another process's memory with this inode number; -1 if this process cannot open it."""
    try:
        opened = os.open(f"/proc/{process}/fd/{handle}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1
    if os.fstat(opened).st_ino == number:
        return opened
    os.close(opened)
    return -1
