"""What of offloaded training does not fit the data, and what it takes of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gnnexp.errors import Problem
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.models.model import Model
from gnnexp.paradigms.checks import block_layers, num_ranks, pairs
from gnnexp.paradigms.chunks.chunking import itemsize
from gnnexp.paradigms.chunks.local_chunks import layers_of
from gnnexp.paradigms.offloading.memory import layer_works, smallest_budget
from gnnexp.paradigms.offloading.options import OffloadOptions
from gnnexp.paradigms.offloading.plan import planned_reads, row_widths
from gnnexp.paradigms.offloading.rows import Slots


def check_offload(config: Mapping[str, Any], graph: Graph, options: OffloadOptions) -> list[Problem]:
    """Dense rows, and a budget that works with single vertices at least."""
    if isinstance(graph.features, SparseRows):
        return [Problem("paradigm", config["paradigm"]["_target_"], "chunks take dense rows, and the features are "
                        "sparse", "set dataset.sparse=false")]
    if graph.trains_features and (options.rows == "raw" or block_layers(config)):
        key, value = ("paradigm.rows", "raw") if options.rows == "raw" else ("model", config["model"]["_target_"])
        return [Problem(key, value, "rows that are trained are read projected: their gradients are added up before "
                        "they cross", "set paradigm.rows=cheapest, and choose model=sage, gcn, gat, gin or rgcn")]
    if options.device_memory is None:
        return []
    model, dtype = build(config["model"], Model), getattr(torch, config["train"]["dtype"])
    layers = layers_of(model, graph)
    projects, reads = planned_reads(layers, options.rows, graph)
    kept = ([False] * len(layers), may_keep_sums(layers, options))
    works = [layer_works(layers, projects, reads, sums, trained=graph.trains_features) for sums in kept]
    needs = [smallest_budget(graph, work, dtype, num_ranks(config), model.needs.self_loops) for work in works]
    needed = max((bytes_ for bytes_ in needs if bytes_ is not None), default=0)
    if needed <= options.device_memory:
        return []
    return [Problem("paradigm.device_memory", options.device_memory, "the largest vertices as chunks of their own take "
                    f"{needed} bytes", f"set paradigm.device_memory={needed} or more")]


def may_keep_sums(layers: Sequence[Layer | BlockLayer], options: OffloadOptions) -> list[bool]:
    """Per layer, whether its sums may be kept: blocks decide it, which a check before allocation does not have."""
    return [options.keep != "outputs" and isinstance(layer, Layer) and layer.kind == "static" for layer in layers]


def host_bytes(config: Mapping[str, Any], graph: Graph, options: OffloadOptions) -> tuple[int, int]:
    """`(rows that a rank keeps on the host at most with gradients of the targets' logits, sums of one layer)`.

    The second are in RAM beside, where the first are in files (`HostTier.to_add_up`).
    """
    model, size = build(config["model"], Model), itemsize(getattr(torch, config["train"]["dtype"]))
    layers = layers_of(model, graph)
    projects, reads = planned_reads(layers, options.rows, graph)
    widths = row_widths(reads, projects, may_keep_sums(layers, options))
    slots = Slots.of(widths, graph.num_features)
    vertices = -(-graph.num_nodes // num_ranks(config))
    outputs = vertices if pairs(config) else graph.splits.train.numel()
    rows = slots.num_bytes(vertices, size) + size * outputs * graph.num_classes
    rows += size * vertices * graph.num_features * graph.trains_features
    return rows, vertices * size * max((it.read.rows for it in widths if it.gradients), default=0)
