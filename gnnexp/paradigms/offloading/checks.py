"""Problems of offloaded training with the data, and memory that it takes on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from gnnexp.components.facts import GraphFacts
from gnnexp.components.locate import target_of
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.paradigms.checks import block_layers, pairs
from gnnexp.paradigms.chunks.local_chunks import layers_of
from gnnexp.paradigms.offloading.memory import layer_works, smallest_budget
from gnnexp.paradigms.offloading.plan import planned_reads, row_widths
from gnnexp.paradigms.offloading.rows import SlotPlan

if TYPE_CHECKING:
    from gnnexp.paradigms.offload import Offload


def check_offload(experiment: Experiment, facts: GraphFacts, options: Offload) -> list[Problem]:
    """Problems: sparse features, trained features that are not projected, or a budget below single vertices."""
    if facts.sparse:
        return [
            Problem(
                "paradigm",
                target_of(experiment.paradigm),
                "chunks take dense rows, and the features are sparse",
                "set dataset.sparse=false",
            )
        ]
    if facts.trains_features and (options.rows == "raw" or block_layers(experiment)):
        key, value = ("paradigm.rows", "raw") if options.rows == "raw" else ("model", target_of(experiment.model))
        return [
            Problem(
                key,
                value,
                "rows that are trained are read projected: their gradients are added up before they cross",
                "set paradigm.rows=cheapest, and choose model=sage, gcn, gat, gin or rgcn",
            )
        ]
    if options.device_memory is None:
        return []
    model, dtype = experiment.model, getattr(torch, experiment.train.dtype)
    layers = layers_of(model, facts)
    projects, reads = planned_reads(layers, options.rows, facts)
    kept = ([False] * len(layers), may_keep_sums(layers, options))
    works = [
        layer_works(layers, projects, reads, sums, trained=facts.trains_features, weighted=facts.weighted)
        for sums in kept
    ]
    needs = [smallest_budget(facts, work, dtype, experiment.num_ranks, model.needs.self_loops) for work in works]
    needed = max((bytes_ for bytes_ in needs if bytes_ is not None), default=0)
    if needed <= options.device_memory:
        return []
    return [
        Problem(
            "paradigm.device_memory",
            options.device_memory,
            f"the largest vertices as chunks of their own take {needed} bytes",
            f"set paradigm.device_memory={needed} or more",
        )
    ]


def may_keep_sums(layers: Sequence[Layer | BlockLayer], options: Offload) -> list[bool]:
    """For each layer, whether its sums may be kept. Blocks decide it later, when there are some."""
    return [
        options.keep != "outputs" and isinstance(layer, Layer) and layer.traits.kind == "static" for layer in layers
    ]


def host_bytes(experiment: Experiment, facts: GraphFacts, options: Offload) -> tuple[int, int]:
    """`(rows, sums)`: bytes that a rank keeps on the host at most.

    Rows include gradients of the targets' logits. Sums are the gradients of one layer, which stay in RAM while they are
    added up, if rows are in files (`HostTier.to_add_up`).
    """
    model, size = experiment.model, getattr(torch, experiment.train.dtype).itemsize
    layers = layers_of(model, facts)
    projects, reads = planned_reads(layers, options.rows, facts)
    widths = row_widths(reads, projects, may_keep_sums(layers, options))
    slots = SlotPlan.of(widths, facts.num_features)
    vertices = -(-facts.num_nodes // experiment.num_ranks)
    outputs = vertices if pairs(experiment) else facts.num_train
    rows = slots.num_bytes(vertices, size) + size * outputs * facts.num_classes
    rows += size * vertices * facts.num_features * facts.trains_features
    return rows, vertices * size * max((it.read.rows for it in widths if it.gradients), default=0)
