"""Node regression is exact in every way of training, also with batches of different sizes and ranks without targets."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import combinations
from experiments import assembled

from gnnexp.comm.environment import read_environment
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.graph.parts import write_parts
from gnnexp.graph.stream import GraphStream
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.testing.ways import MINI_BATCH, WAYS, assert_exact_in
from gnnexp.training.assemble import Artifacts
from gnnexp.training.checkpoint import Position
from gnnexp.training.evaluate import Evaluation
from gnnexp.training.interruption import Interruption
from gnnexp.training.optimization import Optimization
from gnnexp.training.train import run_epoch

TASK = {"_target_": "gnnexp.tasks.node_regression.NodeRegressionOptions"}
# One of each kind of paradigm.
QUICK = ("data", "split", "aggregates", "hybrid", "vertex_cut", "coupled", "offload_raw")


def valued_graph() -> Graph:
    """`nasty_graph` with large real labels. Vertices outside of the splits have none."""
    graph = nasty_graph()
    values = 1e4 + 300 * torch.randn(graph.num_nodes, generator=torch.Generator().manual_seed(4))
    values[graph.splits.test] = torch.where(graph.splits.test % 3 == 0, torch.nan, values[graph.splits.test])
    test = graph.splits.test[~values[graph.splits.test].isnan()]
    return replace(graph, labels=values, num_classes=0, splits=replace(graph.splits, test=test))


@pytest.mark.parametrize(
    ("size", "way"), combinations([1, 2, 3, 4], WAYS, quick=lambda size, way: size == 3 and way in QUICK)
)
def test_losses_and_gradients_are_those_of_one_worker(ranks, size: int, way: str) -> None:
    assert_exact_in(ranks, way, MODELS["sage"], size, steps=4, make=valued_graph, task=TASK)


@pytest.mark.parametrize(
    ("way", "kind"),
    combinations(
        [way for way, (_, place) in WAYS.items() if place],
        ["skewed", "empty"],
        quick=lambda way, kind: (way, kind) == ("split", "empty"),
    ),
)
def test_uneven_parts(ranks, way: str, kind: str) -> None:
    changes: dict[str, Any] = {"train": {"batch_size": 7}} if way in MINI_BATCH else {}
    assert_exact_in(
        ranks, way, MODELS["gcn"], steps=5, kind=kind, make=valued_graph, task={**TASK, "standardize": False}, **changes
    )


def _evaluated(config: dict[str, Any], folder: Path) -> dict[str, float]:
    job, trainer = assembled(config, Artifacts(valued_graph()), folder, read_environment())
    found = Evaluation(job, trainer).after(job.experiment.train.epochs - 1)
    return {name: value for name, value in found.items() if name.endswith(("/val", "/test"))}


@pytest.mark.parametrize("size", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_metrics_are_sums_over_all_vertices(ranks, size: int, tmp_path: Path) -> None:
    config = small_config(MODELS["sage"], task=TASK, train={"eval_memory": 30_000})
    expected = _evaluated(config, tmp_path)
    assert list(expected)[:3] == ["mse/val", "mae/val", "r2/val"]
    for found in ranks(size).run(_evaluated, config, tmp_path):
        assert found == pytest.approx(expected, rel=1e-12)


def _averaged(config: dict[str, Any], parts: int) -> dict[str, torch.Tensor]:
    graph = valued_graph()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "parts"
        owner = (torch.arange(graph.num_nodes) ** 2 // 97 % parts).short()
        write_parts(graph, GraphStream(graph), Partition(owner, parts), place, full_neighbors=True)
        job, trainer = assembled(config, Artifacts(graph, parts=place), Path(folder), read_environment())
        optimization = Optimization(job, trainer)
        for epoch in range(2):
            run_epoch(job, trainer, optimization, Position(epoch), {}, Interruption(job.comm))
        found = {name: value.detach().clone() for name, value in trainer.module.named_parameters()}
        job.comm.release()
    return found


def test_model_averaging_is_the_same_to_the_bit(ranks) -> None:
    config = small_config(
        MODELS["sage"],
        task=TASK,
        train={"epochs": 2},
        paradigm={"_target_": "gnnexp.paradigms.model_averaging.ModelAveraging"},
    )
    alone = _averaged(config, 4)
    for found in ranks(2).run(_averaged, config, 4):
        assert all(torch.equal(found[name], value) for name, value in alone.items())
