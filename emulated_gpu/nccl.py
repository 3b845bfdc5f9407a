"""NCCL for the emulated GPUs: it checks the rules of NCCL on streams of the emulated device. Gloo moves the bytes.

torch makes this backend in place of NCCL (`cuda:nccl`), and sends CUDA tensors to it.

- As NCCL, it refuses host tensors, tensors that are not contiguous, and types that NCCL does not have. It also refuses
  two ranks on one GPU, tags, and a communicator that not all ranks make.
- An operation is not complete before somebody waits for it: a stream that reads its result earlier raises.
- It raises in cases that NCCL does not check and in which GPUs may hang. Examples are operations of two groups that
  ranks launch in different orders, two threads that launch at once, and ranks with different operations.
- `NCCL_LAUNCH_ORDER_IMPLICIT` does not change this. NCCL then keeps the order of launches on each rank, and the order
  must still be the same on all ranks.

Sends and receives must be in batches. Operations that gnnexp does not use raise.
"""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType


def install(module: ModuleType) -> None:
    """Let `torch.distributed` make process groups of `module` in place of NCCL. Torch must be imported before."""
    import torch.cuda.nccl
    from torch.distributed import distributed_c10d

    # Set what torch sets if it finds NCCL, because torch refuses to register a backend of this name.
    found = {
        "ProcessGroupNCCL": module.ProcessGroupNCCL,
        "_NCCL_AVAILABLE": True,
        "default_pg_nccl_timeout": timedelta(minutes=10),
    }
    for name, value in found.items():
        setattr(distributed_c10d, name, value)
    torch.cuda.nccl.version = lambda: (0, 0, 0, "emulated")  # torch logs it with every error
