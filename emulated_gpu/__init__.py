"""An emulated CUDA device on a CPU build of torch: it tests the code for GPUs on machines without a GPU.

`python -m emulated_gpu -m pytest -m gpu` runs a program on the device. Tensors are on `cuda:0`, their bytes
are in host memory, and all kernels are CPU kernels. The device refuses what a GPU refuses: an operation with tensors of
two devices, `.numpy()` of a device tensor, pinning of a device tensor. Backward passes run on autograd's device
threads, and each thread starts on device 0. Streams, events and copies have only the order that a GPU guarantees:

- a kernel raises if it reads what another stream wrote, and has not waited for that stream;
- freeing memory raises if another stream may still use it (`record_stream` is missing);
- a change of pinned host memory raises if its copy to the device may not be complete;
- host memory holds NaN until its copy from the device is known to be complete.

`counting` counts launches, waits of the host, copies and bytes, by line of gnnexp. If each rank has its own GPU, ranks
exchange through an emulated NCCL (`nccl`). Work can be captured and replayed (`graphs`). Workers of pytest and ranks
have the device, too: they import `children`. gnnexp itself imports nothing of this package.

The device shows nothing about speed, the memory of a GPU, or the order in which a GPU adds.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path

from emulated_gpu.counts import Counts
from emulated_gpu.counts import counting as _counting
from emulated_gpu.cuda import install as _install
from emulated_gpu.ipc import install as _install_ipc
from emulated_gpu.library import load, load_nccl
from emulated_gpu.nccl import install as _install_nccl

VARIABLE = "GNNEXP_EMULATED_CUDA"  # path of the library, number of the process that loaded it last
THREADS_VARIABLE = "GNNEXP_EMULATED_THREADS"  # `off`: backward passes run on the calling thread
_CHILDREN = "emulated_gpu.children"


def install() -> None:
    """Install the emulated device in this process, before torch is imported, and in the workers and ranks it starts."""
    if os.environ.get(VARIABLE, "").endswith(f":{os.getpid()}"):
        return
    library = load()
    os.environ[VARIABLE] = f"{library._name}:{os.getpid()}"
    _install(library)
    _install_ipc(library)
    _add_counting(library)
    _install_nccl(load_nccl())
    _reach_children()
    if os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None:
        from emulated_gpu.triton import install as install_triton

        install_triton(library)
    if os.environ.get(THREADS_VARIABLE) == "off":
        import torch

        torch.autograd.set_multithreading_enabled(False)


def _reach_children() -> None:
    """Make workers of pytest and fork servers import `children`, from wherever they start."""
    for variable, separator, word in (
        ("PYTHONPATH", os.pathsep, str(Path(__file__).parents[1])),
        ("PYTEST_PLUGINS", ",", _CHILDREN),
    ):
        words = [known for known in os.environ.get(variable, "").split(separator) if known]
        os.environ[variable] = separator.join(dict.fromkeys([*words, word]))
    preload = forkserver.set_forkserver_preload
    forkserver.set_forkserver_preload = lambda modules_names: preload([_CHILDREN, *modules_names])


def _add_counting(library: ctypes.CDLL) -> None:
    """Add the counts to `torch.cuda`, where `measure.trace` finds them in place of a profiler."""
    import torch

    from gnnexp.measure.trace import EMULATED

    setattr(torch.cuda, EMULATED, lambda: _counting(library))


def is_wanted() -> bool:
    """Whether the process that started this one has the emulated device."""
    return VARIABLE in os.environ


@contextmanager
def counting() -> Iterator[Counts]:
    """Count what this process does on the emulated device inside the context."""
    with _counting(ctypes.CDLL(os.environ[VARIABLE].rpartition(":")[0])) as counts:
        yield counts


def raise_pending() -> None:
    """Raise the error of a wrong use of memory that was found in code that could not raise, if there is one."""
    import torch

    torch.cuda.synchronize()
