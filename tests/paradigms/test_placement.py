"""Where topology and features live never changes the result; what crosses is counted by its formula."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from combinations import combinations

from gnnexp.testing.exactness import assert_exact, parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, run_steps, small_config

OWNER = {"assign": "owner"}
PARTITIONED = {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"}
STATIC = "gnnexp.feature_stores.static_cache.StaticCacheOptions"
SHARDED = "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions"
CACHES = {
    "static": {"_target_": STATIC, "capacity": 0.3},
    "static_owned": {"_target_": STATIC, "capacity": 7, "policy": "frequency", "of": "owned"},
    "sharded": {"_target_": SHARDED, "capacity": 9, "policy": "id"},
    "sharded_alone": {"_target_": SHARDED, "capacity": "300B", "policy": "degree", "clique": 1},
    "everything": {"_target_": SHARDED, "capacity": 1.0},
}


def _config(model: str = "gat", **changes: Mapping[str, Any]) -> dict[str, Any]:
    return small_config(MODELS[model], **changes)


@pytest.mark.parametrize(
    ("overlap", "size", "model"),
    combinations(
        [True, False],
        [2, 3, 4],
        MODELS,
        quick=lambda overlap, size, model: (
            (overlap, size) == ((True, 3) if model != "gat" else (True, 4))
            or (overlap, size, model) == (False, 4, "gat")
        ),
    ),
)
def test_distdgl_vanilla_equals_one_worker(ranks, size, model, overlap, steps):
    steps = 20 if (size, overlap) == (4, True) else steps
    config = _config(model, sampler={"topology": "partitioned"}, paradigm=OWNER, train={"overlap": overlap})
    config["feature_store"] = PARTITIONED
    assert_exact(ranks, size, nasty_graph, config, 1e-10, num_parts=size, kind="skewed", steps=steps)


@pytest.mark.parametrize(
    ("cache", "store"),
    combinations(
        [None, *CACHES],
        ["local", "partitioned"],
        quick=lambda cache, store: store == "partitioned" or cache == "everything",
    ),
)
def test_stores_and_caches_equal_one_worker(ranks, store, cache, steps):
    config = _config("sage", paradigm=OWNER)
    if store == "partitioned":
        config["feature_store"] = PARTITIONED
    config["feature_store"] = {**config["feature_store"], "cache": CACHES.get(cache)}
    curves, _ = assert_exact(ranks, 4, nasty_graph, config, 1e-10, num_parts=4, kind="empty", steps=steps)
    loaded = sum(n for curve in curves for name, n in curve.work.items() if name.startswith("features_loaded"))
    reads = run_inputs(ranks, config, 4, steps)
    assert loaded == reads, "every row that was read came from somewhere, once"
    if cache == "everything":
        assert all(curve.work["features_loaded_host"] == 0 for curve in curves)


_read: dict[str, int] = {}  # of each run


def run_inputs(ranks: Any, config: dict[str, Any], size: int, steps: int) -> int:
    """Rows that the same batches read from a local store without a cache."""
    plain = {**config, "feature_store": small_config(MODELS["sage"])["feature_store"]}
    key = json.dumps([plain, size, steps], sort_keys=True)
    if key not in _read:
        curves = ranks(size).run(_run, plain, size, steps)
        _read[key] = sum(curve.work["features_loaded_host"] for curve in curves)
    return _read[key]


def _run(config: dict[str, Any], num_parts: int, steps: int):
    graph = nasty_graph()
    return run_steps(config, graph, steps, parts(graph, num_parts, "empty"), torch.arange(graph.num_nodes) % 7)


@pytest.mark.parametrize("size", [2, 4])
def test_rounds_of_partitioned_sampling(ranks, size):
    """Vanilla: 2(L - 1) sampling rounds and 2 feature rounds per batch, sizes apart (FastSample, section 3.3)."""
    config = _config("sage", sampler={"topology": "partitioned"}, paradigm=OWNER)
    config["feature_store"] = PARTITIONED
    curves, _ = assert_exact(ranks, size, nasty_graph, config, 1e-10, steps=4, num_parts=size)
    assert all(curve.rounds["frontier"] == 4 * 2 * (2 - 1) for curve in curves)
    assert all(curve.rounds["features"] == 4 * 2 for curve in curves)


@pytest.mark.parametrize("size", [2, 3])
def test_bytes_of_the_hybrid(ranks, size):
    """Hybrid: no sampling rounds; an id and a row for every foreign row."""
    config = _config("sage", paradigm=OWNER, train={"dtype": "float32"})
    config["feature_store"] = PARTITIONED
    curves, _ = assert_exact(ranks, size, nasty_graph, config, 1e-5, steps=4, num_parts=size)
    assert all("frontier" not in curve.rounds and curve.rounds["features"] == 4 * 2 for curve in curves)
    foreign = sum(curve.work["features_loaded_remote"] for curve in curves)
    assert foreign > 0
    assert sum(curve.sent_bytes["features"] for curve in curves) == foreign * (4 + 13 * 4)


@pytest.mark.parametrize("size", [2, 3])
def test_stratified_batches_take_a_share_of_every_part(ranks, size):
    """The labelled option: as many steps, every target once per epoch, another loss curve than uniform batches."""
    config = _config("sage", paradigm={"assign": "stratified"})
    curves = ranks(size).run(_stratified, config, size)
    assert sum(count for curve in curves for _, count in curve.losses[:4]) == 30
    uniform = run_steps(_config("sage"), nasty_graph(), 4)
    total = [sum(curve.losses[step][0] for curve in curves) for step in range(4)]
    assert max(abs(a - b[0]) for a, b in zip(total, uniform.losses, strict=True)) > 1e-3


def _stratified(config: dict[str, Any], num_parts: int):
    graph = nasty_graph()
    return run_steps(config, graph, 4, parts(graph, num_parts))
