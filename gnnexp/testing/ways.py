"""All exact ways of training by name: the paradigm, how it places the graph, and the other choices that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
FULL = {"_target_": "gnnexp.samplers.full.FullOptions", "key": "global"}
SLICED_STORE = {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"}
PROFILE = {"links": {"network": 1e9}, "flops": 1e11, "gather": 1e10}
_NO_DEDUP = {"inter": False, "intra": False}
# Each way: its paradigm, and the placement of the graph: no parts (""), owners of vertices, or owners of edges.
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
    "offload_projected": (
        {"_target_": OFFLOAD, "chunks": 5, "rows": "projected", "dedup": _NO_DEDUP, "reorganise": False},
        "vertices",
    ),
    "offload": ({"_target_": OFFLOAD, "chunks": 16, "host": "file"}, "vertices"),
}
MINI_BATCH = ("data", "split", "projections", "aggregates")
SLICED = ("projections", "aggregates")


def placed(way: str, graph: Graph, size: int, kind: str = "random") -> Partition | None:
    """The partition that a way needs, or None; `kind` as in `parts`."""
    return {"": None, "vertices": parts(graph, size, kind), "edges": cut_parts(graph, size, kind)}[WAYS[way][1]]


def config_in(way: str, model: Mapping[str, Any], **changes: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration (`small_config`) of a model that is trained in one of the `WAYS`."""
    config = small_config(model, **{**changes, "hardware": {**PROFILE, **changes.get("hardware", {})}})
    config["paradigm"], place = WAYS[way]
    if place == "edges":  # only for checks: tests pass partitions
        config["partitioner"] = {"_target_": "gnnexp.partitioners.dbh.DbhPartitioner"}
    if way in SLICED:
        config["feature_store"] = SLICED_STORE
    if way not in MINI_BATCH:
        config["sampler"], config["train"]["batch_size"] = FULL, None
    return config


def way_problems(config: Mapping[str, Any]) -> list[Problem]:
    """Reasons why the model of `config_in` cannot be trained in this way; empty if it can."""
    experiment = experiment_of(config)
    return experiment.paradigm.check(experiment)


def assert_exact_in(
    ranks: RankPools,
    way: str,
    model: Mapping[str, Any],
    size: int = 3,
    *,
    steps: int = 20,
    kind: str = "random",
    partition: Partition | None = None,
    make: Callable[[], Graph] = nasty_graph,
    **changes: Mapping[str, Any],
) -> None:
    """Assert that a model trained in one of the `WAYS` on a graph agrees with one worker, in float64.

    Args:
        ranks: the fixture.
        way: name in `WAYS`.
        model: `_target_` and arguments; hidden size, number of layers and dropout have defaults (`small_config`).
        size: number of ranks.
        steps: number of steps that are compared.
        kind: kind of parts, for ways that need a partition: `random`, `skewed`, `empty`.
        partition: a partition to use instead.
        make: returns the graph, in every process.
        changes: changes of other groups (`small_config`).

    Raises:
        ConfigError: the model's layers cannot be trained in this way.
        AssertionError: a loss or a gradient has a relative error of more than 1e-10.
        RankError: a rank failed.
    """
    config = config_in(way, model, **changes, hardware={"workers": size})
    ConfigError.raise_all(way_problems(config))
    if partition is None:
        partition = placed(way, make(), size, kind)
    assert_exact(ranks, size, make, config, 1e-10, partition=partition, steps=steps)
