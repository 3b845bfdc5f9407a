"""Checks that several paradigms share. Each returns conflicts between choices."""

from __future__ import annotations

import torch

from gnnexp.components.facts import GraphFacts
from gnnexp.components.locate import target_of
from gnnexp.errors import ConfigError, Problem, Refusal
from gnnexp.experiment.experiment import Experiment
from gnnexp.feature_stores.local import LocalOptions
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.samplers.base import threads_inside
from gnnexp.samplers.layerwise import LayerSamplerOptions
from gnnexp.tasks.base import Task


def part_per_rank_problems(experiment: Experiment, wanted: int | None = None) -> list[Problem]:
    """There must be one part for each rank (of a group)."""
    wanted = experiment.num_ranks if wanted is None else wanted
    asked = experiment.partitioner.num_parts
    if asked in ("auto", wanted):
        return []
    return [
        Problem(
            "partitioner.num_parts",
            asked,
            f"must be {wanted}: one part per rank",
            f"set partitioner.num_parts=auto, or hardware.workers={asked}",
        )
    ]


def sampling_thread_problems(experiment: Experiment, together: bool = False) -> list[Problem]:
    """Threads inside a batch are among the threads of the rank.

    Args:
        experiment: choices of all configuration groups.
        together: whether ranks exchange vertices to sample a batch, so that each rank samples one batch at a time.
    """
    sampler, of_rank = experiment.sampler, experiment.hardware.threads
    one_by_one = not experiment.train.overlap or together
    inside = threads_inside(sampler.threads, 1 if one_by_one else sampler.prefetch)
    if of_rank <= 0 or inside <= of_rank:  # below 0 is refused elsewhere
        return []
    return [
        Problem(
            "sampler.threads",
            sampler.threads,
            f"{inside} threads work inside a batch, and hardware.threads={of_rank} are all threads of a rank",
            f"set sampler.threads={of_rank}, or hardware.threads={inside}",
        )
    ]


def hop_by_hop_problems(experiment: Experiment, why: str) -> list[Problem]:
    """The sampler must sample hop by hop (`LayerSamplerOptions`)."""
    if isinstance(experiment.sampler, LayerSamplerOptions):
        return []
    return [
        Problem(
            "sampler", target_of(experiment.sampler), f"{why} samples hop by hop", "choose sampler=fused, full or dgl"
        )
    ]


def plain_feature_problems(experiment: Experiment, paradigm: str) -> list[Problem]:
    """The feature store must be one matrix on every rank."""
    store = experiment.feature_store
    if type(store) is LocalOptions and store.cache is None:
        return []
    return [
        Problem(
            "feature_store",
            target_of(store),
            f"{paradigm} reads one feature matrix on every rank",
            "choose feature_store=local",
        )
    ]


def own_crossing_problems(experiment: Experiment, paradigm: str) -> list[Problem]:
    """A throttled link to the host needs crossings that gnnexp makes."""
    throttle = experiment.hardware.throttle_h2d
    if throttle is None:
        return []
    return [
        Problem(
            "hardware.throttle_h2d",
            throttle,
            f"slows down what gnnexp copies to the device tier, and {paradigm} loads its rows itself",
            "set hardware.throttle_h2d=null",
        )
    ]


def cpu_only_problems(experiment: Experiment, paradigm: str) -> list[Problem]:
    """The device must be the CPU: PyPI's DGL has no CUDA."""
    device = experiment.hardware.device
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return []
    return [
        Problem(
            "hardware.device", device, f"{paradigm} trains on the CPU, as PyPI's DGL does", "set hardware.device=cpu"
        )
    ]


def uncountable_problems(experiment: Experiment, reason: str) -> list[Problem]:
    """Counts that depend on what is computed cannot be found without computing (`train.count_only`)."""
    if not experiment.train.count_only:
        return []
    return [Problem("train.count_only", True, reason, "set train.count_only=false")]


def whole_topology_problems(experiment: Experiment, paradigm: str) -> list[Problem]:
    """Every rank must sample from the whole graph."""
    if experiment.sampler.topology != "partitioned":
        return []
    return [
        Problem(
            "sampler.topology",
            "partitioned",
            f"{paradigm} samples from the whole graph on every rank",
            "set sampler.topology=replicated",
        )
    ]


def refuses_hidden_links(experiment: Experiment) -> Refusal | None:
    """Batches are made on the host if the edges of predicted links are removed there."""
    return Refusal("edges of predicted links are removed on the host") if experiment.task.exclude_targets else None


def has_pairs(experiment: Experiment) -> bool:
    """Whether training examples are links."""
    return experiment.task.pairs


def normalises_by_block(experiment: Experiment) -> bool:
    """Whether layers normalise by degrees of blocks, and not of the full graph."""
    layer = experiment.model.example_layer
    return isinstance(layer, Layer) and layer.traits.degrees == "block"


