"""Environment variables of a worker, as a pure function of the hardware profile."""

from __future__ import annotations

from gnnexp.components.schema import HardwareConfig

# Measured on 2 cores: an epoch of DGL's loop takes 844-862 ms, and with mmap_max=0 747-763 ms. Large tensors are then
# no longer mapped, zeroed and unmapped for every batch. The trim threshold also keeps the top of the heap. Page faults
# of a step with 60,000 x 256 activations: 63,765 (glibc's default), 2,363 (huge pages), 692 (also mmap_max=0), 271
# (also the threshold).
_POOLED = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184"

# A worker with this variable has all others.
EQUIPPED = "GNNEXP_EQUIPPED"


def worker_threads(hardware: HardwareConfig, cores: int) -> int:
    """Threads of each rank: as configured, or the machine's cores shared evenly, at least one."""
    return hardware.threads or max(1, cores // hardware.workers)


def worker_variables(hardware: HardwareConfig, cores: int) -> dict[str, str]:
    """The environment variables of every worker of a local run."""
    threads = str(worker_threads(hardware, cores))
    variables = {
        EQUIPPED: "1",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "NUMBA_NUM_THREADS": threads,
        "NUMBA_THREADING_LAYER": "omp",  # safe with several calling threads, as numba's own workqueue is not
        # torch, numba and dgl each have an OpenMP runtime. If threads of one spin after a region, they take the cores
        # from the next runtime. A GAT epoch on cora, busy machine: 109-139 ms spinning, 35-49 ms sleeping.
        "OMP_WAIT_POLICY": "passive",
        "DGLBACKEND": "pytorch",
        "GLOO_SOCKET_IFNAME": hardware.interface or "lo",
        "NCCL_SOCKET_IFNAME": hardware.interface or "lo",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # slurm/README.md: gloo cannot restart on the shared store
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",  # a crash in native code leaves its Python stack in the rank's log
    }
    if hardware.allocator == "pooled":
        variables |= {"GLIBC_TUNABLES": _POOLED, "THP_MEM_ALLOC_ENABLE": "1"}
    return variables
