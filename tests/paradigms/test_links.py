"""Link prediction over trained rows is exact under every paradigm: ends of links, negatives and rows are elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from full_graph import TENSOR, VERTEX
from nasty_graphs import nasty_graph
from placement import assert_exact, combinations, cut_parts, parts
from training import MODELS as UNTYPED
from training import small_config

from gnnexp.graph.graph import Graph

RGCN = {"_target_": "gnnexp.models.rgcn.RGCN"}
MODELS: dict[str, Mapping[str, Any]] = {
    "basis": RGCN, "block": {**RGCN, "decomposition": "block", "blocks": 4},
    "sage_residual": {**UNTYPED["sage"], "residual": True, "norm": True, "layers": 3}, **UNTYPED,
}
FULL = {"_target_": "gnnexp.samplers.full.FullSampler", "key": "global"}
OFFLOAD = "gnnexp.paradigms.offload.Offload"
PROFILE = {"links": {"network": 1e9}, "flops": 1e11, "gather": 1e10}
DECODERS = "gnnexp.tasks.decoders"
# By name: the paradigm, how it places (no parts, vertices in parts, edges in parts).
WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "data": ({"_target_": "gnnexp.paradigms.data_parallel.DataParallel"}, ""),
    "split": ({"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}, "vertices"),
    "projections": ({"_target_": "gnnexp.paradigms.push_pull.PushPull", "pull": "projections"}, ""),
    "aggregates": ({"_target_": "gnnexp.paradigms.push_pull.PushPull", "pull": "aggregates"}, ""),
    "communicate": ({"_target_": VERTEX, "dependency": "communicate"}, "vertices"),
    "cache": ({"_target_": VERTEX, "dependency": "cache"}, "vertices"),
    "hybrid": ({"_target_": VERTEX, "dependency": "hybrid"}, "vertices"),
    "chunks": ({"_target_": VERTEX, "dependency": "communicate", "chunks": 4}, "vertices"),
    "vertex_cut": ({"_target_": VERTEX}, "edges"),
    "coupled": ({"_target_": TENSOR, "mode": "coupled"}, ""),
    "coupled_in_chunks": ({"_target_": TENSOR, "mode": "coupled", "chunks": 5}, ""),
    "offload_raw": ({"_target_": OFFLOAD, "chunks": 5, "rows": "raw"}, "vertices"),
    "offload_projected": ({"_target_": OFFLOAD, "chunks": 5, "rows": "projected"}, "vertices"),
    "offload": ({"_target_": OFFLOAD, "chunks": 16, "host": "file"}, "vertices"),
}
MINI_BATCH = ("data", "split", "projections", "aggregates")
TASKS: dict[str, dict[str, Any]] = {
    "distmult": {"negatives": 3, "sampling": "per_source", "corrupt": "both", "l2": 0.01, "dim": 12},
    "dot": {"decoder": {"_target_": f"{DECODERS}.Dot"}, "weighting": "balanced", "avoid_positives": False},
    "mlp": {"decoder": {"_target_": f"{DECODERS}.MLP"}, "negatives": 2, "sampling": "in_batch"},
}


def linked(typed: bool = True) -> Graph:
    """Links are some of the edges; the isolated vertices 0 and 1 are in no training link, and are evaluated."""
    graph = nasty_graph(typed=typed)
    destinations, kinds = graph.destinations().long(), graph.edge_types
    columns = [graph.indices.long(), *([] if kinds is None else [kinds.long()]), destinations]
    edges = torch.stack(columns, 1)[torch.arange(0, graph.num_edges, 4)]
    unseen = edges[:4].clone()
    unseen[:2, 0], unseen[2:, -1] = 0, 1
    return replace(graph, features=None, labels=None, num_classes=0,
                   links={"train": edges[10:], "valid": torch.cat((edges[:5], unseen)), "test": edges[5:10]})


def typed_links() -> Graph:
    return linked()


def plain_links() -> Graph:
    return linked(typed=False)


def config_of(way: str, model: str, task: str, dtype: str = "float64") -> dict[str, Any]:
    config = small_config(MODELS[model], hardware=PROFILE, train={"dtype": dtype, "batch_size": 24})
    config["paradigm"] = WAYS[way][0]
    sliced = "Sliced" if way in ("projections", "aggregates") else ""
    config["feature_store"] = {"_target_": f"gnnexp.feature_stores.embedding.{sliced}EmbeddingStore", "dim": 9}
    config["task"] = {"_target_": "gnnexp.tasks.link_prediction.LinkPrediction", **TASKS[task]}
    if way not in MINI_BATCH:
        config["sampler"] = FULL
    elif config["model"]["layers"] == 3:
        config["sampler"]["fanouts"] = [3, 3, 2]
    return config


def check(ranks: Any, size: int, way: str, model: str, task: str = "distmult", kind: str = "random",
          bound: float = 1e-10, dtype: str = "float64", steps: int = 20, **changes: Mapping[str, Any]) -> None:
    make = typed_links if model in ("basis", "block") else plain_links
    place = WAYS[way][1]
    partition = {"": None, "vertices": parts(make(), size, kind), "edges": cut_parts(make(), size, kind)}[place]
    config = config_of(way, model, task, dtype)
    for group, values in changes.items():
        config[group] = {**config[group], **values}
    assert_exact(ranks, size, make, config, bound, partition=partition, steps=steps)


@pytest.mark.parametrize(
    ("size", "way", "model"),
    combinations([1, 2, 3, 4], WAYS, ["basis", "block", "gcn", "sage_residual", "gat", "gin"],
                 quick=lambda size, way, model: size == 3 and model == ("basis" if way != "offload" else "gat")),
)
def test_same_losses_gradients_and_rows_as_one_worker(ranks, size, way, model):
    check(ranks, size, way, model)
