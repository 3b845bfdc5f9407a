"""The baseline without edges: a plain stack of `nn.Linear`, exact wherever a layer on the contract runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_graphs import sparse_rows
from torch import Tensor, nn

from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.partition import Partition
from gnnexp.graph.shard import Shard
from gnnexp.models.layer import Degrees
from gnnexp.models.mlp import MLPModel, MLPOptions
from gnnexp.samplers.fused import FusedOptions
from gnnexp.testing.exactness import assert_exact, cut_parts, parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import small_config
from gnnexp.testing.ways import TENSOR, VERTEX

GRAPH = nasty_graph()
NODE = {"_target_": "gnnexp.models.mlp.MLPOptions"}
OFFLOAD = {"_target_": "gnnexp.paradigms.offload.Offload", "chunks": 5}
PUSH_PULL = "gnnexp.paradigms.push_pull.PushPull"
Place = Callable[..., Partition] | None
WAYS: dict[str, tuple[dict[str, Any], Place]] = {
    "data": ({"_target_": "gnnexp.paradigms.data_parallel.DataParallel"}, None),
    "split": ({"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}, parts),
    "projections": ({"_target_": PUSH_PULL, "pull": "projections"}, None),
    "aggregates": ({"_target_": PUSH_PULL, "pull": "aggregates"}, None),
    "communicate": ({"_target_": VERTEX, "dependency": "communicate"}, parts),
    "chunks": ({"_target_": VERTEX, "dependency": "cache", "chunks": 4}, parts),
    "vertex_cut": ({"_target_": VERTEX}, cut_parts),
    "coupled": ({"_target_": TENSOR, "mode": "coupled"}, None),
    "decoupled": ({"_target_": TENSOR, "mode": "decoupled"}, None),
    "decoupled_pipelined": ({"_target_": TENSOR, "mode": "decoupled", "chunks": 3, "pipeline": True}, None),
    "offload_raw": ({**OFFLOAD, "rows": "raw"}, parts),
    "offload_projected": ({**OFFLOAD, "rows": "projected"}, parts),
}


@pytest.fixture
def batch() -> Batch:
    sampler = FusedOptions(fanouts=[3, 3]).make()
    sampler.setup(Shard(GRAPH), 2)
    return sampler.sample(torch.arange(5, 40, dtype=torch.int32), BatchKey(0, 0, 0), 35)


def model(**options: Any) -> MLPModel:
    made = MLPOptions(hidden=8, layers=2, dropout=0.0, **options).make()
    made.setup(13, 4, Degrees.of(GRAPH), seed=0, dtype=torch.float64, device=torch.device("cpu"))
    return made


def features(batch: Batch) -> Tensor:
    assert isinstance(GRAPH.features, Tensor)
    return GRAPH.features[batch.blocks[0].src_ids.long()].double()


def plain(of: MLPModel) -> nn.Sequential:
    """The same in PyTorch's own words, with the same parameters."""
    linears = nn.Linear(13, 8), nn.Linear(8, 4)
    for linear, layer in zip(linears, of.layers, strict=True):
        linear.weight, linear.bias = layer.weight, layer.bias
    return nn.Sequential(linears[0], of.layers[0].norm or nn.Identity(), nn.ReLU(), linears[1])


@pytest.mark.parametrize("norm", [False, True])
def test_equal_to_plain_linears(batch, norm):
    found = model(norm=norm)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter += 0.01  # biases too
    expected, weights = plain(found), torch.randn(35, 4, dtype=torch.float64)
    out = found(batch, features(batch))
    wanted = expected(features(batch)[:35])
    assert (out - wanted).abs().max() < 1e-12
    ours = torch.autograd.grad((out * weights).sum(), list(found.parameters()))
    theirs = torch.autograd.grad((wanted * weights).sum(), list(found.parameters()))
    assert all((a - b).abs().max() < 1e-12 for a, b in zip(ours, theirs, strict=True))


def test_sparse_features_are_projected_as_dense_ones(batch):
    rows = sparse_rows(features(batch))
    found = model()
    assert (found(batch, rows) - found(batch, rows.to_dense())).abs().max() < 1e-12


@pytest.mark.parametrize("way", WAYS)
def test_same_losses_and_gradients_as_one_worker(ranks, way):
    """The decoupled one too: there is nothing to propagate, so it is its own twin."""
    paradigm, place = WAYS[way]
    config = small_config(NODE)
    config["paradigm"] = paradigm
    if paradigm["_target_"] == PUSH_PULL:
        config["feature_store"] = {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"}
    elif way not in ("data", "split"):
        config["sampler"] = {"_target_": "gnnexp.samplers.full.FullOptions", "key": "global"}
        config["train"]["batch_size"] = None
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, partition=place and place(GRAPH, 3), steps=4)
