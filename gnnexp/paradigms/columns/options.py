"""Options of tensor parallelism, and what they ask of model and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from gnnexp.errors import Problem
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows
from gnnexp.models.layer import Layer
from gnnexp.models.model import Model
from gnnexp.paradigms.checks import attends, block_layers, num_ranks, projects_edges
from gnnexp.paradigms.chunks.chunking import Chunking, itemsize
from gnnexp.paradigms.chunks.local_chunks import layers_of
from gnnexp.paradigms.columns.coupled_layer import projects_first, shared_columns
from gnnexp.paradigms.columns.edge_attention import Work
from gnnexp.placement.chunks import ChunkCost

Mode = Literal["coupled", "decoupled"]
Attention = Literal["trained", "frozen"]
NNDevice = Literal["device", "host"]
_ALLOWED = {
    "mode": ("coupled", "decoupled"), "attention": ("trained", "frozen"), "attention_work": ("shared", "replicated"),
    "nn_device": ("device", "host"),
}


@dataclass(frozen=True)
class TensorOptions:
    """What `TensorParallel` takes, under the same names; `chunking` is `chunks` and `device_memory`."""

    mode: Mode
    chunking: Chunking
    pipeline: bool
    attention: Attention
    attention_work: Work
    nn_device: NNDevice

    @property
    def decoupled(self) -> bool:
        """Whether another model is trained."""
        return self.mode == "decoupled"

    @property
    def approximates(self) -> str:
        """What is not the model's own, empty for coupled layers."""
        parts = ["the model is decoupled (exact with respect to its serial twin)"] * self.decoupled
        return "; ".join([*parts, *["attention is not trained"] * (self.attention == "frozen")])

    def problems(self) -> list[Problem]:
        """What is wrong with them, alone and together."""
        problems = self.chunking.problems()
        for name, allowed in _ALLOWED.items():
            if getattr(self, name) not in allowed:
                problems.append(Problem(name, getattr(self, name), f"must be {' or '.join(allowed)}",
                                        f"set paradigm.{name}={allowed[0]}"))
        if self.mode != "coupled":
            return problems
        if self.pipeline:
            problems.append(Problem("pipeline", self.pipeline, "coupled layers have nothing to overlap with: each "
                                    "gather is followed by dense updates that need all of it",
                                    "set paradigm.mode=decoupled"))
        if self.nn_device == "host":
            problems.append(Problem("nn_device", self.nn_device, "coupled layers alternate dense updates and "
                                    "aggregations: every layer would cross to the host and back",
                                    "set paradigm.mode=decoupled"))
        if self.attention == "frozen":
            problems.append(Problem("attention", self.attention, "only the decoupled artifact's is frozen",
                                    "set paradigm.attention=trained"))
        return problems

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Layers on the contract only, and a column for every rank."""
        problems = []
        if block_layers(config):
            problems.append(Problem("model", config["model"]["_target_"], "its layers need whole rows of all "
                                    "neighbours in one place",
                                    "choose model=gcn, sage, gin or gat, or paradigm=vertex_parallel"))
        if self.decoupled and projects_edges(config):
            problems.append(Problem("model", config["model"]["_target_"], "decoupled layers project rows, then weigh "
                                    "edges, and its edges are projected each in their own way",
                                    "set model.decomposition=basis, or paradigm.mode=coupled"))
        hidden, ranks = config["model"].get("hidden"), num_ranks(config)
        hides = self.mode == "coupled" and config["model"].get("layers", 1) > 1 and isinstance(hidden, int)
        if hides and hidden < ranks:
            problems.append(_too_few("model.hidden", hidden, config))
        if self.attention == "frozen" and not attends(config):
            problems.append(Problem("paradigm.attention", "frozen", f"{config['model']['_target_']} has no attention",
                                    "choose model=gat, or set paradigm.attention=trained"))
        return problems

    def check_data(self, config: Mapping[str, Any], graph: Graph) -> list[Problem]:
        """A column for every rank, also of features and classes; a budget for the largest vertex."""
        ranks, model = num_ranks(config), build(config["model"], Model)
        layers = [layer for layer in layers_of(model, graph) if isinstance(layer, Layer)]
        if len(layers) < model.num_layers:
            return []  # refused by `check`
        problems = [_too_few(what, width, config) for what, width in self._split_widths(layers, graph).items()
                    if 0 < width < ranks]
        cost = self.cost(layers, ranks, getattr(torch, config["train"]["dtype"]))
        return [*problems, *self.chunking.check_data(graph, [cost], model.needs.self_loops)]

    def _split_widths(self, layers: Sequence[Layer], graph: Graph) -> dict[str, int]:
        """What is split, and how many columns it has."""
        if self.mode == "decoupled":
            return {"dataset classes": graph.num_classes}
        sparse = isinstance(graph.features, SparseRows)
        found = {}
        for index, layer in enumerate(layers):
            columns = len(shared_columns(layer, index, sparse).rows) - 1
            if layer.projects_edges:
                found[f"layer {index + 1}, in blocks,"] = columns
            elif projects_first(layer, index, sparse):
                found[f"layer {index + 1}, projected,"] = columns
            else:
                found[f"layer {index + 1}'s input" if index else "dataset features"] = columns
        return found

    def cost(self, layers: Sequence[Any], ranks: int, dtype: torch.dtype) -> ChunkCost:
        """What a chunk takes, by the widest columns that a rank has of any layer."""
        widths = [layers[-1].out_dim] if self.mode == "decoupled" else [
            max(layer.in_dim, layer.width) for layer in layers
        ]
        width = -(-max(widths) // ranks)
        edge_columns = -(-max(layer.edge_columns for layer in layers) // ranks)
        return ChunkCost.of(width, width, max(layer.num_weights for layer in layers), itemsize(dtype), edge_columns)


def _too_few(what: str, width: int, config: Mapping[str, Any]) -> Problem:
    fitting = max(1, width // config["hardware"]["nodes"])
    return Problem("hardware.workers", config["hardware"]["workers"], f"more ranks ({num_ranks(config)}) than columns "
                   f"to share out: {what} has {width}",
                   f"set hardware.workers={fitting} or fewer, or choose paradigm=vertex_parallel")
