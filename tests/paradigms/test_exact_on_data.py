"""The same exactness on real graphs, with real partitions, and with layers and samplers that a user wrote."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import combinations
from decoded_vertices import DECODED
from torch import Tensor, nn

from gnnexp.datasets.base import ROOT_VARIABLE, Dataset
from gnnexp.datasets.generated.rmat import Rmat
from gnnexp.datasets.published.npz import GraphDataNpz
from gnnexp.datasets.published.planetoid import Planetoid
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows
from gnnexp.graph.storage.format import open_graph
from gnnexp.models.layer import Destinations, Layer, Traits
from gnnexp.models.model import ModelOptions
from gnnexp.partitioners.base import Partitioner
from gnnexp.partitioners.metis import MetisPartitioner
from gnnexp.partitioners.presampled import PresampledPartitioner
from gnnexp.partitioners.presampled_node import PresampledNodePartitioner
from gnnexp.partitioners.random import RandomPartitioner
from gnnexp.partitioners.range import RangePartitioner
from gnnexp.preparation.artifacts import prepare_graph
from gnnexp.preparation.presample import presample
from gnnexp.samplers.layerwise import LayerSampler, LayerSamplerOptions, Neighbours
from gnnexp.testing.exactness import assert_exact
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.testing.ways import WAYS, config_in, placed

SPLIT = {"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}
PUSH_PULL = {"_target_": "gnnexp.paradigms.push_pull.PushPull"}
SLICED = {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"}
PARTITIONED = {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"}
PARTITIONERS: dict[str, Callable[[], Partitioner]] = {
    "random": RandomPartitioner,
    "range": RangePartitioner,
    "metis": MetisPartitioner,
    "presampled": partial(PresampledPartitioner, epochs=2),
    "presampled_node": partial(PresampledNodePartitioner, epochs=2),
}
DATASETS: dict[str, Callable[[], Dataset]] = {
    "cora": Planetoid,
    "amazon-computers": GraphDataNpz,
    "rmat": partial(Rmat, num_nodes=3000, num_edges=20000),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def make(request, data, cache) -> Callable[[], Graph]:
    """Opens a prepared graph, in any rank."""
    if data != "rmat" and not os.environ.get(ROOT_VARIABLE):
        pytest.skip(f"{request.node.name} needs the files of {data}: set {ROOT_VARIABLE} to their root")
    return partial(open_graph, prepare_graph(DATASETS[data](), cache)[1])


def _config(model: str, **changes: dict[str, Any]) -> dict[str, Any]:
    """Cora has 140 targets: 4 batches per epoch; the others have many."""
    config = small_config({**MODELS[model], "residual": model != "gin", "norm": True}, **changes)
    config["train"]["batch_size"] = 40
    return config


def _partition(partitioner: Partitioner, graph: Graph, config: dict[str, Any], num_parts: int) -> Partition:
    epochs = partitioner.presampled_epochs
    counts = presample(experiment_of(config), graph, epochs) if epochs else None
    return partitioner.partition(graph, num_parts, "", counts)


FEW = {("cora", "sage"), ("amazon-computers", "gat"), ("amazon-computers", "gcn"), ("rmat", "gin")}
# What runs in `make test`: every data set and every partitioner once, and every model.
QUICK = {
    ("cora", "metis", "gat"),
    ("amazon-computers", "presampled", "sage"),
    ("rmat", "range", "gat"),
    ("rmat", "presampled_node", "sage"),
}


@pytest.mark.parametrize(
    ("data", "partitioner", "model"),
    combinations(DATASETS, PARTITIONERS, ["sage", "gat"], quick=lambda *case: case in QUICK),
)
def test_split_parallel(ranks, make, data, partitioner, model, steps):
    steps = 20 if (data, model) == ("rmat", "sage") else steps
    config = _config(model, paradigm=SPLIT)
    partition = _partition(PARTITIONERS[partitioner](), make(), config, 4)
    assert_exact(ranks, 4, make, config, 1e-10, partition=partition, steps=steps)


@pytest.mark.parametrize(
    ("data", "model"), combinations(DATASETS, ["gcn", "gin"], quick=lambda data, model: (data, model) in FEW)
)
def test_split_parallel_in_float32_and_groups(ranks, make, data, model, steps):
    config = _config(
        model, paradigm={**SPLIT, "group_size": 2}, train={"dtype": "float32"}, sampler={"topology": "partitioned"}
    )
    partition = _partition(MetisPartitioner(), make(), config, 2)
    assert_exact(ranks, 4, make, config, 1e-5, partition=partition, steps=steps)


@pytest.mark.parametrize(
    ("data", "model"), combinations(DATASETS, MODELS, quick=lambda data, model: (data, model) in FEW)
)
def test_push_pull(ranks, make, data, model, steps):
    config = {**_config(model, paradigm=PUSH_PULL), "feature_store": SLICED}
    assert_exact(ranks, 3, make, config, 1e-10, steps=steps)


@pytest.mark.parametrize(
    ("data", "model"), combinations(DATASETS, ["sage", "gat"], quick=lambda data, model: (data, model) in FEW)
)
def test_partitioned_topology_and_features(ranks, make, data, model, steps):
    cache = {"_target_": "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions", "capacity": 0.05}
    config = _config(model, paradigm={"assign": "owner"}, sampler={"topology": "partitioned"})
    config["feature_store"] = {**PARTITIONED, "cache": cache}
    partition = _partition(MetisPartitioner(), make(), config, 3)
    assert_exact(ranks, 3, make, config, 1e-10, partition=partition, steps=steps)


class GatedLayer(Layer):
    """What a user might write: sums of neighbours times a gate of the source, plus a part of oneself."""

    # `own` is left out of the input weights: it stays whole, which is right too.
    traits = Traits(kind="projected", input_weights=("weight", "gate", "residual_weight"))

    def __init__(self, in_dim: int, out_dim: int, **end: Any) -> None:
        super().__init__(in_dim, out_dim, out_dim, **end)
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))
        self.gate = nn.Parameter(torch.empty(1, in_dim))
        self.own = nn.Parameter(torch.empty(out_dim, in_dim))

    def reset(self, generator: torch.Generator) -> None:
        super().reset(generator)
        for weight in (self.weight, self.gate, self.own):
            nn.init.xavier_uniform_(weight, generator=generator)

    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        return self.linear(h, self.weight, dims)

    def project_self(self, h: Rows, dims: slice | None = None) -> Tensor:
        return self.linear(h, self.own, dims)

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        return self.linear(aggregated, self.weight, dims)

    def keys(self, h: Rows, dims: slice | None = None) -> tuple[Tensor, Tensor]:
        key = self.linear(h, self.gate, dims)
        return key, torch.zeros_like(key)

    def edge_score(self, block: Any, src_key: Tensor, dst_key: Tensor) -> Tensor:
        return torch.tanh(self.backend.edges.score(block, src_key, dst_key))

    def edge_weight(self, block: Any, score: Tensor | None, peak: Tensor | None) -> tuple[Tensor, None]:
        return score, None

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        return aggregated / (1 + dst.degree).to(aggregated.dtype).unsqueeze(1) + self_


@dataclass(frozen=True)
class Gated(ModelOptions):
    """A stack of them."""

    hidden: int = 16
    layers: int = 2
    dropout: float = 0.0
    input_dropout: float = 0.0
    residual: bool = True
    norm: bool = True
    kernel: str = "auto"

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> GatedLayer:
        return GatedLayer(in_dim, out_dim, **self.end_of_layer(index, residual=self.residual, norm=self.norm))


class Lowest(LayerSampler):
    """A user's sampler: the neighbours with the lowest ids, two more on every hop."""

    def setup(self, shard: Shard, num_layers: int) -> None:
        super().setup(shard, num_layers)
        self.graph = self.topology_of(shard)

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        starts, ends = self.graph.indptr[frontier.long()], self.graph.indptr[frontier.long() + 1]
        counts = torch.minimum(ends - starts, torch.tensor(2 * hop + 2))
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        within = torch.arange(int(indptr[-1])) - torch.repeat_interleave(indptr[:-1], counts)
        return Neighbours(indptr, self.graph.indices[torch.repeat_interleave(starts, counts) + within])


