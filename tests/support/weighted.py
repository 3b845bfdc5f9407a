"""Weighted graphs in tests: a sampler that rescales, and models with the mistakes that tests of exactness must find."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.models.layer import Layer
from gnnexp.models.model import Model
from gnnexp.models.sage import SAGELayer, SAGEOptions
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.trainer import Trainer
from gnnexp.paradigms.vertex_parallel import VertexParallel
from gnnexp.paradigms.vertices.vertex_cut import VertexCutTrainer
from gnnexp.samplers.fused import FusedOptions, FusedSampler
from gnnexp.samplers.layerwise import LayerSampler, Neighbours
from gnnexp.testing.graphs import typed_graph, weighted_graph
from gnnexp.testing.steps import run_steps

SCALING = {"_target_": "weighted.ScalingOptions", "fanouts": [4, 3]}


def signed_graph() -> Graph:
    """`weighted_graph` whose weights are from -1 to 1."""
    graph = weighted_graph()
    assert graph.edge_weights is not None
    return replace(graph, edge_weights=graph.edge_weights - 1)


def typed_signed_graph() -> Graph:
    """`typed_graph` with weights from -1 to 1; a tenth of them, and those into vertex 5, are 0."""
    graph = typed_graph()
    weights = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(8)) * 2 - 1
    weights[::10] = 0
    return replace(graph, edge_weights=weights.masked_fill(graph.destinations() == 5, 0))


class ScalingSampler(FusedSampler):
    """Multiplies messages with something of their source: what a sampler knows of an edge."""

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        return LayerSampler.sample(self, seeds, key, global_count)

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        found = super().sample_layer(frontier, hop, key)
        return found._replace(scale=0.5 + (found.ids % 7).float())


@dataclass(frozen=True)
class ScalingOptions(FusedOptions):
    """Its options."""

    scales = True

    def make(self) -> ScalingSampler:
        return ScalingSampler(self)


def _rank() -> int:
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


class ForgetfulLayer(SAGELayer):
    """Rank 1 takes all weights for 1."""

    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None) -> Tensor:
        return super().aggregate(block, x, None if _rank() == 1 else weight)


class Forgetful(SAGEOptions):
    """A stack of them."""

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        made = super().make_layer(index, in_dim, out_dim, num_relations)
        made.__class__ = ForgetfulLayer
        return made


class OwnDegrees(VertexParallel):
    """A vertex-cut that divides by the weights of a rank's own edges."""

    def trainer(self, job: Job) -> Trainer[Any]:
        trainer = super().trainer(job)
        assert isinstance(trainer, VertexCutTrainer)
        own = replace(trainer._block, in_weight=None).total_weight
        assert own is not None
        trainer._dst = replace(trainer._dst, weight=own[: trainer.own.numel()])
        return trainer


class Remembering(SAGEOptions):
    """Options of `RememberingModel`."""

    def make(self) -> Model:
        return RememberingModel(self)


class RememberingModel(Model):
    """Historical embeddings: keeps the last rows of every vertex, by layer; `SEEN` is of this process."""

    def after_layer(self, index: int, ids: Tensor, rows: Tensor) -> Tensor:
        for vertex, row in zip(ids.tolist(), rows.detach().clone().cpu(), strict=True):
            SEEN.setdefault((index, vertex), []).append(row)
        return rows


SEEN: dict[tuple[int, int], list[Tensor]] = {}


def remembered(config: dict[str, Any], steps: int, partition: Any = None) -> dict[tuple[int, int], list[Tensor]]:
    """What a rank's `Remembering` saw in some steps."""
    seen: dict[tuple[int, int], list[Tensor]] = import_module("weighted").SEEN  # this function came with a copy
    seen.clear()
    run_steps(config, weighted_graph(), steps, partition)
    return dict(seen)
