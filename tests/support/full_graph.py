"""Configurations of full-graph training, and models that are written in tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnexp.components.facts import GraphFacts
from gnnexp.components.plan import Plan, Sizes
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.sparse import Rows
from gnnexp.models.decoupled import DecoupledModel
from gnnexp.models.gat import GATOptions
from gnnexp.models.layer import Destinations, Layer, Traits
from gnnexp.models.model import Model, ModelOptions
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.computed import Computed
from gnnexp.paradigms.loops.full_graph import RankGraph, Whole, WholeGraphTrainer
from gnnexp.samplers.expansion import Expansion
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.testing.ways import TENSOR

FULL_MODELS: dict[str, dict[str, Any]] = {
    **MODELS,
    "residual": {**MODELS["sage"], "residual": True, "norm": True, "layers": 3},
    "gat_residual": {**MODELS["gat"], "residual": True, "norm": True, "layers": 3},
    "written_here": {"_target_": "full_graph.Gated"},
}


class GatedLayer(Layer):
    """A layer of a user: sums of neighbours, and a learned part of the own row."""

    traits = Traits(kind="static", input_weights=("weight", "own", "residual_weight"))

    def __init__(self, in_dim: int, out_dim: int, **end: Any) -> None:
        super().__init__(in_dim, out_dim, out_dim, **end)
        self.weight, self.own = nn.Parameter(torch.empty(out_dim, in_dim)), nn.Parameter(torch.empty(out_dim, in_dim))
        self.share = nn.Parameter(torch.full((1,), 0.3))

    def reset(self, generator: torch.Generator) -> None:
        super().reset(generator)
        for weight in (self.weight, self.own):
            nn.init.xavier_uniform_(weight, generator=generator)

    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        return self.linear(h, self.weight, dims)

    def project_self(self, h: Rows, dims: slice | None = None) -> Tensor:
        return self.linear(h, self.own, dims)

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        return self.linear(aggregated, self.weight, dims)

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        assert self_ is not None
        root = dst.degree.clamp(min=1).to(aggregated.dtype).rsqrt().unsqueeze(1)
        return torch.sigmoid(self.share) * aggregated * root + self_

    def preactivation(self, mixed: Tensor) -> Tensor:
        return super().preactivation(F.softplus(mixed))


@dataclass(frozen=True)
class Gated(ModelOptions):
    """A stack of them."""

    hidden: int = 16
    layers: int = 2
    dropout: float = 0.5
    input_dropout: float = 0.0
    residual: bool = False
    norm: bool = False
    bias: bool = True
    kernel: str = "auto"

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        return GatedLayer(
            in_dim, out_dim, **self.end_of_layer(index, residual=self.residual, norm=self.norm, bias=self.bias)
        )


class Keyed(GATOptions):
    """Attention whose keys nobody can tell from projected rows."""

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        made = super().make_layer(index, in_dim, out_dim, num_relations)
        made.traits = replace(made.traits, keys_of_projected=None)
        return made


def full_config(name: str, paradigm: Mapping[str, Any], dtype: str = "float64", **changes: Any) -> dict[str, Any]:
    """A resolved configuration of full-graph training; `changes` are merged into their groups."""
    model = {**FULL_MODELS[name], **changes.pop("model", {})}
    config = small_config(model, train={"dtype": dtype, "batch_size": None}, **changes)
    config["sampler"] = {"_target_": "gnnexp.samplers.full.FullOptions", "key": "global"}
    config["paradigm"] = dict(paradigm)
    return config


@dataclass(frozen=True)
class SerialTwin(Paradigm):
    """The decoupled twin on one rank, through the model that also evaluates it."""

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        return Plan(None, drawn_from_graph(experiment, facts), approximates="the model is decoupled")

    def trainer(self, job: Job) -> SerialTwinTrainer:
        return SerialTwinTrainer(job)


class SerialTwinTrainer(WholeGraphTrainer):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        own = torch.arange(job.graph.num_nodes)
        (self._block,) = Expansion(job.graph, job.shard.needs, (-1,)).blocks(own, (0,))
        self._twin = DecoupledModel(job.model)
        self.held = RankGraph(own, (self._block,), Computed.of_whole((self._block,), own.numel()))

    def load(self) -> Rows:
        return self.job.store.read(self._block.src_ids)

    def forward(self, ready: Whole) -> Tensor:
        h: Rows = ready.features
        for index in range(self._twin.num_layers):
            h = self._twin.run_layer(index, self._block, h, ready.batch.key)
        assert isinstance(h, Tensor)
        return h

    def evaluation_model(self) -> Model:
        return self._twin


TWIN = {"_target_": "full_graph.SerialTwin"}


def tensor_config(
    name: str, mode: str, dtype: str = "float64", chunks: int = 1, pipeline: bool = False, **changes: Any
) -> dict[str, Any]:
    """A model of `FULL_MODELS`, trained by columns."""
    paradigm = {"_target_": TENSOR, "mode": mode, "chunks": chunks, "pipeline": pipeline}
    return full_config(name, paradigm, dtype, **changes)
