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


def reset_host_peak() -> bool:
    """Start a new measurement of the resident set's peak, and return whether the system can.

    Linux: 5 into /proc/self/clear_refs; some containers refuse.
    """
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


def host_peak_bytes() -> int:
    """Peak resident set since the last reset, or since the process began if the system cannot reset."""
    return _status().get("VmHWM", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _status() -> dict[str, int]:
    """Memory values of this process in bytes, by name, from `/proc/self/status`."""
    lines = (line.split() for line in _STATUS.read_text().splitlines() if line.endswith(" kB"))
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def give_back_heap() -> None:
    """Return free pages of glibc's heap to the system, where ranks keep large blocks. Other mallocs: no effect."""
    trim = getattr(_LIBC, "malloc_trim", None)
    if trim is not None:
        trim(0)


class MappedPages:
    """The resident pages of tensors in mapped files.

    Such pages count as resident memory until the system needs memory. Code that reads a large file once therefore
    releases them (`give_back`). Written data stay in the file.
    """

    def __init__(self, *tensors: Tensor) -> None:
        files = [(int(begin, 16), int(end, 16)) for begin, end in _shared_files()]
        self._ranges = []
        for tensor in tensors:
            start = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
            stop = tensor.data_ptr() + tensor.numel() * tensor.element_size()
            self._ranges += [(start, min(end, stop) - start) for begin, end in files if begin <= start < end]

    def give_back(self) -> None:
        """Release the resident pages."""
        for start, length in self._ranges:
            _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_DONTNEED)


def _shared_files() -> Iterable[list[str]]:
    """First and last address of each shared mapping of a file. Released pages of other mappings would lose data."""
    for line in _MAPS.read_text().splitlines():
        addresses, rights, _, _, inode = line.split(maxsplit=5)[:5]
        if rights[3] == "s" and inode != "0":
            yield addresses.split("-")


class TensorMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of live tensors that first appear while the mode is active: the emulated device tier.

    A storage counts once until it is freed, for any number of tensors that view it. A tensor of a kernel outside of
    torch counts from the first torch operation that uses it.

    Args:
        existing: tensors that existed before and are counted elsewhere (parameters, features).
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: otherwise torch imports its compiler at the first operation. gnnexp compiles nothing in it."""
        return False

    def __init__(self, existing: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen: set[int] = set()
        self.current_bytes = 0
        self.peak_bytes = 0
        self._existing = [tensor.untyped_storage() for tensor in existing]
        self._seen.update(storage._cdata for storage in self._existing)

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Run the operation, and count storages of its arguments and results that are new."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs or {}, result)):
            if isinstance(leaf, Tensor):
                self.note(leaf)
        return result

    def note(self, tensor: Tensor) -> None:
        """Count the storage of `tensor`, unless it is already counted."""
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
