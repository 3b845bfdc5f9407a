"""The package is found once it is installed. Its five components are what they say, and exact where they say so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from gnn_extras.balanced import BalancedOptions
from gnn_extras.drop_edge import DropEdgeOptions
from gnn_extras.graph_conv import GraphConvOptions
from gnn_extras.largest import Largest
from gnn_extras.quantized import QuantizedOptions

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment
from gnnexp.errors import ConfigError
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.shard import Shard
from gnnexp.measure.phases import PhaseTimer
from gnnexp.models.layer import Degrees
from gnnexp.tasks.base import Examples
from gnnexp.testing.exactness import ranks_steps
from gnnexp.testing.graphs import edges_of, nasty_graph, random_graph
from gnnexp.testing.steps import global_losses, run_steps, small_config
from gnnexp.testing.ways import assert_exact_in

PACKAGE = Path(__file__).parents[1]
MODEL = {"_target_": "gnn_extras.graph_conv.GraphConvOptions", "hidden": 8, "layers": 2, "dropout": 0.5}
CHOICES = ("model=graph_conv", "sampler=drop_edge", "feature_store=quantized", "task=balanced", "paradigm=largest")


def config_of(share: float) -> dict[str, Any]:
    """All five components."""
    config = small_config(MODEL, paradigm={"_target_": "gnn_extras.largest.Largest", "share": share})
    return {
        **config,
        "sampler": {"_target_": "gnn_extras.drop_edge.DropEdgeOptions", "keep": 0.7},
        "feature_store": {"_target_": "gnn_extras.quantized.QuantizedOptions"},
        "task": {"_target_": "gnn_extras.balanced.BalancedOptions"},
    }


def test_all_five_together_are_exact_on_two_ranks(ranks):
    """With all gradients. The losses are compared with those of plain data parallelism on one worker."""
    config = config_of(1.0)
    curves = ranks(2).run(ranks_steps, nasty_graph, config, 8, None, "random")
    alone = run_steps({**config, "paradigm": small_config(MODEL)["paradigm"]}, nasty_graph(), 8)
    pairs = zip(global_losses(curves), global_losses([alone]), strict=True)
    assert all(abs(together - one) < 1e-10 * one for together, one in pairs)


def test_a_share_of_gradients_sends_the_bytes_of_the_formula(ranks):
    """Each rank sends k numbers and k places, 8 bytes each, to the other one."""
    curves = ranks(2).run(ranks_steps, nasty_graph, config_of(0.1), 3, None, "random")
    count = round(0.1 * sum(gradient.numel() for gradient in curves[0].gradients.values()))
    assert [curve.sent_bytes["gradients"] for curve in curves] == [3 * count * 16] * 2
    with pytest.raises(ConfigError, match="above 0"):
        Largest(share=0.0)


@pytest.mark.parametrize("way", ["split", "projections"])
def test_the_layer_is_exact_in_ways_that_cut_rows_and_columns(ranks, way):
    assert_exact_in(ranks, way, MODEL, steps=4)


def test_the_layer_is_its_formula():
    graph = random_graph(12, 30, 1)
    model = GraphConvOptions(hidden=8, layers=1, dropout=0.0).make()
    model.setup(5, 3, Degrees.of(graph), seed=0, dtype=torch.float64, device=torch.device("cpu"))
    h = torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    out, (layer,) = model.run_layer(0, Block(graph.indptr, graph.indices, torch.arange(12), 12), h, None), model.layers
    for v in range(12):
        total = h[graph.indices[graph.indptr[v] : graph.indptr[v + 1]].long()].sum(0)
        assert (out[v] - layer.self_weight @ h[v] - layer.weight @ total - layer.bias).abs().max() < 1e-12


def test_edges_stay_with_their_probability_whoever_else_is_there():
    graph, key = random_graph(200, 20_000, 0), BatchKey(seed=3, epoch=1, step=4)
    sampler = DropEdgeOptions(keep=0.7).make()
    sampler.setup(Shard(graph), 1)
    everyone = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    (block,) = sampler.sample(everyone, key).blocks
    stays = 0.7 * 20_000
    assert abs(block.num_edges - stays) < 5 * (0.3 * stays * 1.1) ** 0.5  # parallel edges stay or go together
    for vertex, sources in edges_of(sampler.sample(everyone[:9], key).blocks[0]).items():
        assert sources == edges_of(block)[vertex]
    everything = DropEdgeOptions(keep=1.0).make()
    everything.setup(Shard(graph), 1)
    assert everything.sample(everyone, key).blocks[0].num_edges == 20_000


def test_a_value_is_off_by_half_a_step_at_most():
    graph, store = nasty_graph(), QuantizedOptions().make()
    comm = Communicator(Environment(), PhaseTimer(), torch.device("cpu"))
    store.setup(Shard(graph), torch.float64, torch.device("cpu"), comm)
    ids = torch.arange(graph.num_nodes).flip(0)
    step = (graph.features.max(0).values - graph.features.min(0).values) / 255
    assert ((store.read(ids) - graph.features[ids]).abs() <= step * 0.5001 + 1e-7).all()
    assert store.nbytes() == graph.features.numel()


def test_every_class_has_the_same_share_of_the_loss():
    """Equal scores of all classes: each example adds its weight times log C."""
    graph, task = nasty_graph(), BalancedOptions().make()
    task.setup(graph)
    labels, classes = graph.labels[graph.splits.train], graph.num_classes
    shares = []
    for label in labels.unique():
        ids = graph.splits.train[labels == label]
        shares.append(task.loss_sum(torch.zeros(ids.numel(), classes, dtype=torch.float64), Examples(ids, ids.numel())))
    assert torch.stack(shares).std() < 1e-9 and abs(sum(shares) - labels.numel() * torch.tensor(classes).log()) < 1e-4


def losses(run: Path) -> list[float]:
    lines = (run / "epochs.jsonl").read_text().splitlines()
    return [json.loads(line)["metrics"]["loss/train"] for line in lines]


@pytest.mark.slow
@pytest.mark.interpreter
def test_the_installed_package_trains_on_two_ranks_as_on_one(tmp_path: Path) -> None:
    site, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    source = tmp_path / "source"  # a build writes into the folder
    subprocess.run(["cp", "-r", str(PACKAGE), str(source)], check=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True)
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(site)]))
    environment: Mapping[str, str] = os.environ | {"PYTHONPATH": path}

    def gnnexp(*words: str) -> str:
        command = [sys.executable, "-m", "gnnexp", *words]
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = json.loads(gnnexp("list", "models", "--json"))["choices"]
    assert {line["name"]: line["package"] for line in listed}["graph_conv"] == "gnn-extras 1.0"
    same = (*CHOICES, "dataset=digits", "train.epochs=3", "train.dtype=float64", "tracker=none", "paradigm.share=1")
    for workers in (1, 2):
        gnnexp("run", *same, f"hardware.workers={workers}", f"hydra.run.dir=run{workers}")
    alone, together = losses(here / "run1"), losses(here / "run2")
    assert len(alone) == 3 and all(abs(a - b) < 1e-10 * a for a, b in zip(alone, together, strict=True))
    job = json.loads((here / "run2" / "job.json").read_text())
    assert "gnn-extras==1.0" in json.dumps(job["provenance"])
