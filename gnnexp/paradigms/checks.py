"""Combinations that make no sense, in words that several paradigms share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import build, locate
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.models.model import Model
from gnnexp.samplers.layerwise import LayerSampler
from gnnexp.tasks.base import Task


def num_ranks(config: Mapping[str, Any]) -> int:
    """Ranks of a configuration."""
    return int(config["hardware"]["nodes"] * config["hardware"]["workers"])


def one_part_per_rank(config: Mapping[str, Any], wanted: int | None = None) -> list[Problem]:
    """A part must have exactly one rank (of a group)."""
    wanted = num_ranks(config) if wanted is None else wanted
    asked = config["partitioner"].get("num_parts", "auto")
    if asked in ("auto", wanted):
        return []
    return [Problem("partitioner.num_parts", asked, f"must be {wanted}: one part per rank",
                    f"set partitioner.num_parts=auto, or hardware.workers={asked}")]


def one_thread_where_batches_communicate(config: Mapping[str, Any], always: bool = False) -> list[Problem]:
    """Collectives of batch preparation need one order on all ranks."""
    threads = config["sampler"].get("threads", 1)
    store = store_of(config)
    collective = store is not None and store.collective
    communicates = always or collective or config["sampler"].get("topology") == "partitioned"
    if threads <= 1 or not communicates or num_ranks(config) == 1:
        return []
    return [Problem("sampler.threads", threads, "at most 1: batches are prepared by exchanges between ranks, which "
                    "need one order", "set sampler.threads=1")]


def hop_by_hop(config: Mapping[str, Any], why: str) -> list[Problem]:
    """The sampler must offer `sample_layer`."""
    target = config["sampler"]["_target_"]
    found = locate(target)
    if isinstance(found, type) and issubclass(found, LayerSampler):
        return []
    return [Problem("sampler", target, f"{why} samples hop by hop", "choose sampler=fused, full or dgl")]


def store_of(config: Mapping[str, Any]) -> FeatureStore | None:
    """The feature store of a configuration, None if its constructor refuses it (which is reported as such)."""
    try:
        return build(config["feature_store"], FeatureStore)
    except ConfigError:
        return None


def plain_features(config: Mapping[str, Any], paradigm: str) -> list[Problem]:
    """DGL's scripts read one feature matrix."""
    target, cache = config["feature_store"]["_target_"], config["feature_store"].get("cache")
    if target == "gnnexp.feature_stores.local.LocalStore" and cache is None:
        return []
    return [Problem("feature_store", target, f"{paradigm} reads one feature matrix on every rank",
                    "choose feature_store=local")]


def cpu_only(config: Mapping[str, Any], paradigm: str) -> list[Problem]:
    """DGL's graph stays on the host: PyPI's DGL has no CUDA."""
    device = config["hardware"].get("device", "auto")
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return []
    return [Problem("hardware.device", device, f"{paradigm} trains on the CPU, as PyPI's DGL does",
                    "set hardware.device=cpu")]


def whole_topology(config: Mapping[str, Any], paradigm: str) -> list[Problem]:
    """DGL's scripts sample from the whole graph."""
    if config.get("sampler", {}).get("topology") != "partitioned":
        return []
    return [Problem("sampler.topology", "partitioned", f"{paradigm} samples from the whole graph on every rank",
                    "set sampler.topology=replicated")]


def pairs(config: Mapping[str, Any]) -> bool:
    """Whether training examples are links."""
    found = locate(config["task"]["_target_"])
    return isinstance(found, type) and issubclass(found, Task) and found.pairs


def hidden_links(config: Mapping[str, Any]) -> list[Problem]:
    """Where a batch's own links pass no messages, others must be left that do."""
    if not config["task"].get("exclude_targets") or config["train"].get("batch_size") is not None:
        return []
    return [Problem("task.exclude_targets", True, "with train.batch_size=null every training link is in the batch: no "
                    "message would pass", "set train.batch_size=16384, or task.exclude_targets=false")]


def vertices_only(config: Mapping[str, Any], paradigm: str, why: str) -> list[Problem]:
    """Training examples must be vertices."""
    if not pairs(config):
        return []
    return [Problem("task", config["task"]["_target_"], f"{paradigm} trains on vertices, not on links: {why}",
                    "choose task=node_classification, or another system")]


def no_decoder(config: Mapping[str, Any], paradigm: str, why: str) -> list[Problem]:
    """The model's outputs must be the scores: nothing of the task is between them and the loss."""
    target = config["task"]["_target_"]
    found = locate(target)
    if not isinstance(found, type) or not issubclass(found, Task) or found.pairs:  # links are `vertices_only`'s
        return []
    if found.decoder is Task.decoder and found.decode is Task.decode:
        return []
    return [Problem("task", target, f"{paradigm} takes the model's outputs as scores, and this task decodes them: "
                    f"{why}", "choose task=node_classification, or another system")]


def whole_rows(config: Mapping[str, Any], paradigm: str) -> list[Problem]:
    """Only push-pull reads slices of rows."""
    target = config["feature_store"]["_target_"]
    if not getattr(locate(target), "slices", False):
        return []
    return [Problem("feature_store", target, f"{paradigm} reads whole rows",
                    "choose feature_store=local, or paradigm=push_pull")]


def block_layers(config: Mapping[str, Any]) -> bool:
    """Whether the model has ordinary layers, which need all of a destination's edges and source rows in one place."""
    return isinstance(_first_layer(config), BlockLayer)


def attends(config: Mapping[str, Any]) -> bool:
    """Whether the model's edge weights come from scores (attention)."""
    layer = _first_layer(config)
    return layer is None or (isinstance(layer, Layer) and layer.kind == "projected")


def learns_weights(config: Mapping[str, Any]) -> bool:
    """Whether the model's edge weights take a gradient, from scores or from parameters of their own."""
    layer = _first_layer(config)
    return layer is None or (isinstance(layer, Layer) and layer.kind != "static")


def projects_edges(config: Mapping[str, Any]) -> bool:
    """Whether the model projects each edge in its own way."""
    layer = _first_layer(config)
    return isinstance(layer, Layer) and layer.projects_edges


def _first_layer(config: Mapping[str, Any]) -> Layer | BlockLayer | None:
    """A layer as the model's first, of any size; None where the model's own problems are reported as such."""
    try:
        return build(config["model"], Model).make_layer(0, 8, 8)
    except ConfigError:
        return None


def block_degrees(config: Mapping[str, Any], paradigm: str) -> list[Problem]:
    """Degrees inside a block differ from rank to rank where its edges are split."""
    if config["model"].get("degrees") != "block":
        return []
    return [Problem("model.degrees", "block", f"{paradigm} splits blocks over ranks, where a source's degree in the "
                    "block is not known", "set model.degrees=graph")]
