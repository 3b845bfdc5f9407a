"""Link prediction over trained rows on CUDA: the same losses, gradients and counts as on CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from links_config import WAYS, config_of, plain_links, typed_links

from gnnexp.testing.exactness import joined
from gnnexp.testing.steps import Curve, global_losses, run_steps, worst_gradient_error, worst_loss_error
from gnnexp.testing.ways import MINI_BATCH, placed

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]


def _steps(config: dict[str, Any], way: str, size: int, typed: bool, steps: int) -> Curve:
    graph = typed_links() if typed else plain_links()
    return run_steps(config, graph, steps, placed(way, graph, size))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("size", "model", "task"),
    [
        (2, "basis", "distmult"),
        (4, "gat", "mlp"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(2, "sage", "dot"), (2, "gcn", "mlp"), (1, "block", "distmult")]
        ),
    ],
)
def test_cuda_equals_cpu(ranks, size, way, model, task, steps):
    on_cpu = config_of(way, model, task)
    on_cpu["model"] = {**on_cpu["model"], "kernel": "torch"}  # numba's moves the transposes of chunks too
    on_gpu = {**on_cpu, "hardware": {**on_cpu["hardware"], "device": "cuda"}}
    typed = model in ("basis", "block")
    curves, same = (ranks(size).run(_steps, config, way, size, typed, steps) for config in (on_gpu, on_cpu))
    found, expected = global_losses(curves), global_losses(same)
    assert worst_loss_error(found, expected) <= 1e-10
    assert worst_gradient_error(joined(curves, same[0]), same[0]) <= 1e-10
    for curve, other in zip(curves, same, strict=True):
        if way in MINI_BATCH:  # blocks that are made on the GPU are not copied to it
            assert curve.work.pop("tier/h2d_bytes") <= other.work.pop("tier/h2d_bytes")
        assert (curve.rounds, curve.sent_bytes, curve.work) == (other.rounds, other.sent_bytes, other.work)