@dataclass(frozen=True)
class LowestOptions(LayerSamplerOptions):
    """Its options."""

    fanouts = None
    key: str = "global"
    topology: str = "replicated"

    def make(self) -> Lowest:
        return Lowest(self)


USERS_MODEL = {"_target_": f"{__name__}.Gated", "residual": True, "norm": True}
USERS_SAMPLER = {"_target_": f"{__name__}.LowestOptions", "key": "global"}


@pytest.mark.parametrize("topology", ["replicated", "partitioned"])
def test_a_users_layer_and_sampler_in_split_parallel(ranks, topology, steps):
    config = small_config(USERS_MODEL, paradigm=SPLIT)
    config["sampler"] = {**USERS_SAMPLER, "topology": topology}
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, num_parts=3, steps=steps)


def test_a_users_layer_and_sampler_over_a_partitioned_topology(ranks, steps):
    config = small_config(USERS_MODEL, paradigm={"assign": "owner"})
    config |= {"sampler": {**USERS_SAMPLER, "topology": "partitioned"}, "feature_store": PARTITIONED}
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, num_parts=3, steps=steps)


@pytest.mark.parametrize("pull", ["aggregates", "projections"])
def test_a_users_layer_in_push_pull(ranks, pull, steps):
    """It has no `keys_of_projected`, so that keys must be computed from whole rows or be summed on their own."""
    config = small_config(USERS_MODEL, paradigm={**PUSH_PULL, "pull": pull})
    config |= {"sampler": USERS_SAMPLER, "feature_store": SLICED}
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, steps=steps)


@pytest.mark.parametrize("way", combinations(WAYS, quick=lambda way: way in ("data", "communicate", "offload_raw")))
def test_a_users_task_with_a_decoder_of_vertices(ranks, way, steps):
    """Parameters outside the model get the same gradients, however the outputs are divided."""
    config = config_in(way, MODELS["sage"], task=DECODED)
    curves, reference = assert_exact(
        ranks, 3, nasty_graph, config, 1e-10, steps=steps, partition=placed(way, nasty_graph(), 3)
    )
    learned = [name for name in reference.gradients if name.startswith("decoder.")]
    assert len(learned) == 4
    assert all(float(curve.gradients[name].abs().max()) > 0 for curve in curves for name in learned)
