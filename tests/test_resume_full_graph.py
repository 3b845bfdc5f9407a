"""Full-graph runs that were stopped go on bit for bit, with old rows and late sums as they were."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
import torch
from combinations import combinations
from full_graph import full_config
from stopping import attempt, curve, undisturbed

from gnnexp.testing.ways import TENSOR, VERTEX

WAYS: dict[str, dict[str, Any]] = {
    "communicate": {"_target_": VERTEX},
    "stale": {"_target_": VERTEX, "dependency": "stale", "staleness": 2},
    "broadcast": {"_target_": VERTEX, "dependency": "stale", "staleness": 1, "exchange": "broadcast"},
    "varied": {"_target_": VERTEX, "dependency": "stale", "staleness_metric": "variation", "variation_bound": 0.05},
    "stale_cut": {"_target_": VERTEX, "dependency": "stale", "staleness": 2},
    "late": {"_target_": VERTEX, "delay": 2},
    "late_parts": {"_target_": VERTEX, "delay": 1, "exchange": "broadcast", "cache_input_halo": True},
    "late_chunks": {"_target_": VERTEX, "delay": 1, "chunks": 3},
    "late_cut": {"_target_": VERTEX, "delay": 2},
    "binned_cut": {"_target_": VERTEX, "delay": 3, "bins": 3, "pipeline": True},
    "averaged": {"_target_": VERTEX, "delay": 1, "pipeline": True, "smooth_features": 0.9, "smooth_gradients": 0.8},
    "coupled": {"_target_": TENSOR},
    "padded": {"_target_": TENSOR, "order": "cheapest", "pad": True, "chunks": 3},
    "pipelined": {"_target_": TENSOR, "mode": "decoupled", "chunks": 3, "pipeline": True},
    "offloaded": {"_target_": "gnnexp.paradigms.offload.Offload", "chunks": 3, "host": "file"},
}


@pytest.mark.parametrize(
    ("way", "size", "stop_at"),
    # Old rows and late sums are stopped while the first are awaited, too, and old rows when all are renewed.
    combinations(
        WAYS,
        [1, 2, 3],
        [0, 2, 3],
        quick=lambda way, size, stop_at: (
            (size, stop_at) == ((3, 0) if way == "late_cut" else (2, 3) if way != "padded" else ())
            or (way, size, stop_at) in (("stale", 3, 0), ("stale", 3, 2))
        ),
    ),
)
def test_stopped_after_any_epoch_it_goes_on_bit_for_bit(ranks, way, size, stop_at):
    config = full_config("gat" if way in ("stale", "pipelined", "late_chunks") else "sage", WAYS[way])
    if way.endswith("cut"):
        config["partitioner"] = {"_target_": "gnnexp.partitioners.libra.LibraPartitioner"}
    config["train"] |= {"epochs": 6, "checkpoint_every": 1, "eval_every": 3}
    expected, ended = undisturbed(ranks, size, config)
    with tempfile.TemporaryDirectory() as folder:
        first = ranks(size).run(attempt, config, folder, stop_at)
        assert first[-1]["stopped_by"] == "SIGTERM" and len(curve(folder)) == stop_at + 1
        second = ranks(size).run(attempt, config, folder, None)
        assert curve(folder) == expected
        for before, after in zip(ended, second, strict=True):
            assert all(torch.equal(before["state"][key], after["state"][key]) for key in before["state"])
