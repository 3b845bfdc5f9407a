"""The same exactness and counts on CUDA: ranks exchange by NCCL, or share a GPU and are staged through gloo."""

from __future__ import annotations

import pytest
import torch

from gnnexp.graph.block import Block
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, global_losses, run_steps, small_config, worst_gradient_error, worst_loss_error

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]


def _steps(config, steps):
    return run_steps(config, nasty_graph(), steps)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("model", MODELS)
def test_cuda_equals_cpu(ranks, size, model):
    config = small_config(MODELS[model])
    reference = run_steps(config, nasty_graph(), 20)
    on_gpu = {**config, "hardware": {**config["hardware"], "device": "cuda"}}
    curves = [run_steps(on_gpu, nasty_graph(), 20)] if size == 1 else ranks(size).run(_steps, on_gpu, 20)
    expected, found = global_losses([reference]), global_losses(curves)
    assert worst_loss_error(found, expected) <= 1e-10
    for curve in curves:
        assert worst_gradient_error(curve, reference) <= 1e-10
    if size > 1:
        parameters = sum(value.numel() for value in reference.gradients.values())
        assert sum(curve.sent_bytes["gradients"] for curve in curves) == 20 * 2 * (size - 1) * parameters * 8


def test_blocks_and_their_transposes_cross_to_the_device():
    block = Block(
        indptr=torch.tensor([0, 2, 3]),
        sources=torch.tensor([2, 0, 2], dtype=torch.int32),
        src_ids=torch.tensor([5, 6, 7], dtype=torch.int32),
        num_dst=2,
    )
    moved = block.to(torch.device("cuda"))
    assert moved.sources.is_cuda
    for name in ("indptr", "destinations", "edges"):
        assert torch.equal(getattr(moved.transpose, name).cpu(), getattr(block.transpose, name))
