"""Dense products of layers, forward and backward, in the precision of `train.matmul`.

- `float32`: torch's own products. A rank turns TF32 off when it starts (`full_precision`). With `train.dtype=float64`,
  products are in float64.
- `tf32`: a GPU's tensor cores round both factors to TF32 (10 bits of mantissa).
- `bf16`: both factors are rounded to bfloat16 (7 bits of mantissa), to nearest, ties to even.

Sums and results are float32. The backward pass rounds the gradient and the other factor of its products in the same
way. Nothing else is rounded: parameters, sums over edges, biases, losses and decoders stay in float32.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnexp.components.schema import Matmul
from gnnexp.errors import Problem
from gnnexp.ops.first_order import FirstOrderFunction, applied

_FIX = "set train.matmul=float32"
_OLDEST_GPU = (8, 0)  # NVIDIA Ampere: the first with tensor cores for TF32 and bfloat16


def linear(x: Tensor, weight: Tensor, matmul: Matmul) -> Tensor:
    """`[N, C]` = `x @ weight.T`, from `[N, D]` and `[C, D]`."""
    return F.linear(x, weight) if matmul == "float32" else product(x, weight.t(), matmul)


def product(a: Tensor, b: Tensor, matmul: Matmul) -> Tensor:
    """`a @ b`, from `[n, k]` and `[k, m]`, or from `[B, n, k]` and `[B, k, m]`."""
    return a @ b if matmul == "float32" else applied(_Rounded, a, b, matmul)


def linear_by_head(x: Tensor, weight: Tensor, matmul: Matmul) -> Tensor:
    """`[N, K, F]` from `x` `[N, K, d]` and `weight` `[K, F, d]`: each head has its own matrix."""
    if matmul == "float32":
        return torch.einsum("nkd,kfd->nkf", x, weight)
    return product(x.transpose(0, 1), weight.transpose(1, 2), matmul).transpose(0, 1)


class _Rounded(FirstOrderFunction):
    """`a @ b` of rounded factors. For bf16, the backward pass keeps the rounded factors, in half of the bytes."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, matmul: Matmul) -> Tensor:
        ctx.matmul = matmul
        a, b = _factor(a, matmul), _factor(b, matmul)
        ctx.save_for_backward(a, b)
        return _multiplied(a, b, matmul)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        a, b = ctx.saved_tensors
        grad = _factor(grad, ctx.matmul)
        return (
            _multiplied(grad, b.mT, ctx.matmul) if ctx.needs_input_grad[0] else None,
            _multiplied(a.mT, grad, ctx.matmul) if ctx.needs_input_grad[1] else None,
            None,
        )


def _factor(x: Tensor, matmul: Matmul) -> Tensor:
    return x.bfloat16() if matmul == "bf16" else x


def _multiplied(a: Tensor, b: Tensor, matmul: Matmul) -> Tensor:
    """The float32 product of two factors; those of bf16 are bfloat16 tensors."""
    if matmul == "tf32":
        with _tf32():
            return a @ b
    if a.device.type == "cpu":
        return a.float() @ b.float()  # a product of two bfloat16 numbers is exact in float32
    return torch.mm(a, b, out_dtype=torch.float32) if a.dim() == 2 else torch.bmm(a, b, out_dtype=torch.float32)


@contextmanager
def _tf32() -> Iterator[None]:
    """TF32 for the products inside, and for no others: ranks of links must be those of float32 scores."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def full_precision() -> None:
    """Let products of float32 matrices be float32 in this process, whatever was set before."""
    torch.set_float32_matmul_precision("highest")


def matmul_problems(matmul: Matmul, device_type: str) -> list[Problem]:
    """Why `train.matmul` cannot be `matmul` on a device of this type; empty if it can."""
    if matmul != "tf32" or (device_type != "cpu" and torch.version.cuda is not None):
        return []
    return [Problem("train.matmul", matmul, "needs an NVIDIA GPU and hardware.device=cuda", f"{_FIX}, or bf16")]


def gpu_problems(matmul: Matmul, device: torch.device) -> list[Problem]:
    """Why this device cannot multiply as `matmul` says; empty if it can. Older GPUs would silently not round."""
    if (problems := matmul_problems(matmul, device.type)) or device.type == "cpu" or matmul == "float32":
        return problems
    gpu = torch.cuda.get_device_properties(device)
    if (gpu.major, gpu.minor) >= _OLDEST_GPU:
        return []
    return [
        Problem(
            "train.matmul",
            matmul,
            f"needs an NVIDIA GPU of compute capability 8.0 or later, and {gpu.name} has {gpu.major}.{gpu.minor}",
            _FIX,
        )
    ]


def matmul_facts(matmul: Matmul, device: torch.device) -> dict[str, str]:
    """For the record: where factors are rounded; empty if they are not."""
    if matmul == "float32":
        return {}
    return {
        "matmul": f"{matmul}: "
        + (
            "emulated: factors are rounded, then multiplied in float32"
            if device.type == "cpu"
            else "by the GPU's tensor cores"
        )
    }


def matmul_elsewhere(matmul: Matmul, device: torch.device) -> Matmul:
    """The precision for a copy of a model on another device than it was trained on: float32 if it has no other."""
    return "float32" if gpu_problems(matmul, device) else matmul
