"""CUDA's IPC handles on the emulated device: processes of a machine read each other's device memory.

torch shares a tensor on a GPU by `torch.multiprocessing.reductions`, which calls the functions that are replaced here.
Sharing moves the bytes of a storage into shared memory, so its address changes once. On a GPU it does not.

Reading memory that its owner has freed raises. On a GPU, torch keeps the memory until readers release it or the owner
ends; what a kernel reads after that is undefined.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

PEERS_VARIABLE = "GNNEXP_EMULATED_PEERS"  # `off`: no GPU may read the memory of another GPU


def can_access(device: int, peer: int) -> bool:
    """Whether a GPU may read the memory of another GPU: False for the same GPU, as CUDA has it."""
    return device != peer and os.environ.get(PEERS_VARIABLE) != "off"


def install(library: ctypes.CDLL) -> None:
    """Let torch share device memory. Torch must be imported before."""
    import torch

    storages: Any = torch.UntypedStorage

    def share(storage: Any) -> tuple[Any, ...]:  # noqa: ANN401
        index, size, address = storage.device.index, storage.nbytes(), ctypes.c_void_p(storage._cdata)
        if not size:
            return index, None, 0, 0, b"", 0, b"", False
        file = library.emulated_shared_handle(address)
        if file < 0:
            file = os.memfd_create("emulated-device-memory")
            if not library.emulated_share(address, file):
                raise RuntimeError("CUDA error: out of memory (shared memory of the emulated device)")
        handle = f"{os.getpid()}:{file}:{os.fstat(file).st_ino}:{index}".encode()
        return index, handle, size, 0, b"", 0, b"", False

    def opened(device: int, handle: bytes, size: int, *others: object) -> Any:  # noqa: ANN401
        process, file, number, owner = (int(word) for word in handle.split(b":"))
        if process == os.getpid():
            raise RuntimeError("CUDA error: invalid device context (a process opens its own IPC handle)")
        if device != owner and not can_access(device, owner):
            raise RuntimeError("CUDA error: peer access is not supported between these two devices")
        there = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
        try:
            storage = torch.empty(0, dtype=torch.uint8, device=torch.device("cuda", device)).untyped_storage()
            same = os.fstat(there).st_ino == number
            if not same or not library.emulated_open_shared(
                ctypes.c_void_p(storage._cdata), there, ctypes.c_size_t(size)
            ):
                raise RuntimeError("CUDA error: invalid resource handle (the memory is freed)")
        finally:
            os.close(there)
        return storage

    storages._share_cuda_ = share
    storages._new_shared_cuda = staticmethod(opened)
    storages._release_ipc_counter_cuda = staticmethod(lambda *counter: None)
