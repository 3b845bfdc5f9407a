"""Rounded products, and rows between layers in bfloat16, on CUDA: what the CPU emulates."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gnnexp.errors import ConfigError
from gnnexp.ops import products
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, Curve, global_losses, run_steps, worst_loss_error
from gnnexp.testing.ways import config_in, placed

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]
GPU, CPU = torch.device("cuda"), torch.device("cpu")
UNIT = 2**-8


@pytest.mark.parametrize(("a", "b"), [((50, 70), (70, 30)), ((2, 50, 70), (2, 70, 30)), ((0, 7), (7, 3))])
def test_products_in_bf16_are_those_of_the_cpu_up_to_the_order_of_sums(a, b):
    host = [torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in (a, b)]
    results = []
    for device in (CPU, GPU):
        x, y = (one.clone().to(device).requires_grad_() for one in host)
        out = products.product(x, y, "bf16")
        out.backward(torch.sin(out.detach().cpu()).to(device))
        results.append([out.detach(), x.grad, y.grad])
    for on_cpu, on_gpu in zip(*results, strict=True):
        assert on_gpu.is_cuda and on_gpu.dtype == torch.float32
        torch.testing.assert_close(
            on_gpu.cpu(), on_cpu, rtol=1e-2, atol=1e-2 * float(on_cpu.abs().max() if on_cpu.numel() else 1)
        )


@pytest.mark.skipif(torch.version.cuda is None, reason="the emulated device has no TF32")
def test_tf32_rounds_on_a_real_gpu():
    exact = torch.full((64, 64), 1 + 2**-12, device=GPU)
    products.full_precision()
    assert float(products.product(exact, torch.eye(64, device=GPU), "float32")[0, 0]) == 1 + 2**-12
    assert float(products.product(exact, torch.eye(64, device=GPU), "tf32")[0, 0]) == 1


@pytest.mark.skipif(torch.version.cuda is not None, reason="a real GPU has TF32")
def test_tf32_is_refused_on_the_emulated_device():
    with pytest.raises(ConfigError, match=r"train\.matmul"):
        _steps(_config("data", "sage", 1, "cuda", matmul="tf32"), "data", 1)


def _config(way: str, model: str, size: int, device: str, **train: str) -> dict[str, Any]:
    return config_in(
        way,
        {**MODELS[model], "kernel": "torch"},
        train={"dtype": "float32", **train},
        hardware={"workers": size, "device": device},
    )


def _steps(config: dict[str, Any], way: str, size: int) -> Curve:
    graph = nasty_graph()
    return run_steps(config, graph, 2, placed(way, graph, size))


@pytest.mark.parametrize(
    ("way", "model", "size"),
    [("data", "gat", 1), ("split", "sage", 2), ("communicate", "gin", 2), ("communicate", "sage", 4)],
)
def test_cuda_equals_cpu(ranks, way, model, size):
    """Also the bytes of rows, which are half of those of float32 rows."""
    rounded = {"matmul": "bf16", "activations": "bf16"}
    on_gpu, on_cpu = (
        ranks(size).run(_steps, _config(way, model, size, device, **rounded), way, size) for device in ("cuda", "cpu")
    )
    assert worst_loss_error(global_losses(on_gpu), global_losses(on_cpu)) <= 4 * UNIT
    for curve, other in zip(on_gpu, on_cpu, strict=True):
        assert (curve.rounds, curve.sent_bytes) == (other.rounds, other.sent_bytes)
