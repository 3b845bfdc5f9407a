"""`feature_store.dtype=bfloat16`: rows are rounded once, then held and moved with 2 bytes per value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from exchanging import CPU
from store_cases import STATIC, STORES, graph_of, reads_of, shard_of

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.experiment.build import build, experiment_of, read
from gnnexp.experiment.seen import facts_of
from gnnexp.feature_stores.base import FeatureStoreOptions
from gnnexp.feature_stores.sliced import SlicedStore
from gnnexp.graph.graph import Graph
from gnnexp.measure.phases import PhaseTimer
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, Curve, run_steps
from gnnexp.testing.ways import config_in, placed

NARROW = {"dtype": "bfloat16"}
SHARDED = "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions"
CACHES: tuple[dict[str, Any] | None, ...] = (
    None,
    {"_target_": STATIC, "capacity": 0.3},
    {"_target_": SHARDED, "capacity": 9},
)


def rounded(graph: Graph) -> Graph:
    assert isinstance(graph.features, torch.Tensor)
    return replace(graph, features=graph.features.to(torch.bfloat16).to(graph.features.dtype))


def rounded_graph() -> Graph:
    return rounded(nasty_graph())


def _reads(node: dict[str, Any], dtype: torch.dtype) -> tuple[dict[str, int], int]:
    """Compare every row on this rank with the rounded features; returns counts and sent bytes."""
    graph = graph_of()
    whole = rounded(graph).features
    assert isinstance(whole, torch.Tensor)
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    store = build(node, FeatureStoreOptions).make()
    store.setup(shard_of(graph, comm.rank, comm.size), dtype, CPU, comm)
    columns = store.dims if isinstance(store, SlicedStore) else slice(None)
    for ids in reads_of(0 if isinstance(store, SlicedStore) else comm.rank, graph.num_nodes):
        rows = store.read(ids)
        assert isinstance(rows, torch.Tensor) and rows.dtype == dtype
        assert rows.equal(whole[ids.long()][:, columns].to(dtype))
    sent = comm.ledger.take()
    comm.barrier()
    comm.release()
    return store.take_counts(), sum(one.sent_bytes for one in sent.values() if one.rounds)


@pytest.mark.parametrize("store", [*STORES, "sliced"])
def test_rows_are_the_rounded_ones_and_take_two_bytes_per_value(ranks, store) -> None:
    base = {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"} if store == "sliced" else STORES[store]
    for cache in CACHES[:1] if store == "sliced" else CACHES:
        node = base if store == "sliced" else {**base, "cache": cache}
        narrow = ranks(3).run(_reads, {**node, **NARROW}, torch.float32)
        widened = ranks(3).run(_reads, {**node, **NARROW}, torch.float64)
        for (counts, sent), (others, also_sent) in zip(narrow, widened, strict=True):
            assert counts == others and sent == also_sent, "the run's dtype changes nothing that is moved"
        rows = sum(counts[name] for counts, _ in narrow for name in counts if name.endswith(("host", "remote")))
        width = 13 / 3 if store == "sliced" else 13
        assert sum(counts["tier/h2d_bytes"] for counts, _ in narrow) == pytest.approx(rows * width * 2)


def _curve(config: dict[str, Any], make: Callable[[], Graph], way: str, size: int) -> Curve:
    graph = nasty_graph()
    return run_steps(config, make(), 3, placed(way, graph, size) or parts(graph, size), torch.arange(60) % 7)


@pytest.mark.parametrize(
    ("way", "size", "store"),
    [
        ("data", 1, {}),
        ("data", 2, {**STORES["partitioned"], "cache": CACHES[1]}),
        ("split", 2, {"cache": CACHES[2]}),
        ("communicate", 2, {}),
        ("vertex_cut", 2, {}),
        ("projections", 2, {}),
        ("aggregates", 3, {}),
    ],
)
def test_training_is_that_on_rounded_features(ranks, way, size, store) -> None:
    config = config_in(way, MODELS["sage"], hardware={"workers": size}, train={"eval_every": None})
    wide, narrow = (
        {**config, "feature_store": {**config["feature_store"], **store, "dtype": dtype}}
        for dtype in (None, "bfloat16")
    )
    curves = [
        ranks(size).run(_curve, one, make, way, size)
        for one, make in ((narrow, nasty_graph), (wide, rounded_graph), (wide, nasty_graph))
    ]
    for one, other, unlike in zip(*curves, strict=True):
        assert one.losses == other.losses != unlike.losses  # bit by bit: the rows are the same
        assert all(gradient.equal(other.gradients[name]) for name, gradient in one.gradients.items())
        assert one.rounds == other.rounds
        rows = sum(one.work.get(f"features_loaded_{origin}", 0) for origin in ("host", "remote"))
        if way in ("data", "split", "communicate"):
            width = nasty_graph().num_features
            assert other.work["tier/h2d_bytes"] - one.work["tier/h2d_bytes"] == rows * width * (8 - 2)


@pytest.mark.parametrize("way", ["coupled", "offload"])
def test_paradigms_that_read_features_elsewhere_refuse(way: str) -> None:
    config = config_in(way, MODELS["sage"], feature_store=NARROW, train={"eval_every": None})
    (problem,) = (one for one in read(config).problems if one.key == "feature_store.dtype")
    assert "feature_store.dtype=null" in str(problem)


def test_sparse_features_and_unknown_types_are_refused() -> None:
    experiment = experiment_of(config_in("data", MODELS["sage"], feature_store=NARROW))
    facts = facts_of(experiment, graph_of(sparse=True))
    assert [one.key for one in experiment.feature_store.check_data(experiment.setting, facts)] == [
        "feature_store.dtype"
    ]
    (problem,) = read(
        config_in("data", MODELS["sage"], feature_store={"dtype": "float16"}, train={"eval_every": None})
    ).problems
    assert problem.key == "feature_store.dtype"
