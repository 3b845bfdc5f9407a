"""A buffer pool. Page-faulting fresh memory costs more than the kernels that fill it.

A buffer is leased as long as an array over it exists: the array itself, a view, or a tensor that autograd has saved.
When the last of them is freed, the buffer returns to the pool. So memory that can still be read is never reused, and
callers need not return anything.
"""

from __future__ import annotations

import mmap
import threading
from collections import defaultdict, deque
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

HUGE_PAGE_BYTES = 1 << 21
ALIGNMENT_BYTES = 64
# Smaller requests go to malloc, which serves them from its own free lists without new pages.
SMALLEST_POOLED_BYTES = 1 << 17
# Number of requests after which an idle buffer is freed. A step makes up to about 100 requests, and the next step makes
# about the same ones. A limit derived from the bytes in use at one time works badly: layers use their buffer sizes one
# after the other. With 1.5 times these bytes, a SAGE step of 160 ms freed and allocated 86 MB (18,500 page faults, a
# third of the step).
KEPT_FOR = 256
# A reused buffer may be larger than requested by this factor. Batches differ by a few percent, so sizes cross bounds of
# size classes. With exact classes only, a SAGE step allocated and evicted 250 MB (60,000 page faults, 200 ms).
_LOOSE = 1.5
# Size classes per power of two: at most an eighth is wasted, and batches that differ by a few percent share a class.
_CLASSES_PER_DOUBLING = 8


def size_class(nbytes: int) -> int:
    """`nbytes` rounded up to the next size class of buffers."""
    step = max(ALIGNMENT_BYTES, 1 << max(0, (nbytes - 1).bit_length() - 1) >> _CLASSES_PER_DOUBLING.bit_length() - 1)
    return -(-nbytes // step) * step


def allocate(nbytes: int) -> np.ndarray:
    """`[nbytes]` uint8, uninitialised, aligned to a cache line; large arrays use huge pages and are aligned to them."""
    if nbytes < HUGE_PAGE_BYTES:
        block, alignment = np.empty(nbytes + ALIGNMENT_BYTES, np.uint8), ALIGNMENT_BYTES
    else:
        # Private: shared memory has a separate setting for huge pages, and the kernel accounts it as files.
        pages = mmap.mmap(-1, nbytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        block, alignment = np.frombuffer(pages, np.uint8), HUGE_PAGE_BYTES
    shift = -block.ctypes.data % alignment
    return block[shift : shift + nbytes]


class _Lease:
    """The owner of a pooled buffer that every array over the buffer keeps alive; its deletion returns the buffer."""

    __slots__ = ("__array_interface__", "_buffer", "_returned")

    def __init__(self, buffer: np.ndarray, interface: dict[str, Any], returned: deque[np.ndarray]) -> None:
        self._buffer, self._returned, self.__array_interface__ = buffer, returned, interface

    def __del__(self) -> None:
        # This may run inside any allocation of any thread. An append is atomic and takes no lock.
        self._returned.append(self._buffer)


class Pool:
    """Reusable buffers. A buffer that stays idle for `KEPT_FOR` requests is freed.

    Attributes:
        idle_limit_bytes: most bytes of idle buffers; beyond it the buffers with the longest idle time are freed.
    """

    def __init__(self, idle_limit_bytes: int = 8 << 30) -> None:
        self.idle_limit_bytes = idle_limit_bytes
        self._lock = threading.Lock()
        self._returned: deque[np.ndarray] = deque()
        self._idle: defaultdict[int, deque[tuple[int, np.ndarray]]] = defaultdict(deque)
        self._clock = 0
        self.idle_bytes = self.leased_bytes = self.peak_bytes = 0

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """An uninitialised C-contiguous array; its memory may have been used before.

        Args:
            shape: shape of the array.
            dtype: data type of the array.
        """
        kind = np.dtype(dtype)
        nbytes = kind.itemsize
        for extent in shape:
            nbytes *= extent
        if nbytes < SMALLEST_POOLED_BYTES:
            return np.empty(shape, kind)
        buffer = self._take(size_class(nbytes))
        interface = {"shape": shape, "typestr": kind.str, "data": (buffer.ctypes.data, False), "version": 3}
        return np.asarray(_Lease(buffer, interface, self._returned))

    def trim(self) -> None:
        """Free every idle buffer."""
        with self._lock:
            self._collect()
            self._evict(0)

    def _take(self, nbytes: int) -> np.ndarray:
        with self._lock:
            self._clock += 1
            self._collect()
            fitting = [size for size, waiting in self._idle.items() if waiting and nbytes <= size <= _LOOSE * nbytes]
            size = min(fitting, default=nbytes)
            self.leased_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.leased_bytes)
            if fitting:
                self.idle_bytes -= size
                return self._idle[size].pop()[1]
        return allocate(nbytes)

    def _collect(self) -> None:
        """Take back returned buffers, then free buffers that are idle for too long or exceed `idle_limit_bytes`."""
        while self._returned:
            buffer = self._returned.popleft()
            self._idle[buffer.size].append((self._clock, buffer))
            self.idle_bytes += buffer.size
            self.leased_bytes -= buffer.size
        self._evict(self.idle_limit_bytes)

    def _evict(self, allowed_bytes: int) -> None:
        while self.idle_bytes:
            since, nbytes = min((waiting[0][0], nbytes) for nbytes, waiting in self._idle.items() if waiting)
            if self.idle_bytes <= allowed_bytes and self._clock - since <= KEPT_FOR:
                return
            self._idle[nbytes].popleft()
            self.idle_bytes -= nbytes
