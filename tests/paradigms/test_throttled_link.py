"""With `hardware.throttle_h2d`, everything that a record counts as crossing takes the time of its bytes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from experiments import assembled
from full_graph import full_config

from gnnexp.comm.environment import Environment
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.testing.ways import TENSOR, VERTEX
from gnnexp.training.assemble import Artifacts

THROTTLE = 1e6
WAYS: dict[str, dict[str, Any]] = {
    "vertex": {"_target_": VERTEX},
    "chunks": {"_target_": VERTEX, "chunks": 4},
    "decoupled": {"_target_": TENSOR, "mode": "decoupled", "chunks": 3, "nn_device": "host"},
    "decoupled_whole": {"_target_": TENSOR, "mode": "decoupled", "nn_device": "host"},
    "offload": {"_target_": "gnnexp.paradigms.offload.Offload", "chunks": 4},
    "resident": {"_target_": "gnnexp.paradigms.offload.Offload", "chunks": 4, "resident_memory": 1 << 40},
    "data": {"_target_": "gnnexp.paradigms.data_parallel.DataParallel"},
}


class SleepsOnly:
    """A clock that only sleeping moves, so that copies take no time."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("way", list(WAYS))
def test_what_crosses_takes_its_time(way, monkeypatch):
    clock = SleepsOnly()
    monkeypatch.setattr("gnnexp.tiers.link.time", clock)
    monkeypatch.setattr("gnnexp.tiers.tier.time", clock)
    hardware = {"throttle_h2d": THROTTLE}
    if way == "data":
        config = small_config(MODELS["sage"], hardware=hardware)
    else:
        config = full_config("gcn", WAYS[way], "float32", hardware=hardware)
    graph = nasty_graph()
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts(graph, 1)), Path(folder), Environment())
        for epoch in range(2):
            for batch in trainer.batches(epoch):
                trainer.forward_backward(batch)
        work = trainer.end_epoch().work
        job.comm.release()
    crossed = work["tier/h2d_bytes"] + work.get("tier/d2h_bytes", 0)
    assert crossed > 0 and abs(clock.now - crossed / THROTTLE) < 2.1e-3
