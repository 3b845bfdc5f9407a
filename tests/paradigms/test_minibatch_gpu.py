"""Split, push-pull and placed data parallelism on CUDA: the same losses, gradients and counts as one CPU worker."""

from __future__ import annotations

import pytest
import torch

from gnnexp.testing.exactness import joined, parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, global_losses, run_steps, small_config, worst_gradient_error, worst_loss_error

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]

SLICED = {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"}
PARTITIONED = {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"}
SHARDED = {"_target_": "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions", "capacity": 0.2}
STATIC = {"_target_": "gnnexp.feature_stores.static_cache.StaticCacheOptions", "capacity": 0.2, "of": "owned"}
LOCAL = {"_target_": "gnnexp.feature_stores.local.LocalOptions"}
SPLIT = {"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}
PUSH_PULL = {"_target_": "gnnexp.paradigms.push_pull.PushPull"}
DATA = {"_target_": "gnnexp.paradigms.data_parallel.DataParallel", "assign": "owner"}
SYSTEMS = {
    "gsplit": (SPLIT, {**LOCAL, "cache": STATIC}, "replicated"),
    "gsplit_topology": (SPLIT, PARTITIONED, "partitioned"),
    "push_projections": ({**PUSH_PULL, "pull": "projections"}, SLICED, "replicated"),
    "push_aggregates": ({**PUSH_PULL, "pull": "aggregates"}, SLICED, "replicated"),
    "vanilla": (DATA, PARTITIONED, "partitioned"),
    # Rounds are compared with a CPU's; tests/feature_stores/test_peer_access.py has the ways without rounds.
    "quiver": (DATA, {**LOCAL, "cache": {**SHARDED, "access": "collective"}}, "replicated"),
}


def _steps(config, num_parts, steps):
    graph = nasty_graph()
    partition = None if config["paradigm"]["_target_"].endswith("PushPull") else parts(graph, num_parts)
    return run_steps(config, graph, steps, partition)


@pytest.mark.parametrize(
    ("size", "model"),
    [
        (2, "sage"),
        (2, "gat"),
        (4, "gat"),
        *(
            pytest.param(size, model, marks=pytest.mark.slow)
            for size, model in [
                (4, "sage"),
                *((size, model) for size in (2, 4) for model in MODELS if model not in ("sage", "gat")),
            ]
        ),
    ],
)
@pytest.mark.parametrize("system", SYSTEMS)
def test_cuda_equals_one_cpu_worker(ranks, size, model, system, steps):
    paradigm, store, topology = SYSTEMS[system]
    plain = small_config(MODELS[model])
    on_cpu = {
        **plain,
        "paradigm": paradigm,
        "feature_store": store,
        "sampler": {**plain["sampler"], "topology": topology},
    }
    on_cpu["sampler"]["device"] = "cpu"  # counts are compared; test_device_sampling_gpu.py has cuda
    on_gpu = {**on_cpu, "hardware": {**plain["hardware"], "device": "cuda"}}
    reference = run_steps(plain, nasty_graph(), steps)
    curves = ranks(size).run(_steps, on_gpu, size, steps)
    expected, found = global_losses([reference]), global_losses(curves)
    assert worst_loss_error(found, expected) <= 1e-10
    assert worst_gradient_error(joined(curves, reference), reference) <= 1e-10
    same = ranks(size).run(_steps, on_cpu, size, steps)
    for curve, other in zip(curves, same, strict=True):
        assert (curve.rounds, curve.sent_bytes, curve.work) == (other.rounds, other.sent_bytes, other.work)
