"""Choose the implementation of kernels: `model.kernel`."""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, version

import torch

from gnnexp.components.packages import is_installed, missing_package
from gnnexp.errors import ConfigError, Problem
from gnnexp.kernels.pool import Pool
from gnnexp.ops.backend import Backend

KERNELS = ("auto", "numba", "triton", "torch", "dgl")
_ON_CUDA = ("auto", "triton", "torch")
_OLDEST_TRITON = (3, 6)


def has_triton() -> bool:
    """Whether Triton is installed in a version that the kernels are tested with. This does not import it."""
    try:
        found = re.match(r"(\d+)\.(\d+)", version("triton"))
    except PackageNotFoundError:
        return False
    return found is not None and is_installed("triton") and (int(found[1]), int(found[2])) >= _OLDEST_TRITON


def is_interpreted() -> bool:
    """Whether Triton interprets its kernels on the CPU instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def has_nvidia_gpu_build() -> bool:
    """Whether this torch runs kernels on NVIDIA's GPUs. On the emulated device it does not."""
    return torch.version.cuda is not None


def kernel_problem(kernel: str, device_type: str) -> Problem | None:
    """Why `model.kernel` cannot be `kernel` on a device of this type; None if it can."""
    fix = "set model.kernel=auto"
    if kernel not in KERNELS:
        return Problem("model.kernel", kernel, f"must be one of: {', '.join(KERNELS)}", fix)
    if device_type == "cuda" and kernel not in _ON_CUDA:
        return Problem("model.kernel", kernel, "must be triton, torch or auto with hardware.device=cuda", fix)
    if (kernel == "dgl" and not is_installed("dgl")) or (kernel == "triton" and not has_triton()):
        return missing_package("model.kernel", kernel, kernel, "model.kernel=auto")
    if kernel == "triton" and not is_interpreted() and (device_type == "cpu" or not has_nvidia_gpu_build()):
        return Problem(
            "model.kernel",
            kernel,
            "needs an NVIDIA GPU and hardware.device=cuda, or TRITON_INTERPRET=1 to "
            "interpret the kernels on the CPU, which is slow",
            fix,
        )
    return None


def chosen_kernel(kernel: str, device_type: str) -> str:
    """The implementation that `model.kernel` means: `auto` is numba on CPU and torch on a GPU.

    It is not Triton before Triton's kernels have passed `make gpu-proof` on a GPU (docs/gpu.md).
    """
    if kernel != "auto":
        return kernel
    return "torch" if device_type == "cuda" else "numba"


def kernel_elsewhere(kernel: str, device_type: str) -> str:
    """The kernel for a copy of a model on a device of another type than it was trained on."""
    return kernel if kernel_problem(kernel, device_type) is None else "auto"


def make_backend(kernel: str, device: torch.device, pool: Pool | None = None, *, computes: bool = True) -> Backend:
    """The backend that `kernel` means on `device`.

    Args:
        kernel: a value of `model.kernel`.
        device: device of the rows.
        pool: memory of outputs and gradients for kernels that take it from a pool, by default one of their own.
        computes: whether results have values. If not, they only have the shapes of this implementation's results.

    Raises:
        ConfigError: the kernel does not exist, does not run on this device, or is not installed.
    """
    if (problem := kernel_problem(kernel, device.type)) is not None:
        raise ConfigError(problem)
    backend = _backend(chosen_kernel(kernel, device.type), pool)
    if computes:
        return backend
    from gnnexp.ops.backend_shapes import shapes_of

    return shapes_of(backend)


def _backend(chosen: str, pool: Pool | None) -> Backend:
    if chosen == "numba":
        from gnnexp.ops.backend_numba import numba_backend

        return numba_backend(pool)
    if chosen == "triton":
        from gnnexp.ops.backend_triton import triton_backend

        return triton_backend()
    if chosen == "torch":
        from gnnexp.ops.backend_torch import torch_backend

        return torch_backend()
    from gnnexp.ops.backend_dgl import dgl_backend

    return dgl_backend(pool)
