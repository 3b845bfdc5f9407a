"""Peak memory of one rank: the process's resident set, and the device tier."""

from __future__ import annotations

import ctypes
import mmap
import resource
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_MAPS = Path("/proc/self/maps")
_LIBC = ctypes.CDLL(None)


def reset_host_peak() -> None:
    """Start a new measurement of the resident set's peak, where the system can (`resets_host_peak`)."""
    resets_host_peak()


def resets_host_peak() -> bool:
    """Whether peaks can be measured anew (Linux: 5 into /proc/self/clear_refs); some containers refuse it."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


def host_peak_bytes() -> int:
    """Peak resident set since the last reset; since the process began, where there is none."""
    return _status().get("VmHWM", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _status() -> dict[str, int]:
    """Bytes by name of this process."""
    lines = (line.split() for line in _STATUS.read_text().splitlines() if line.endswith(" kB"))
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def give_back_heap() -> None:
    """Hand free pages of glibc's heap back to the system (workers keep large blocks in it); other mallocs: nothing."""
    trim = getattr(_LIBC, "malloc_trim", None)
    if trim is not None:
        trim(0)


class MappedPages:
    """Resident pages of those tensors that lie in mapped files; what was written stays in the file.

    Such pages count as resident memory until somebody asks for it: what passes over a large file says so.
    """

    def __init__(self, *tensors: Tensor) -> None:
        files = [(int(begin, 16), int(end, 16)) for begin, end in _shared_files()]
        self._ranges = []
        for tensor in tensors:
            start = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
            stop = tensor.data_ptr() + tensor.numel() * tensor.element_size()
            self._ranges += [(start, min(end, stop) - start) for begin, end in files if begin <= start < end]

    def give_back(self) -> None:
        """Let go of them."""
        for start, length in self._ranges:
            _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_DONTNEED)


def _shared_files() -> Iterable[list[str]]:
    """First and last address of every shared mapping of a file: what is dropped of others would be lost."""
    for line in _MAPS.read_text().splitlines():
        addresses, rights, _, _, inode = line.split(maxsplit=5)[:5]
        if rights[3] == "s" and inode != "0":
            yield addresses.split("-")


class TensorMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of every tensor first seen while it is active and not yet freed: the emulated device tier.

    A storage counts once, however many tensors view it, until it is freed. Tensors that kernels outside of torch made
    are seen when the first torch operation touches them.

    Args:
        existing: tensors that were there before and are accounted for elsewhere (parameters, features).
    """

    def __init__(self, existing: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen: set[int] = set()
        self.current_bytes = 0
        self.peak_bytes = 0
        self._existing = [tensor.untyped_storage() for tensor in existing]
        self._seen.update(storage._cdata for storage in self._existing)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Run the operation, count the storages that it shows for the first time."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs or {}, result)):
            if isinstance(leaf, Tensor):
                self.note(leaf)
        return result

    def note(self, tensor: Tensor) -> None:
        """Count `tensor`'s storage unless it is counted already."""
        storage = tensor.untyped_storage()
        handle, num_bytes = storage._cdata, storage.nbytes()
        if handle in self._seen:
            return
        self._seen.add(handle)
        self.current_bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self.current_bytes)
        weakref.finalize(storage, self._free, handle, num_bytes)

    def _free(self, handle: int, num_bytes: int) -> None:
        self._seen.discard(handle)
        self.current_bytes -= num_bytes
