"""Every exact way of training, by name: the paradigm, how it places the graph, and what it takes beside that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.testing.exactness import assert_exact, cut_parts, parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.ranks import RankPools
from gnnexp.testing.steps import small_config

VERTEX = "gnnexp.paradigms.vertex_parallel.VertexParallel"
TENSOR = "gnnexp.paradigms.tensor_parallel.TensorParallel"
OFFLOAD = "gnnexp.paradigms.offload.Offload"
FULL = {"_target_": "gnnexp.samplers.full.FullSampler", "key": "global"}
SLICED_STORE = {"_target_": "gnnexp.feature_stores.sliced.SlicedStore"}
PROFILE = {"links": {"network": 1e9}, "flops": 1e11, "gather": 1e10}
_NO_DEDUP = {"inter": False, "intra": False}
# How it places: no parts, vertices in parts, edges in parts.
WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "data": ({"_target_": "gnnexp.paradigms.data_parallel.DataParallel"}, ""),
    "split": ({"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}, "vertices"),
    "projections": ({"_target_": "gnnexp.paradigms.push_pull.PushPull", "pull": "projections"}, ""),
    "aggregates": ({"_target_": "gnnexp.paradigms.push_pull.PushPull", "pull": "aggregates"}, ""),
    "communicate": ({"_target_": VERTEX, "dependency": "communicate"}, "vertices"),
    "cache": ({"_target_": VERTEX, "dependency": "cache"}, "vertices"),
    "hybrid": ({"_target_": VERTEX, "dependency": "hybrid"}, "vertices"),
    "chunks": ({"_target_": VERTEX, "dependency": "communicate", "chunks": 4}, "vertices"),
    "vertex_cut": ({"_target_": VERTEX}, "edges"),
    "coupled": ({"_target_": TENSOR, "mode": "coupled"}, ""),
    "coupled_in_chunks": ({"_target_": TENSOR, "mode": "coupled", "chunks": 5}, ""),
    "offload_raw": ({"_target_": OFFLOAD, "chunks": 5, "rows": "raw"}, "vertices"),
    "offload_projected": ({"_target_": OFFLOAD, "chunks": 5, "rows": "projected", "dedup": _NO_DEDUP,
                           "reorganise": False}, "vertices"),
    "offload": ({"_target_": OFFLOAD, "chunks": 16, "host": "file"}, "vertices"),
}
MINI_BATCH = ("data", "split", "projections", "aggregates")
SLICED = ("projections", "aggregates")


def placed(way: str, graph: Graph, size: int, kind: str = "random") -> Partition | None:
    """The partition that a way needs, if any; `kind` as in `parts`."""
    return {"": None, "vertices": parts(graph, size, kind), "edges": cut_parts(graph, size, kind)}[WAYS[way][1]]


def config_in(way: str, model: Mapping[str, Any], **changes: Mapping[str, Any]) -> dict[str, Any]:
    """`small_config` of a model that is trained in one of the `WAYS`."""
    config = small_config(model, **{**changes, "hardware": {**PROFILE, **changes.get("hardware", {})}})
    config["paradigm"], place = WAYS[way]
    if place == "edges":  # asked by checks alone: tests give partitions
        config["partitioner"] = {"_target_": "gnnexp.partitioners.streams.dbh.DbhPartitioner"}
    if way in SLICED:
        config["feature_store"] = SLICED_STORE
    if way not in MINI_BATCH:
        config["sampler"], config["train"]["batch_size"] = FULL, None
    return config


def problems_of(config: Mapping[str, Any]) -> list[Problem]:
    """Why the model of `config_in` cannot be trained so; none if it can."""
    experiment = experiment_of(config)
    return experiment.paradigm.check(experiment)


def assert_exact_in(
    ranks: RankPools, way: str, model: Mapping[str, Any], size: int = 3, *, steps: int = 20, kind: str = "random",
    partition: Partition | None = None,
) -> None:
    """A model trained in one of the `WAYS` on `nasty_graph` agrees with one worker, in float64.

    Args:
        ranks: the fixture.
        way: one of `WAYS`.
        model: `_target_` and arguments; hidden size, number of layers and dropout have defaults (`small_config`).
        size: number of ranks.
        steps: that are compared.
        kind: of parts, for ways that need some: `random`, `skewed`, `empty`.
        partition: instead of these.

    Raises:
        ConfigError: such layers cannot be trained so.
        AssertionError: a loss or a gradient differs by more than 1e-10, relative.
        RankError: a rank failed.
    """
    config = config_in(way, model, hardware={"workers": size})
    ConfigError.raise_all(problems_of(config))
    if partition is None:
        partition = placed(way, nasty_graph(), size, kind)
    assert_exact(ranks, size, nasty_graph, config, 1e-10, partition=partition, steps=steps)
