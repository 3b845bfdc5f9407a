"""What tensor parallelism needs of model and data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gnnexp.components.facts import GraphFacts
from gnnexp.components.locate import choice_of, target_of
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.models.layer import Layer
from gnnexp.paradigms.checks import after_layer_problems, attends, has_block_layers, projects_edges
from gnnexp.paradigms.columns.coupled import projects_first, shared_columns
from gnnexp.paradigms.loops.chunking import Chunking
from gnnexp.paradigms.loops.local_chunks import layers_of
from gnnexp.placement.chunks import ChunkCost


def coupled_problems(experiment: Experiment) -> list[Problem]:
    """Conflicts: needs contract layers, and a hidden column for each rank."""
    problems, model = _contract_problems(experiment), experiment.model
    if model.layers > 1 and model.hidden < experiment.num_ranks:
        problems.append(_too_few("model.hidden", model.hidden, experiment))
    return problems


def decoupled_problems(experiment: Experiment, attention: str) -> list[Problem]:
    """Conflicts: needs contract layers that project rows before they weigh edges, and attention if it is frozen."""
    problems = [
        *_contract_problems(experiment),
        *after_layer_problems(experiment, "tensor_parallel", "decouples layers"),
    ]
    if projects_edges(experiment):
        problems.append(
            Problem(
                "model",
                target_of(experiment.model),
                "decoupled layers project rows, then weigh edges, and its projection differs from edge to edge",
                "set model.decomposition=basis, or paradigm.mode=coupled",
            )
        )
    if attention == "frozen" and not attends(experiment):
        problems.append(
            Problem(
                "paradigm.attention",
                "frozen",
                f"{choice_of(experiment.model)} has no attention",
                "choose model=gat, or set paradigm.attention=trained",
            )
        )
    return problems


def _contract_problems(experiment: Experiment) -> list[Problem]:
    if not has_block_layers(experiment):
        return []
    return [
        Problem(
            "model",
            target_of(experiment.model),
            "its layers need whole rows of all neighbours in one place",
            "choose model=gcn, sage, gin or gat, or paradigm=vertex_parallel",
        )
    ]


def column_problems(experiment: Experiment, facts: GraphFacts, chunking: Chunking, *, decoupled: bool) -> list[Problem]:
    """Problems with the data: too few columns of features or classes, or a budget below the largest vertex."""
    ranks, model = experiment.num_ranks, experiment.model
    layers = [layer for layer in layers_of(model, facts) if isinstance(layer, Layer)]
    if len(layers) < model.layers:
        return []  # `coupled_problems` and `decoupled_problems` refuse such models
    widths = {"dataset classes": facts.num_classes} if decoupled else _split_widths(layers, facts)
    problems = [_too_few(what, width, experiment) for what, width in widths.items() if 0 < width < ranks]
    dtype = getattr(torch, experiment.train.dtype)
    cost = chunk_cost(layers, ranks, dtype, decoupled=decoupled, weighted=facts.weighted)
    return [*problems, *chunking.data_problems(facts, [cost], model.needs.self_loops)]


def _split_widths(layers: Sequence[Layer], facts: GraphFacts) -> dict[str, int]:
    """The rows that coupled layers split, by description, with their numbers of columns."""
    widths = {}
    for index, layer in enumerate(layers):
        columns = len(shared_columns(layer, index, facts.sparse).rows) - 1
        if layer.traits.edge_projection is not None:
            widths[f"layer {index + 1}, in blocks,"] = columns
        elif projects_first(layer, index, facts.sparse):
            widths[f"layer {index + 1}, projected,"] = columns
        else:
            widths[f"layer {index + 1}'s input" if index else "dataset features"] = columns
    return widths


def chunk_cost(layers: Sequence[Any], ranks: int, dtype: torch.dtype, *, decoupled: bool, weighted: bool) -> ChunkCost:
    """Memory that a chunk takes, for the layer with the most columns per rank."""
    widths = [layers[-1].out_dim] if decoupled else [max(layer.in_dim, layer.width) for layer in layers]
    width = -(-max(widths) // ranks)
    edge_columns = -(-max(layer.traits.edge_columns for layer in layers) // ranks)
    num_weights = max(layer.num_weights for layer in layers)
    cost = ChunkCost.of(width, width, num_weights, dtype.itemsize, edge_columns)
    static = all(layer.traits.kind == "static" for layer in layers)
    return cost.with_products(num_weights, dtype.itemsize) if weighted and not static else cost


def _too_few(what: str, width: int, experiment: Experiment) -> Problem:
    fitting = max(1, width // experiment.hardware.nodes)
    return Problem(
        "hardware.workers",
        experiment.hardware.workers,
        f"more ranks ({experiment.num_ranks}) than columns to share out: {what} has {width}",
        f"set hardware.workers={fitting} or fewer, or choose paradigm=vertex_parallel",
    )
