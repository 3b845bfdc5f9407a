"""NCCL for the emulated GPUs: its rules, on streams of the emulated device; gloo moves the bytes.

torch makes it where it would make NCCL (`cuda:nccl`), and sends CUDA tensors there. Refused, as by NCCL: tensors of the
host, tensors that are not contiguous or of a type that NCCL has not, two ranks on one GPU, tags, a communicator that
not all ranks come to make. An operation that nobody waited for is not over: a stream that reads its result raises.
What NCCL does not check, and GPUs may hang on, raises: ranks that launch operations of two groups in different orders,
two threads that launch at once, ranks whose operations are not the same. `NCCL_LAUNCH_ORDER_IMPLICIT` changes none of
it: NCCL then keeps to the order of launches on each rank, and that must still be the same on all of them.

Sends and receives are in batches; operations that gnnexp has no use for raise.
"""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType


def install(module: ModuleType) -> None:
    """Let `torch.distributed` make `module`'s process groups where NCCL is asked for; after torch is imported."""
    import torch.cuda.nccl
    from torch.distributed import distributed_c10d

    # What torch itself does where it finds NCCL: a backend that is registered by this name would be refused.
    found = {"ProcessGroupNCCL": module.ProcessGroupNCCL, "_NCCL_AVAILABLE": True,
             "default_pg_nccl_timeout": timedelta(minutes=10)}
    for name, value in found.items():
        setattr(distributed_c10d, name, value)
    torch.cuda.nccl.version = lambda: (0, 0, 0, "emulated")  # torch logs it with every error
