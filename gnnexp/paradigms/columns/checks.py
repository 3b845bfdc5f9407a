"""What tensor parallelism needs of model and data."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gnnexp.components.facts import GraphFacts
from gnnexp.components.locate import choice_of, target_of
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.models.layer import Layer
from gnnexp.ops.edge_bytes import EdgeKind
from gnnexp.paradigms.checks import after_layer_problems, attends, has_block_layers, projects_edges
from gnnexp.paradigms.columns.orders import ColumnShares, Inputs, Order, must_project, projected_layers
from gnnexp.paradigms.loops.chunking import Chunking
from gnnexp.paradigms.loops.local_chunks import layers_of, planned_edge_kind, with_attention
from gnnexp.placement.chunks import ChunkCost


def coupled_problems(experiment: Experiment, *, pad: bool) -> list[Problem]:
    """Conflicts: needs contract layers, and columns that can be filled up with zeros if that is asked for."""
    problems = _contract_problems(experiment)
    if pad and projects_edges(experiment):
        problems.append(
            Problem(
                "paradigm.pad",
                True,
                "ranks share whole blocks of this model, and a block of zeros has no parameters",
                "set paradigm.pad=false, or model.decomposition=basis",
            )
        )
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


def column_problems(
    experiment: Experiment, facts: GraphFacts, chunking: Chunking, order: Order | None, *, pad: bool
) -> list[Problem]:
    """Problems with the data: a budget below the largest vertex.

    Args:
        experiment, facts, chunking: what is trained.
        order: that of coupled layers; None for decoupled ones.
        pad: whether columns are filled up with zeros.
    """
    ranks, model = experiment.num_ranks, experiment.model
    layers = [layer for layer in layers_of(model, facts) if isinstance(layer, Layer)]
    if len(layers) < model.layers:
        return []  # `coupled_problems` and `decoupled_problems` refuse such models
    inputs = Inputs(facts.sparse, experiment.feature_store.trained_columns is not None)
    projects = (
        None if order is None else projected_layers(layers, order, inputs, ColumnShares(facts.num_nodes, ranks, pad))
    )
    dtype = getattr(torch, experiment.train.dtype)
    cost = chunk_cost(layers, ranks, dtype, projects, inputs, planned_edge_kind(experiment, facts))
    return list(chunking.data_problems(facts, [cost], model.needs.self_loops))


# With fewer columns on a rank, or fewer than keys, a row's keys and an edge's scores take more than what copies of rows
# leave unused.
_NARROW = 8


def chunk_cost(
    layers: Sequence[Layer],
    ranks: int,
    dtype: torch.dtype,
    projects_first: Sequence[bool] | None,
    inputs: Inputs,
    edges: EdgeKind,
) -> ChunkCost:
    """Memory that a chunk takes, for the layer with the most columns per rank.

    Args:
        layers: all layers.
        ranks: number of ranks.
        dtype: type of rows.
        projects_first: for each coupled layer, whether it aggregates projected rows; None for decoupled layers.
        inputs: what is known of the features.
        edges: how the run computes with edges.
    """
    widths = [layers[-1].out_dim] if projects_first is None else []
    for index, (layer, projects) in enumerate(zip(layers, projects_first or (), strict=bool(projects_first))):
        chosen = projects and not must_project(layer, index, inputs)
        widths.append(layer.width if chosen else max(layer.in_dim, layer.width))
    width = -(-max(widths) // ranks)
    edge_columns = -(-max(layer.traits.edge_columns for layer in layers) // ranks)
    num_weights = max(layer.num_weights for layer in layers)
    cost = ChunkCost.of(width, width, num_weights, dtype.itemsize, edge_columns)
    cost = with_attention(cost, layers[-1:] if projects_first is None else layers, dtype, edges)
    if width < max(_NARROW, 2 * num_weights) and any(layer.traits.kind == "projected" for layer in layers):
        cost = cost.with_keys(num_weights, dtype.itemsize)
    static = all(layer.traits.kind == "static" for layer in layers)
    return cost.with_products(num_weights, dtype.itemsize) if edges.weighted and not static else cost
