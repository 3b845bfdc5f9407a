"""Several threads sample, also where ranks exchange: losses, gradients, bytes, rounds and counts stay the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from combinations import combinations
from links_config import TASKS, plain_links

from gnnexp.graph.graph import Graph
from gnnexp.kernels.samplers import ordered
from gnnexp.samplers import expansion
from gnnexp.testing.exactness import assert_exact, ranks_steps
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, Curve, small_config

DATA = "gnnexp.paradigms.data_parallel.DataParallel"
SPLIT = "gnnexp.paradigms.split_parallel.SplitParallel"
STORES = "gnnexp.feature_stores"
PLACED_STORE = {"_target_": f"{STORES}.partitioned.PartitionedOptions"}
SHARDED = {"_target_": f"{STORES}.sharded_cache.ShardedCacheOptions", "capacity": 0.2}
OWNERS = {"paradigm": {"_target_": DATA, "assign": "owner"}, "sampler": {"topology": "partitioned"}}
# What differs from `small_config`; each needs one part for each rank.
SYSTEMS: dict[str, dict[str, Any]] = {
    "dgl": {},
    "fastsample": {"feature_store": PLACED_STORE},
    "quiver": {"feature_store": {"_target_": f"{STORES}.local.LocalOptions", "cache": SHARDED}},
    "p3": {
        "paradigm": {"_target_": "gnnexp.paradigms.push_pull.PushPull"},
        "feature_store": {"_target_": f"{STORES}.sliced.SlicedOptions"},
    },
    "distdgl": {**OWNERS, "feature_store": PLACED_STORE},
    "gsplit": {"paradigm": {"_target_": SPLIT}},
    "gsplit, placed": {"paradigm": {"_target_": SPLIT}, "sampler": {"topology": "partitioned"}},
}
LINKS = {"task": {"_target_": "gnnexp.tasks.link_prediction.LinkPredictionOptions", **TASKS["dot"]}}


def links_with_features() -> Graph:
    return replace(plain_links(), features=nasty_graph(typed=False).features)


def on_threads(make: Callable[[], Graph], config: dict[str, Any], steps: int, size: int, kind: str) -> Curve:
    """Runs on a rank: threads inside a batch divide even the smallest hop."""
    with (
        patch.multiple(expansion, SERIAL_ROWS=1, SERIAL_EDGES=1),
        patch.multiple(ordered, MIN_ROWS=1, MIN_EDGES=1),
    ):
        return ranks_steps(make, config, steps, size, kind)


def config_of(system: str, model: str = "sage", **sampler: Any) -> dict[str, Any]:
    changes = SYSTEMS[system]
    chosen = {**changes, "sampler": {**changes.get("sampler", {}), **sampler}}
    train = {"overlap": True, "batch_size": 8, **sampler.pop("train", {})}
    chosen["sampler"].pop("train", None)
    return small_config(MODELS[model], train=train, hardware={"threads": 3}, **chosen)


def assert_same(found: list[Curve], expected: list[Curve]) -> None:
    for several, one in zip(found, expected, strict=True):
        assert several.losses == one.losses
        assert all(several.gradients[name].equal(gradient) for name, gradient in one.gradients.items())
        assert (several.sent_bytes, several.rounds, several.work) == (one.sent_bytes, one.rounds, one.work)


@pytest.mark.parametrize(
    ("system", "size", "model", "threads", "prefetch", "kind"),
    combinations(
        SYSTEMS,
        [1, 2, 3, 4],
        ["sage", "gcn", "gat"],
        [2, 3],
        [1, 2, 5],
        ["random", "skewed", "empty"],
        quick=lambda *case: (
            case
            in (
                ("fastsample", 3, "gcn", 3, 5, "empty"),
                ("quiver", 4, "sage", 3, 2, "skewed"),
                ("p3", 3, "gat", 2, 5, "random"),
                ("distdgl", 2, "gat", 2, 2, "random"),
                ("gsplit", 3, "gcn", 2, 2, "empty"),
                ("gsplit", 1, "gat", 3, 1, "random"),
                ("gsplit, placed", 4, "sage", 3, 1, "skewed"),
            )
        ),
    ),
)
def test_the_same_with_any_number_of_threads(ranks, system, size, model, threads, prefetch, kind, steps):
    one = ranks(size).run(ranks_steps, nasty_graph, config_of(system, model), steps, size, kind)
    several = config_of(system, model, threads=threads, prefetch=prefetch)
    assert_same(ranks(size).run(on_threads, nasty_graph, several, steps, size, kind), one)


@pytest.mark.parametrize("system", ["fastsample", "gsplit"])
def test_without_overlap_threads_work_inside_a_batch(ranks, system, steps):
    one = config_of(system, "gcn", train={"overlap": False})
    several = config_of(system, "gcn", train={"overlap": False}, threads=2)
    expected = ranks(2).run(ranks_steps, nasty_graph, one, steps, 2, "random")
    assert_same(ranks(2).run(on_threads, nasty_graph, several, steps, 2, "random"), expected)


@pytest.mark.parametrize(
    ("system", "threads"),
    combinations(["fastsample", "p3", "distdgl", "gsplit"], [1, 2, 3], quick=lambda system, threads: threads == 2),
)
def test_links_are_exact(ranks, system, threads, steps):
    config = {**config_of(system, threads=threads, prefetch=3), **LINKS}
    assert_exact(ranks, 3, links_with_features, config, 1e-10, num_parts=3, steps=steps)
