"""A graph with the widths that a model will see: those of trained rows, and of what the task wants of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from gnnexp.experiment.build import build
from gnnexp.experiment.kinds import kind_of
from gnnexp.graph.graph import Graph


def as_seen(config: Mapping[str, Any], graph: Graph) -> Graph:
    """`graph` with as many features and classes as the model has inputs and outputs.

    Rows that are trained stand in for features; they are not there yet (torch's `meta` device: nobody can read them).
    """
    store = build(config["feature_store"], kind_of("feature_store"))
    task = build(config["task"], kind_of("task"))
    features = graph.features
    if getattr(store, "trainable", False):
        features = torch.empty(graph.num_nodes, store.dim, device="meta")
    num_outputs = task.num_outputs(graph, config.get("model", {}).get("hidden", 0))
    if features is graph.features and num_outputs == graph.num_classes:
        return graph
    return replace(graph, features=features, num_classes=num_outputs)
