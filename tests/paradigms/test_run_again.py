"""Edges that backward computes again, because nothing of a chunk was kept: those of all layers that run again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from combinations import combinations
from experiments import assembled
from full_graph import full_config

from gnnexp.comm.environment import read_environment
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.ways import TENSOR, VERTEX
from gnnexp.training.assemble import Artifacts

LAYERS, EPOCHS = 3, 2
WAYS: dict[str, dict[str, Any]] = {
    "coupled": {"_target_": TENSOR, "mode": "coupled", "chunks": 5},
    "decoupled": {"_target_": TENSOR, "mode": "decoupled", "chunks": 5},
    "pipelined": {"_target_": TENSOR, "mode": "decoupled", "chunks": 5, "pipeline": True},
    "frozen": {"_target_": TENSOR, "mode": "decoupled", "chunks": 5, "pipeline": True, "attention": "frozen"},
    "vertex": {"_target_": VERTEX, "chunks": 4},
    "cached": {"_target_": VERTEX, "chunks": 4, "dependency": "cache"},
}


def _work(config: dict[str, Any], size: int) -> dict[str, int]:
    """The counts of some epochs."""
    graph = nasty_graph()
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts(graph, size)), Path(folder), read_environment())
        trainer.module.train()
        for epoch in range(EPOCHS):
            for batch in trainer.batches(epoch):
                trainer.forward_backward(batch)
                trainer.synchronize()
        work: dict[str, int] = trainer.end_epoch().work
        job.comm.release()
    return work


def _again(way: str, model: str) -> float:
    """The share of all layers that backward runs again."""
    if way in ("vertex", "cached"):
        return 1.0
    if way == "frozen" or model != "gat":
        return 0.0  # constant weights: backward needs the transpose only
    return 1.0


@pytest.mark.parametrize(
    ("way", "model"),
    [
        *combinations(
            [way for way in WAYS if way != "frozen"],
            ["gcn", "gat"],
            quick=lambda *case: (
                case in (("coupled", "gat"), ("pipelined", "gat"), ("vertex", "gcn"), ("decoupled", "gcn"))
            ),
        ),
        pytest.param("frozen", "gat", marks=pytest.mark.slow),
    ],
)
def test_edges_are_those_of_the_layers_that_run_again(ranks, way, model):
    config = full_config(model, WAYS[way], "float32", model={"layers": LAYERS})
    for work in ranks(2).run(_work, config, 2):
        assert work["edges_computed_again"] == _again(way, model) * work["edges_computed"] > -1


@pytest.mark.parametrize("way", ["coupled", "vertex"])
def test_without_chunks_nothing_is_computed_again_or_counted(ranks, way):
    config = full_config("gat", {**WAYS[way], "chunks": 1}, "float32", model={"layers": LAYERS})
    assert all("edges_computed_again" not in work for work in ranks(2).run(_work, config, 2))
