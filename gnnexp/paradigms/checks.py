"""Combinations that make no sense, in words that several paradigms share."""

from __future__ import annotations

import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.samplers.layerwise import LayerSampler
from gnnexp.tasks.base import Task


def one_part_per_rank(experiment: Experiment, wanted: int | None = None) -> list[Problem]:
    """A part must have exactly one rank (of a group)."""
    wanted = experiment.num_ranks if wanted is None else wanted
    asked = experiment.partitioner.num_parts
    if asked in ("auto", wanted):
        return []
    return [Problem("partitioner.num_parts", asked, f"must be {wanted}: one part per rank",
                    f"set partitioner.num_parts=auto, or hardware.workers={asked}")]


def one_thread_where_batches_communicate(experiment: Experiment, always: bool = False) -> list[Problem]:
    """Collectives of batch preparation need one order on all ranks."""
    sampler = experiment.sampler.options
    threads = sampler.threads
    communicates = always or experiment.feature_store.options.collective or sampler.topology == "partitioned"
    if threads <= 1 or not communicates or experiment.num_ranks == 1:
        return []
    return [Problem("sampler.threads", threads, "at most 1: batches are prepared by exchanges between ranks, which "
                    "need one order", "set sampler.threads=1")]


def hop_by_hop(experiment: Experiment, why: str) -> list[Problem]:
    """The sampler must offer `sample_layer`."""
    if isinstance(experiment.sampler.options, LayerSampler):
        return []
    return [Problem("sampler", experiment.sampler.target, f"{why} samples hop by hop",
                    "choose sampler=fused, full or dgl")]


def plain_features(experiment: Experiment, paradigm: str) -> list[Problem]:
    """DGL's scripts read one feature matrix."""
    target, cache = experiment.feature_store.target, experiment.feature_store.options.cache
    if target == "gnnexp.feature_stores.local.LocalStore" and cache is None:
        return []
    return [Problem("feature_store", target, f"{paradigm} reads one feature matrix on every rank",
                    "choose feature_store=local")]


def cpu_only(experiment: Experiment, paradigm: str) -> list[Problem]:
    """DGL's graph stays on the host: PyPI's DGL has no CUDA."""
    device = experiment.hardware.device
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return []
    return [Problem("hardware.device", device, f"{paradigm} trains on the CPU, as PyPI's DGL does",
                    "set hardware.device=cpu")]


def whole_topology(experiment: Experiment, paradigm: str) -> list[Problem]:
    """DGL's scripts sample from the whole graph."""
    if experiment.sampler.options.topology != "partitioned":
        return []
    return [Problem("sampler.topology", "partitioned", f"{paradigm} samples from the whole graph on every rank",
                    "set sampler.topology=replicated")]


def pairs(experiment: Experiment) -> bool:
    """Whether training examples are links."""
    return experiment.task.options.pairs


def hidden_links(experiment: Experiment) -> list[Problem]:
    """Where a batch's own links pass no messages, others must be left that do."""
    if not experiment.task.options.exclude_targets or experiment.train.batch_size is not None:
        return []
    return [Problem("task.exclude_targets", True, "with train.batch_size=null every training link is in the batch: no "
                    "message would pass", "set train.batch_size=16384, or task.exclude_targets=false")]


def vertices_only(experiment: Experiment, paradigm: str, why: str) -> list[Problem]:
    """Training examples must be vertices."""
    if not pairs(experiment):
        return []
    return [Problem("task", experiment.task.target, f"{paradigm} trains on vertices, not on links: {why}",
                    "choose task=node_classification, or another system")]


def no_decoder(experiment: Experiment, paradigm: str, why: str) -> list[Problem]:
    """The model's outputs must be the scores: nothing of the task is between them and the loss."""
    task = type(experiment.task.options)
    if task.pairs or (task.decoder is Task.decoder and task.decode is Task.decode):  # links are `vertices_only`'s
        return []
    return [Problem("task", experiment.task.target, f"{paradigm} takes the model's outputs as scores, and this "
                    f"task decodes them: {why}", "choose task=node_classification, or another system")]


def whole_rows(experiment: Experiment, paradigm: str) -> list[Problem]:
    """Only push-pull reads slices of rows."""
    if not experiment.feature_store.options.slices:
        return []
    return [Problem("feature_store", experiment.feature_store.target, f"{paradigm} reads whole rows",
                    "choose feature_store=local, or paradigm=push_pull")]


def block_layers(experiment: Experiment) -> bool:
    """Whether the model has ordinary layers, which need all of a destination's edges and source rows in one place."""
    return isinstance(_first_layer(experiment), BlockLayer)


def attends(experiment: Experiment) -> bool:
    """Whether the model's edge weights come from scores (attention)."""
    layer = _first_layer(experiment)
    return layer is None or (isinstance(layer, Layer) and layer.kind == "projected")


def learns_weights(experiment: Experiment) -> bool:
    """Whether the model's edge weights take a gradient, from scores or from parameters of their own."""
    layer = _first_layer(experiment)
    return layer is None or (isinstance(layer, Layer) and layer.kind != "static")


def projects_edges(experiment: Experiment) -> bool:
    """Whether the model projects each edge in its own way."""
    layer = _first_layer(experiment)
    return isinstance(layer, Layer) and layer.projects_edges


def _first_layer(experiment: Experiment) -> Layer | BlockLayer | None:
    """A layer as the model's first, of any size; None where the model's own problems are reported as such."""
    try:
        return experiment.model.options.make_layer(0, 8, 8)
    except ConfigError:
        return None


def block_degrees(experiment: Experiment, paradigm: str) -> list[Problem]:
    """Degrees inside a block differ from rank to rank where its edges are split."""
    if experiment.model.options.degrees_of != "block":
        return []
    return [Problem("model.degrees", "block", f"{paradigm} splits blocks over ranks, where a source's degree in the "
                    "block is not known", "set model.degrees=graph")]
