"""Set-up of threads next to the training loop: numba's thread count and torch's current device are per thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba
import torch


def begin_thread(device: torch.device, threads: int = 1) -> None:
    """Make the calling thread ready to work for the training loop.

    Args:
        device: device of the rank. Without it a thread uses GPU 0, which may belong to another rank: events would be
            recorded and objects sent on the wrong GPU.
        threads: number of threads for the kernels that the calling thread runs. 1 on CPU, where the training loop's
            kernels use all cores.
    """
    numba.set_num_threads(threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)


@contextmanager
def kernel_threads(threads: int) -> Iterator[None]:
    """Context in which kernels that the calling thread runs have `threads` threads, at most those of the rank."""
    before = numba.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        numba.set_num_threads(before)


def threads_next_to(device: torch.device, num_threads: int) -> int:
    """Kernel threads for each of `num_threads` threads that prepare batches next to the training loop.

    On CPU the loop's kernels use all cores of the rank, so the result is 1. With a GPU the loop needs one core, and the
    threads share the others.
    """
    return 1 if device.type == "cpu" else max(1, (numba.get_num_threads() - 1) // max(1, num_threads))