def hidden_link_problems(experiment: Experiment) -> list[Problem]:
    """If a batch's own links pass no messages, a batch must not contain all links."""
    if not experiment.task.exclude_targets or experiment.train.batch_size is not None:
        return []
    return [
        Problem(
            "task.exclude_targets",
            True,
            "with train.batch_size=null every training link is in the batch: no message would pass",
            "set train.batch_size=16384, or task.exclude_targets=false",
        )
    ]


def link_problems(experiment: Experiment, paradigm: str, why: str) -> list[Problem]:
    """Training examples must be vertices."""
    if not has_pairs(experiment):
        return []
    return [
        Problem(
            "task",
            target_of(experiment.task),
            f"{paradigm} trains on vertices, not on links: {why}",
            "choose task=node_classification, or another system",
        )
    ]


def decoder_problems(experiment: Experiment, paradigm: str, why: str) -> list[Problem]:
    """The model's outputs must be the scores: the task has no decoder between outputs and loss."""
    task = type(experiment.task.make())
    if experiment.task.pairs or (
        task.decoder is Task.decoder and task.decode is Task.decode
    ):  # `link_problems` refuses links
        return []
    return [
        Problem(
            "task",
            target_of(experiment.task),
            f"{paradigm} takes the model's outputs as scores, and this task decodes them: {why}",
            "choose task=node_classification, or another system",
        )
    ]


def whole_row_problems(experiment: Experiment, paradigm: str) -> list[Problem]:
    """The feature store must give whole rows. Only push-pull reads slices of rows."""
    if not experiment.feature_store.slices:
        return []
    return [
        Problem(
            "feature_store",
            target_of(experiment.feature_store),
            f"{paradigm} reads whole rows",
            "choose feature_store=local, or paradigm=push_pull",
        )
    ]


def has_block_layers(experiment: Experiment) -> bool:
    """Whether the model has block layers, which need all in-edges and source rows of a destination in one place."""
    return isinstance(_first_layer(experiment), BlockLayer)


def attends(experiment: Experiment) -> bool:
    """Whether the model's edge weights come from edge scores (attention)."""
    layer = _first_layer(experiment)
    return layer is None or (isinstance(layer, Layer) and layer.traits.kind == "projected")


def learns_weights(experiment: Experiment) -> bool:
    """Whether the model's edge weights take a gradient, from edge scores or from parameters."""
    layer = _first_layer(experiment)
    return layer is None or (isinstance(layer, Layer) and layer.traits.kind != "static")


def projects_edges(experiment: Experiment) -> bool:
    """Whether the projection differs from edge to edge."""
    layer = _first_layer(experiment)
    return isinstance(layer, Layer) and layer.traits.edge_projection is not None


def _first_layer(experiment: Experiment) -> Layer | BlockLayer | None:
    """The model's first layer, with 8 columns; None if the model itself has problems, which its own check reports."""
    try:
        return experiment.model.example_layer
    except ConfigError:
        return None


def after_layer_problems(experiment: Experiment, paradigm: str, why: str) -> list[Problem]:
    """A model with `after_layer` needs each row of a layer finished once, in one piece."""
    if not experiment.model.sees_rows:
        return []
    return [
        Problem(
            "model",
            target_of(experiment.model),
            f"its after_layer sees the rows of a layer, and {paradigm} {why}",
            "choose paradigm=data_parallel, or vertex_parallel",
        )
    ]


def rounding_problems(experiment: Experiment, paradigm: str) -> list[Problem]:
    """Dense products must be torch's own: DGL's layers do not round their factors."""
    if experiment.train.matmul == "float32":
        return []
    return [
        Problem(
            "train.matmul",
            experiment.train.matmul,
            f"{paradigm} multiplies with DGL's layers, which do not round",
            "set train.matmul=float32, or choose another paradigm",
        )
    ]


def edge_weight_problems(facts: GraphFacts, paradigm: str) -> list[Problem]:
    """The graph must have no edge weights: DGL's layers do not get them."""
    if not facts.weighted:
        return []
    return [
        Problem(
            "dataset",
            facts.name,
            f"has edge weights, which {paradigm} does not pass to DGL",
            "set dataset.weights=false (tables: dataset.weight=null), or choose another paradigm",
        )
    ]


def block_degree_problems(experiment: Experiment, paradigm: str) -> list[Problem]:
    """Degrees must be those of the graph: ranks share a block's edges, so degrees in the block are not known."""
    if not normalises_by_block(experiment):
        return []
    return [
        Problem(
            "model.degrees",
            "block",
            f"{paradigm} splits blocks over ranks, where a source's degree in the block is not known",
            "set model.degrees=graph",
        )
    ]
