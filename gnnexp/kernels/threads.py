"""What a thread beside the training loop begins with: numba's threads and torch's current device are each thread's."""

from __future__ import annotations

import numba
import torch


def begin_thread(device: torch.device, threads: int = 1) -> None:
    """Make the calling thread ready to work for the training loop.

    Args:
        device: of the rank. A thread that has not been told works on GPU 0: events would be recorded, and objects sent,
            on a GPU of another rank.
        threads: of the kernels that this thread runs. On CPU, 1: a second team would fight the training loop's.
    """
    numba.set_num_threads(threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)


def threads_next_to(device: torch.device, num_threads: int) -> int:
    """Threads of kernels for each of `num_threads` threads that prepare batches beside the training loop.

    On CPU the loop's kernels have all cores of the rank, so 1. Beside a GPU the loop needs one core, and the threads
    share the others.
    """
    return 1 if device.type == "cpu" else max(1, (numba.get_num_threads() - 1) // max(1, num_threads))
