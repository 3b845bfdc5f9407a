"""What of offloaded training does not fit the data, and what it takes of the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gnnexp.config.build import build
from gnnexp.errors import Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows
from gnnexp.models.model import Model
from gnnexp.paradigms.checks import num_ranks
from gnnexp.paradigms.chunking import itemsize
from gnnexp.paradigms.local_chunks import layers_of
from gnnexp.paradigms.offload_memory import smallest_budget
from gnnexp.paradigms.offload_options import OffloadOptions


def check_offload(config: Mapping[str, Any], graph: Graph, options: OffloadOptions) -> list[Problem]:
    """Dense rows, and a budget that works with single vertices at least."""
    if isinstance(graph.features, SparseRows):
        return [Problem("paradigm", config["paradigm"]["_target_"], "chunks take dense rows, and the features are "
                        "sparse", "set dataset.sparse=false")]
    if options.device_memory is None:
        return []
    model, dtype = build(config["model"], Model), getattr(torch, config["train"]["dtype"])
    layers = layers_of(model, graph)
    needed = smallest_budget(graph, layers, dtype, num_ranks(config), model.needs.self_loops)
    if needed is None or needed <= options.device_memory:
        return []
    return [Problem("paradigm.device_memory", options.device_memory, "the largest vertices as chunks of their own take "
                    f"{needed} bytes", f"set paradigm.device_memory={needed} or more")]


def host_bytes(config: Mapping[str, Any], graph: Graph, options: OffloadOptions) -> int:
    """Rows that a rank keeps on the host: inputs of all layers, sums of at most all, gradients of one and of targets.

    Gradients of other layers take the place of inputs where widths are alike, which they are but for the first.
    """
    model, size = build(config["model"], Model), itemsize(getattr(torch, config["train"]["dtype"]))
    vertices = -(-graph.num_nodes // num_ranks(config))
    inputs = graph.num_features + (model.num_layers - 1) * model.hidden
    sums = 0 if options.keep == "outputs" else inputs
    rows = vertices * (inputs + sums + (model.hidden if model.num_layers > 1 else 0))
    return size * (rows + graph.splits.train.numel() * graph.num_classes)
