"""The functions of `torch.cuda` that gnnexp calls, on the emulated device.

A function that is not replaced here raises, as it does without CUDA.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from emulated_gpu.graphs import ExternalEvent, graph_functions
from emulated_gpu.ipc import can_access

if TYPE_CHECKING:
    import torch

TOTAL_BYTES = 80 << 30
_FROM_FILE = 2 | 8  # cudaHostRegisterMapped and cudaHostRegisterReadOnly
_ERRORS = {
    1: "invalid argument",
    712: "part or all of the requested memory range is already mapped",
    713: "pointer does not correspond to a registered memory region",
    801: "operation not supported",
}
NAME = "emulated CUDA device (emulated_gpu)"


def install(library: ctypes.CDLL) -> None:
    """Let `torch.cuda` use the emulated device. This imports torch."""
    import torch

    for name, value in _replaced(library).items():
        assert hasattr(torch.cuda, name), f"torch.cuda.{name} is gone"
        setattr(torch.cuda, name, value)
    _add_products()
    # torch.manual_seed also seeds the device's generator. Here kernels use the CPU's generator, which is seeded anyway.
    torch.cuda.manual_seed_all = lambda seed: None
    torch.__config__.show = lambda: NAME  # torch asks its library of CUDA for this text, which PyG wants at import


def _add_products() -> None:
    """Products with `out_dtype`, which torch has on GPUs only: factors are exact in the wider type of the result."""
    import torch

    library: Any = torch.library
    kernels = library.Library("aten", "IMPL")
    for name in ("mm.dtype", "bmm.dtype"):
        kernels.impl(name, lambda a, b, out_dtype: a.to(out_dtype) @ b.to(out_dtype), "CPU")
    torch.cuda.emulated_products = kernels  # type: ignore[attr-defined]  # torch removes kernels whose library is gone


def _runtime(library: ctypes.CDLL) -> SimpleNamespace:
    """The functions of CUDA's runtime that register host memory; they return 0, which means success, or an error."""
    import torch

    registered: dict[int, int] = {}  # bytes by address

    def host_register(address: int, num_bytes: int, flags: int) -> int:
        assert flags in (0, _FROM_FILE), "no other flags are emulated"
        if address % mmap.PAGESIZE or not _can_register(address, num_bytes, flags):
            return 1
        end = address + num_bytes
        if any(address < start + length and start < end for start, length in registered.items()):
            return 712
        torch.empty(1, pin_memory=True)  # torch asks no device about memory before its first use of pinned memory
        library.emulated_register(ctypes.c_void_p(address), ctypes.c_size_t(num_bytes))
        registered[address] = num_bytes
        return 0

    def host_unregister(address: int) -> int:
        if registered.pop(address, None) is None:
            return 713
        library.emulated_unregister(ctypes.c_void_p(address))
        return 0

    return SimpleNamespace(
        cudaHostRegister=host_register,
        cudaHostUnregister=host_unregister,
        cudaGetErrorString=lambda code: _ERRORS.get(code, "unknown error"),
    )


def _can_register(address: int, num_bytes: int, flags: int) -> bool:
    """Whether memory is mapped from its first to its last byte, and may be written unless a flag says read-only."""
    reached = address
    for line in Path("/proc/self/maps").read_text().splitlines():
        pages, allowed, *_ = line.split()
        first, end = (int(edge, 16) for edge in pages.split("-"))
        if first <= reached < min(end, address + num_bytes):
            if not (allowed.startswith("rw") or (allowed.startswith("r") and flags == _FROM_FILE)):
                return False
            reached = end
    return reached >= address + num_bytes


def _replaced(library: ctypes.CDLL) -> dict[str, Any]:
    """Replacements of functions and classes of `torch.cuda`, by name."""
    runtime = _runtime(library)
    return {
        **graph_functions(library),
        **_of_devices(library),
        **_of_streams(library),
        **_of_memory(library),
        "cudart": lambda: runtime,
        "_lazy_init": lambda: None,
        "is_initialized": lambda: True,
        "is_available": lambda: True,
    }


def _device(device: Any = None) -> torch.device:  # noqa: ANN401
    """A device with its index; the thread's current device if no index is given."""
    import torch

    if isinstance(device, int):
        return torch.device("cuda", device)
    asked = torch.device("cuda" if device is None else device)
    assert asked.type == "cuda", f"{asked} is not a CUDA device"
    return torch.device("cuda", torch.accelerator.current_device_index() if asked.index is None else asked.index)


def _of_devices(library: ctypes.CDLL) -> dict[str, Any]:
    """Functions that choose devices and say what they can."""
    import torch

    accelerator = torch.accelerator

    def exchange_device(index: int) -> int:
        before = accelerator.current_device_index()
        if index >= 0:
            accelerator.set_device_index(index)
        return before

    def properties(device: Any = None) -> SimpleNamespace:  # noqa: ANN401
        index = _device(device).index
        return SimpleNamespace(
            name=NAME,
            total_memory=TOTAL_BYTES,
            multi_processor_count=1,
            major=9,
            minor=0,
            L2_cache_size=1 << 20,
            uuid=f"emulated-{index}",
        )

    return {
        "device_count": lambda: int(library.emulated_num_devices()),
        "current_device": accelerator.current_device_index,
        "set_device": lambda device: accelerator.set_device_index(_device(device)),
        "_exchange_device": exchange_device,
        "_maybe_exchange_device": exchange_device,
        "get_device_name": lambda device=None: NAME,
        "get_device_properties": properties,
        "get_device_capability": lambda device=None: (9, 0),
        "can_device_access_peer": lambda device, peer: can_access(_device(device).index, _device(peer).index),
    }


def _of_streams(library: ctypes.CDLL) -> dict[str, Any]:
    """Streams, events and waits."""
    import torch

    accelerator = torch.accelerator

    def new_stream(device: Any = None, priority: int = 0) -> torch.Stream:  # noqa: ANN401
        return torch.Stream(_device(device), priority=priority)

    def new_event(
        enable_timing: bool = False, blocking: bool = False, *, external: bool = False
    ) -> torch.Event | ExternalEvent:
        event = torch.Event(torch.device("cuda"), enable_timing=enable_timing, blocking=blocking)
        return ExternalEvent(library, event) if external else event

    def stream(chosen: torch.Stream | None) -> AbstractContextManager[Any]:
        return nullcontext() if chosen is None else chosen

    return {
        "Stream": new_stream,
        "Event": new_event,
        "stream": stream,
        "set_stream": accelerator.set_stream,
        "current_stream": lambda device=None: accelerator.current_stream(_device(device)),
        "synchronize": lambda device=None: accelerator.synchronize(_device(device)),
    }


def _of_memory(library: ctypes.CDLL) -> dict[str, Any]:
    """What the device's memory holds."""

    def allocated(device: Any, *, peak: bool) -> int:  # noqa: ANN401
        return int(library.emulated_allocated_bytes(_device(device).index, int(peak)))

    return {
        "empty_cache": lambda: None,
        "memory_allocated": lambda device=None: allocated(device, peak=False),
        "max_memory_allocated": lambda device=None: allocated(device, peak=True),
        "reset_peak_memory_stats": lambda device=None: library.emulated_reset_peak(_device(device).index),
        "mem_get_info": lambda device=None: (TOTAL_BYTES - allocated(device, peak=False), TOTAL_BYTES),
    }
