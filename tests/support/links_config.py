"""Configurations of link prediction over trained rows, in every exact way, and the graphs for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from gnnexp.graph.graph import Graph
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS as UNTYPED
from gnnexp.testing.steps import small_config
from gnnexp.testing.ways import FULL, MINI_BATCH, PROFILE, SLICED
from gnnexp.testing.ways import WAYS as ALL_WAYS

RGCN = {"_target_": "gnnexp.models.rgcn.RGCNOptions"}
MODELS: dict[str, Mapping[str, Any]] = {
    "basis": RGCN,
    "block": {**RGCN, "decomposition": "block", "blocks": 4},
    "sage_residual": {**UNTYPED["sage"], "residual": True, "norm": True, "layers": 3},
    **UNTYPED,
}
# Trained rows are read projected: their gradients are.
WAYS = {way: found for way, found in ALL_WAYS.items() if way != "offload_raw"}
DECODERS = "gnnexp.tasks.decoders"
TASKS: dict[str, dict[str, Any]] = {
    "distmult": {"negatives": 3, "sampling": "per_source", "corrupt": "both", "l2": 0.01, "dim": 12},
    "dot": {"decoder": {"_target_": f"{DECODERS}.Dot"}, "weighting": "balanced", "avoid_positives": False},
    "mlp": {"decoder": {"_target_": f"{DECODERS}.MLP", "dropout": 0.4}, "negatives": 2, "sampling": "in_batch"},
}


def linked(typed: bool = True) -> Graph:
    """Links are some of the edges; the isolated vertices 0 and 1 are in no training link, and are evaluated."""
    graph = nasty_graph(typed=typed)
    destinations, kinds = graph.destinations().long(), graph.edge_types
    columns = [graph.indices.long(), *([] if kinds is None else [kinds.long()]), destinations]
    edges = torch.stack(columns, 1)[torch.arange(0, graph.num_edges, 4)]
    unseen = edges[:4].clone()
    unseen[:2, 0], unseen[2:, -1] = 0, 1
    return replace(
        graph,
        features=None,
        labels=None,
        num_classes=0,
        links={"train": edges[10:], "valid": torch.cat((edges[:5], unseen)), "test": edges[5:10]},
    )


def typed_links() -> Graph:
    return linked()


def plain_links() -> Graph:
    return linked(typed=False)


def config_of(way: str, model: str, task: str, dtype: str = "float64") -> dict[str, Any]:
    config = small_config(MODELS[model], hardware=PROFILE, train={"dtype": dtype, "batch_size": 24})
    config["paradigm"] = WAYS[way][0]
    sliced = "Sliced" if way in SLICED else ""
    config["feature_store"] = {"_target_": f"gnnexp.feature_stores.embedding.{sliced}EmbeddingOptions", "dim": 9}
    config["task"] = {"_target_": "gnnexp.tasks.link_prediction.LinkPredictionOptions", **TASKS[task]}
    if way not in MINI_BATCH:
        config["sampler"] = FULL
    elif config["model"]["layers"] == 3:
        config["sampler"]["fanouts"] = [3, 3, 2]
    return config
