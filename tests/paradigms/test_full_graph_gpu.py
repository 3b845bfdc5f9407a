"""Full-graph systems on CUDA, as their presets make them: the same losses, gradients and counts as on CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from full_graph import FULL_MODELS, full_config

from gnnexp.testing.exactness import cut_parts, joined, parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import Curve, global_losses, run_steps, worst_gradient_error, worst_loss_error

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]

SYSTEMS = (
    "neutronstar_comm",
    "neutronstar_cache",
    "neutronstar",
    "sancus",
    "distgnn",
    "neutrontp_naive",
    "neutrontp",
    "hongtu_base",
    "hongtu_p2p",
    "hongtu",
)


def _config(system: str, model: str, device: str, **options: Any) -> dict[str, Any]:
    """The paradigm and the profile of the preset, on a model that is small."""
    composed = pytest.importorskip("gnnexp.config.compose").compose([f"system={system}"]).config
    figures = {key: composed["hardware"][key] for key in ("flops", "gather", "links")}
    config = full_config(model, {**composed["paradigm"], **options}, hardware={"device": device, **figures})
    config["model"] = {**config["model"], "kernel": "torch"}  # numba's moves the transposes of chunks too
    config["partitioner"] = composed["partitioner"]
    return config


def _steps(config: dict[str, Any], size: int, steps: int) -> Curve:
    graph, partition = nasty_graph(), None
    if config["paradigm"]["_target_"].endswith(("VertexParallel", "Offload")):
        partition = (cut_parts if "libra" in config["partitioner"]["_target_"] else parts)(graph, size)
    return run_steps(config, graph, steps, partition)


def assert_same(ranks: Any, size: int, system: str, model: str, steps: int, **options: Any) -> None:
    on_gpu, on_cpu = (_config(system, model, device, **options) for device in ("cuda", "cpu"))
    curves, same = (ranks(size).run(_steps, config, size, steps) for config in (on_gpu, on_cpu))
    found, expected = global_losses(curves), global_losses(same)
    assert worst_loss_error(found, expected) <= 1e-10
    assert worst_gradient_error(joined(curves, same[0]), same[0]) <= 1e-10
    for curve, other in zip(curves, same, strict=True):
        assert (curve.rounds, curve.sent_bytes, curve.work) == (other.rounds, other.sent_bytes, other.work)


@pytest.mark.parametrize(
    ("size", "model"),
    [
        (2, "gat"),
        (4, "gat"),
        *(
            pytest.param(size, model, marks=pytest.mark.slow)
            for size, model in [(1, "gat"), *((2, model) for model in FULL_MODELS if model != "gat")]
        ),
    ],
)
@pytest.mark.parametrize("system", SYSTEMS)
def test_cuda_equals_cpu(ranks, size, model, system, steps):
    assert_same(ranks, size, system, model, steps)


@pytest.mark.parametrize(
    ("system", "options"),
    [
        ("sancus", {"staleness": 0}),
        ("sancus", {"staleness": 2, "exchange": "halo"}),
        ("distgnn", {"delay": 2}),
        ("distgnn", {"delay": 2, "bins": 3, "pipeline": True}),
        ("neutronstar_comm", {"delay": 1, "pipeline": True, "smooth_features": 0.5, "smooth_gradients": 0.5}),
        ("distgnn", {"cache_input_halo": False}),
        ("neutrontp_naive", {"chunks": 3}),
        ("neutrontp", {"chunks": 1, "pipeline": False}),
        ("neutrontp", {"chunks": 3, "pipeline": False}),
        ("neutrontp", {"chunks": None, "device_memory": 60_000}),
        ("neutrontp", {"attention": "frozen"}),
        ("neutrontp", {"resident_memory": 10**9}),
        ("neutrontp", {"dense_blocks": 3}),
        ("neutrontp", {"dense_blocks": 3, "nn_device": "device"}),
        ("neutrontp_naive", {"chunks": 3, "resident_memory": 4_000}),
        ("neutronstar_comm", {"chunks": 3, "resident_memory": 10**9}),
        ("hongtu", {"resident_memory": 10**9}),
        ("hongtu_base", {"resident_memory": 2_000}),
        ("neutrontp", {"attention_work": "halo", "pad": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "_".join(f"{k}={v}" for k, v in value.items()),
)
def test_cuda_equals_cpu_with_other_options(ranks, system, options, steps):
    assert_same(ranks, 2, system, "gat", steps, **options)


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name != "neutrontp"])
def test_cuda_equals_one_cpu_worker_where_the_system_is_exact(ranks, system, steps):
    """Sancus with rows that are never old."""
    options = {"staleness": 0} if system == "sancus" else {}
    curves = ranks(2).run(_steps, _config(system, "sage", "cuda", **options), 2, steps)
    plain = full_config("sage", {"_target_": "gnnexp.paradigms.data_parallel.DataParallel"})
    reference = run_steps(plain, nasty_graph(), steps)
    expected, found = global_losses([reference]), global_losses(curves)
    assert worst_loss_error(found, expected) <= 1e-10
    assert worst_gradient_error(joined(curves, reference), reference) <= 1e-10
