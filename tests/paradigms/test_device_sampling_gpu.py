"""Batches that are made on a GPU train exactly as batches of the host, and only targets and keys cross."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from links_config import config_of, plain_links
from weighted import typed_signed_graph

from gnnexp.experiment.build import experiment_of
from gnnexp.graph.partition import Partition
from gnnexp.ops.backends import has_triton
from gnnexp.testing.exactness import parts, ranks_steps
from gnnexp.testing.graphs import nasty_graph, typed_graph, weighted_graph
from gnnexp.testing.steps import MODELS, Curve, run_steps
from gnnexp.testing.ways import config_in

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]
GRAPHS = {
    "nasty": nasty_graph,
    "typed": typed_graph,
    "weighted": weighted_graph,
    "typed_weighted": typed_signed_graph,
}
KEYS = 2  # hops


def _curve(config: dict[str, Any], graph: str, steps: int) -> Curve:
    return run_steps(config, GRAPHS[graph](), steps)


needs_triton = pytest.mark.skipif(not has_triton(), reason="needs Triton")


def _config(way: str, model: dict[str, Any], size: int, device: str, **sampler: object) -> dict[str, Any]:
    return config_in(way, model, sampler={"device": device, **sampler}, hardware={"workers": size, "device": "cuda"})


@pytest.mark.parametrize(
    ("way", "model", "size", "graph", "sampler"),
    [
        ("data", "gat", 1, "nasty", {}),
        ("data", "sage", 2, "weighted", {"fanouts": [-1, 3], "key": "micro"}),
        ("data", "rgcn", 1, "typed", {"fanouts": [100, 2]}),
        ("data", "rgcn", 2, "typed_weighted", {}),
        ("aggregates", "gat", 2, "weighted", {}),
        ("projections", "gat", 2, "nasty", {}),
        ("aggregates", "gcn", 2, "weighted", {"fanouts": [3, -1]}),
    ],
)
def test_losses_and_gradients_are_those_of_batches_from_the_host(ranks, steps, way, model, size, graph, sampler):
    options = {**MODELS, "rgcn": {"_target_": "gnnexp.models.rgcn.RGCNOptions"}}[model]
    there, here = (
        ranks(size).run(_curve, _config(way, options, size, device, **sampler), graph, steps)
        for device in ("cuda", "cpu")
    )
    for curve, other in zip(there, here, strict=True):
        assert curve.losses == other.losses  # bit by bit: the blocks are the same
        assert all(gradient.equal(other.gradients[name]) for name, gradient in curve.gradients.items())
        assert (curve.rounds, curve.sent_bytes) == (other.rounds, other.sent_bytes)
        assert curve.work.pop("tier/h2d_bytes") < other.work.pop("tier/h2d_bytes")
        assert curve.work == other.work


def test_auto_makes_batches_on_the_gpu_and_counts_the_bytes_that_cross(ranks, steps):
    auto, there = (
        ranks(1).run(_curve, _config("data", MODELS["sage"], 1, device), "nasty", steps)[0]
        for device in ("auto", "cuda")
    )
    assert (auto.losses, auto.work) == (there.losses, there.work)
    features = there.work["features_loaded_host"] * nasty_graph().num_features * 8
    targets = sum(count for _, count in there.losses)
    assert there.work["tier/h2d_bytes"] == features + 8 * (targets + KEYS * steps)


def test_batches_prepared_ahead_are_the_same(ranks, steps):
    config = _config("data", MODELS["sage"], 1, "cuda", threads=2, prefetch=3)
    ahead = {**config, "train": {**config["train"], "overlap": True}}
    (one,), (other,) = (ranks(1).run(_curve, each, "nasty", steps) for each in (config, ahead))
    assert one.losses == other.losses


def _placed(way: str, graph: str, size: int, sampler: dict[str, Any]) -> Partition | None:
    whole = way == "data" and sampler.get("topology") != "partitioned"
    return None if whole else parts(GRAPHS[graph](), size)


def _shared(ranks, way, model, size, graph, sampler, steps):
    """Curves of batches from the GPUs and from the hosts."""
    options = {**MODELS, "rgcn": {"_target_": "gnnexp.models.rgcn.RGCNOptions"}}[model]
    found = []
    for device in ("cuda", "cpu"):
        config = _config(way, options, size, device, **sampler)
        if sampler.get("topology") == "partitioned" and way == "data":
            config["paradigm"] = {**config["paradigm"], "assign": "owner"}
        found.append(
            ranks(size).run(
                ranks_steps, GRAPHS[graph], config, steps, None, "random", _placed(way, graph, size, sampler)
            )
        )
    return found


PARTITIONED = {"topology": "partitioned"}
SHARED = [
    ("split", "gat", 1, "nasty", {}),
    ("split", "sage", 2, "weighted", {"fanouts": [-1, 3]}),
    ("split", "rgcn", 3, "typed", PARTITIONED),
    ("split", "gat", 4, "nasty", {"key": "micro"}),
    ("data", "rgcn", 1, "typed", PARTITIONED),
    ("data", "gat", 2, "nasty", {**PARTITIONED, "key": "micro"}),
    ("data", "sage", 3, "weighted", {**PARTITIONED, "fanouts": [3, -1]}),
    ("data", "rgcn", 4, "typed", PARTITIONED),
]


ALL = [
    pytest.param(way, model, size, "typed" if model == "rgcn" else "nasty", options, marks=pytest.mark.slow)
    for way, options in (("split", {}), ("data", PARTITIONED))
    for model in ("gat", "sage", "rgcn")
    for size in (1, 2, 3, 4)
]


@pytest.mark.parametrize(("way", "model", "size", "graph", "sampler"), SHARED + ALL)
def test_batches_that_ranks_make_together_on_gpus_are_those_of_the_hosts(
    ranks, steps, way, model, size, graph, sampler
):
    there, here = _shared(ranks, way, model, size, graph, sampler, steps)
    for curve, other in zip(there, here, strict=True):
        assert curve.losses == other.losses  # bit by bit: the blocks are the same
        assert all(gradient.equal(other.gradients[name]) for name, gradient in curve.gradients.items())
        assert (curve.rounds, curve.sent_bytes) == (other.rounds, other.sent_bytes)
        assert curve.work.pop("tier/h2d_bytes") < other.work.pop("tier/h2d_bytes")
        assert curve.work == other.work


CACHED = {"_target_": "gnnexp.feature_stores.static_cache.StaticCacheOptions", "capacity": 0.3}


@pytest.mark.parametrize(
    ("way", "sampler", "changes"),
    [
        ("split", {"threads": 1, "prefetch": 3}, {"train": {"overlap": True}, "measure": "free"}),
        ("data", {**PARTITIONED, "prefetch": 3}, {"train": {"overlap": True}}),
        (
            "data",
            {"threads": 2, "prefetch": 3},
            {
                "train": {"overlap": True},
                "measure": "free",
                "feature_store": {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"},
            },
        ),
        ("split", {"key": "micro"}, {"paradigm": {"group_size": 2}}),
        ("split", {}, {"feature_store": {"tier": "device"}}),
        (
            "data",
            PARTITIONED,
            {"feature_store": {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions", "cache": CACHED}},
        ),
        ("split", {}, {"train": {"batch_size": None}}),
        (
            "split",
            {"fanouts": [3, 2], **PARTITIONED},
            {"model": {"_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"}},
        ),
    ],
)
def test_other_choices_get_the_same_batches(ranks, steps, way, sampler, changes):
    size = 4 if "paradigm" in changes else 2
    curves = []
    for device in ("cuda", "cpu"):
        config = _config(way, MODELS["sage"], size, device, **sampler)
        if way == "data":
            config["paradigm"] = {**config["paradigm"], "assign": "owner"}
        for group, values in changes.items():
            config[group] = {**config[group], **values} if isinstance(values, dict) else values
        partition = parts(nasty_graph(), 2, "skewed")
        curves.append(ranks(size).run(ranks_steps, nasty_graph, config, steps, None, "random", partition))
    for curve, other in zip(*curves, strict=True):
        assert curve.losses == other.losses
        assert (curve.rounds, curve.sent_bytes) == (other.rounds, other.sent_bytes)
        assert curve.work["tier/h2d_bytes"] != other.work["tier/h2d_bytes"], "made in another place"


@pytest.mark.parametrize(("way", "task"), [("split", "dot"), ("data", "mlp")])
def test_links_get_the_same_batches(ranks, steps, way, task):
    """Owners sample the ends of links in a split; over parts, ranks ask for the edges of the ends."""
    curves = []
    for device in ("cuda", "cpu"):
        config = config_of(way, "sage", task)
        config["hardware"] = {**config["hardware"], "device": "cuda", "workers": 3}
        config["sampler"] = {**config["sampler"], **PARTITIONED, "device": device}
        config["task"] = {**config["task"], "exclude_targets": False}
        partition = parts(plain_links(), 3)
        curves.append(ranks(3).run(ranks_steps, plain_links, config, steps, None, "random", partition))
    for curve, other in zip(*curves, strict=True):
        assert curve.losses == other.losses
        assert (curve.rounds, curve.sent_bytes) == (other.rounds, other.sent_bytes)
        assert curve.work["tier/h2d_bytes"] != other.work["tier/h2d_bytes"], "made in another place"


@needs_triton
@pytest.mark.parametrize(
    ("way", "model", "size", "graph", "sampler"),
    [
        ("data", "gat", 1, "nasty", {"fanouts": [3, -1]}),
        ("data", "sage", 2, "weighted", {}),
        pytest.param("projections", "gat", 2, "nasty", {}, marks=pytest.mark.slow),
        ("split", "rgcn", 2, "typed", PARTITIONED),
        ("data", "rgcn", 2, "typed", {**PARTITIONED, "key": "micro"}),
    ],
)
def test_edges_that_a_gpu_reads_in_host_memory_give_the_same_batches(ranks, way, model, size, graph, sampler):
    options = {**MODELS, "rgcn": {"_target_": "gnnexp.models.rgcn.RGCNOptions"}}[model]
    found = []
    for tier in ("uva", "device"):
        config = _config(way, {**options, "kernel": "triton"}, size, "cuda", tier=tier, **sampler)
        if sampler.get("topology") == "partitioned" and way == "data":
            config["paradigm"] = {**config["paradigm"], "assign": "owner"}
        found.append(
            ranks(size).run(ranks_steps, GRAPHS[graph], config, 2, None, "random", _placed(way, graph, size, sampler))
        )
    read, drawn = [], sum(curve.work["edges_sampled"] for curve in found[0])
    for curve, other in zip(*found, strict=True):
        assert curve.losses == other.losses  # bit by bit: the blocks are the same
        assert all(gradient.equal(other.gradients[name]) for name, gradient in curve.gradients.items())
        assert (curve.rounds, curve.sent_bytes) == (other.rounds, other.sent_bytes)
        read.append(curve.work.pop("tier/h2d_bytes_topology"))
        assert curve.work.pop("tier/h2d_bytes") == other.work.pop("tier/h2d_bytes") + read[-1]
        assert curve.work == other.work
    needs, whole = experiment_of(config).model.needs, GRAPHS[graph]()
    kinds = (
        needs.edge_identity and whole.occurrence is not None,
        whole.edge_weights is not None,
        whole.edge_types is not None and (needs.edge_types or needs.edge_identity),
    )
    assert sum(read) == drawn * 4 * (1 + sum(kinds)) > 0
