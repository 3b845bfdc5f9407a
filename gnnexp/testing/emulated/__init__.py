"""An emulated CUDA device on a CPU build of torch: tests of the path to a GPU, for machines without one.

`python -m gnnexp.testing.emulated -m pytest -m gpu` runs any program on it. Tensors are on `cuda:0`, their bytes are in
host memory, and every kernel is the CPU's. What a GPU refuses is refused: tensors of two devices in one operation,
`.numpy()` of a device tensor, pinning one. Backward passes run on autograd's device threads, each thread starts on
device 0, and streams, events and copies have the order that a GPU promises, and no other:

- a kernel that reads what another stream wrote, and has not waited for, raises;
- memory that is freed while another stream may use it raises (`record_stream` is missing);
- pinned host memory that changes before its copy to the device is known to be over raises;
- host memory holds NaN until its copy from the device is known to be over.

`counting` tells launches, waits of the host, copies and bytes, by line of gnnexp.

Ranks with a GPU each exchange through an emulated NCCL (`nccl`).

It proves nothing about speed, the memory of a GPU, or the order in which a GPU adds.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from gnnexp.testing.emulated.counts import Counts
from gnnexp.testing.emulated.counts import counting as _counting
from gnnexp.testing.emulated.cuda import install as _install
from gnnexp.testing.emulated.library import load, load_nccl
from gnnexp.testing.emulated.nccl import install as _install_nccl

VARIABLE = "GNNEXP_EMULATED_CUDA"  # the library, and the process that has loaded it last: its children do so too
THREADS_VARIABLE = "GNNEXP_EMULATED_THREADS"  # `off`: backward passes run on the thread that asks for them


def install() -> None:
    """Put the emulated device into this process, and into its children that ask (`is_wanted`); before torch."""
    if os.environ.get(VARIABLE, "").endswith(f":{os.getpid()}"):
        return
    library = load()
    os.environ[VARIABLE] = f"{library._name}:{os.getpid()}"
    _install(library)
    _install_nccl(load_nccl())
    if os.environ.get(THREADS_VARIABLE) == "off":
        import torch

        torch.autograd.set_multithreading_enabled(False)


def is_wanted() -> bool:
    """Whether the process that started this one has the emulated device."""
    return VARIABLE in os.environ


@contextmanager
def counting() -> Iterator[Counts]:
    """Count what this process does on the emulated device inside."""
    with _counting(ctypes.CDLL(os.environ[VARIABLE].rpartition(":")[0])) as counts:
        yield counts


def raise_pending() -> None:
    """Raise the error of a use of memory that was found where nothing could be raised, if there is one."""
    import torch

    torch.cuda.synchronize()
