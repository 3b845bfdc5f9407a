"""Choose the implementation of kernels: `model.kernel`."""

from __future__ import annotations

import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.ops.backend import Backend

KERNELS = ("auto", "numba", "torch", "dgl")


def make_backend(kernel: str, device: torch.device) -> Backend:
    """The backend named `kernel`; `auto` is numba on CPU and torch on CUDA."""
    chosen = ("torch" if device.type == "cuda" else "numba") if kernel == "auto" else kernel
    if chosen not in KERNELS or (chosen != "torch" and device.type == "cuda"):
        allowed = "torch (or auto) on cuda" if device.type == "cuda" else ", ".join(KERNELS)
        raise ConfigError(Problem("model.kernel", kernel, f"must be one of: {allowed}", "set model.kernel=auto"))
    if chosen == "numba":
        from gnnexp.ops.backend_numba import NumbaBackend

        return NumbaBackend()
    if chosen == "torch":
        from gnnexp.ops.backend_torch import TorchBackend

        return TorchBackend()
    from gnnexp.ops.backend_dgl import DGLBackend

    return DGLBackend()
