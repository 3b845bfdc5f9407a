"""`feature_store.tier=device`: rows are on the GPU before the first epoch, and no row crosses for a batch."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from store_cases import graph_of

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment, read_environment
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import experiment_of, read
from gnnexp.experiment.seen import facts_of
from gnnexp.feature_stores.base import Share
from gnnexp.feature_stores.local import LocalOptions
from gnnexp.graph.shard import Shard
from gnnexp.measure.phases import PhaseTimer
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, Curve, run_steps
from gnnexp.testing.ways import config_in, placed
from gnnexp.training.assemble import Artifacts, assemble

STATIC = {"_target_": "gnnexp.feature_stores.static_cache.StaticCacheOptions", "capacity": 5}


def _config(way: str, size: int, tier: str, device: str = "cuda", **store: object) -> dict[str, Any]:
    return config_in(
        way,
        MODELS["sage"],
        feature_store={"tier": tier, **store},
        hardware={"workers": size, "device": device},
        train={"eval_every": None},
    )


@pytest.mark.parametrize(
    ("way", "device", "store", "words"),
    [
        ("data", "cpu", {}, "the run is on the CPU"),
        ("communicate", "cuda", {}, "reads rows on the host"),
        ("offload", "cuda", {}, "reads rows on the host"),
        ("data", "cuda", {"cache": STATIC}, "a cache has nothing to hold"),
    ],
)
def test_what_cannot_be_is_refused(way: str, device: str, store: dict[str, object], words: str) -> None:
    (problem,) = (
        one for one in read(_config(way, 1, "device", device, **store)).problems if one.key == "feature_store.tier"
    )
    assert words in str(problem) and "feature_store.tier=host" in str(problem)
    assert not [one for one in read(_config(way, 1, "host", device, **store)).problems if "tier" in one.key]


def test_sparse_features_stay_on_the_host() -> None:
    experiment = experiment_of(_config("data", 1, "device"))
    problems = experiment.feature_store.check_data(experiment.setting, facts_of(experiment, graph_of(sparse=True)))
    assert [problem.key for problem in problems] == ["feature_store.tier"]


def test_a_rank_without_a_gpu_refuses() -> None:
    cpu = torch.device("cpu")
    with pytest.raises(ConfigError, match="no CUDA device"):
        LocalOptions(tier="device").make().setup(
            Shard(nasty_graph()), torch.float32, cpu, Communicator(Environment(), PhaseTimer(), cpu)
        )


def _curve(config: dict[str, Any], way: str, size: int, steps: int) -> Curve:
    graph = nasty_graph()
    return run_steps(config, graph, steps, placed(way, graph, size))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
@pytest.mark.parametrize(
    ("way", "size", "sampler"), [("data", 1, "cuda"), ("data", 2, "cpu"), ("split", 2, "cpu"), ("split", 3, "cuda")]
)
def test_training_is_the_same_and_only_ids_cross(ranks, steps, way, size, sampler) -> None:
    curves = {}
    for tier in ("host", "device"):
        config = _config(way, size, tier)
        config["sampler"] = {**config["sampler"], "device": sampler}
        curves[tier] = ranks(size).run(_curve, config, way, size, steps)
    row = nasty_graph().num_features * 8
    for there, here in zip(curves["device"], curves["host"], strict=True):
        assert there.losses == here.losses  # bit by bit: the rows are the same
        assert all(gradient.equal(here.gradients[name]) for name, gradient in there.gradients.items())
        rows = here.work.pop("features_loaded_host")
        assert there.work.pop("features_loaded_local") == rows > 0
        crossed = here.work.pop("tier/h2d_bytes") - there.work.pop("tier/h2d_bytes")
        ids = 0 if sampler == "cuda" else rows * nasty_graph().indices.element_size()
        assert crossed == rows * row - ids
        assert there.work == here.work


ROOMY, FULL = (10, 10**9), (10**9, 10**9)


@pytest.mark.parametrize(
    ("way", "device", "store", "room", "words"),
    [
        ("data", "cuda", {}, ROOMY, "device: 6240 bytes of features and 10 other bytes fit into 1000000000 bytes"),
        ("split", "cuda", {}, FULL, "host: 6240 bytes of features and 1000000000 other bytes do not fit"),
        ("data", "cpu", {}, None, "host: the run is on the CPU"),
        ("offload", "cuda", {}, None, "host: this paradigm"),
        ("data", "cuda", {"cache": STATIC}, None, "host: a cache has nothing to hold"),
    ],
)
def test_auto_takes_the_gpu_where_all_rows_fit(way, device, store, room, words) -> None:
    def asked() -> tuple[int, int]:
        assert room is not None, "the memory of the device does not matter"
        return room

    config = _config(way, 1, "auto", device, **store)
    assert not [one for one in read(config).problems if "tier" in one.key]
    experiment = experiment_of(config)
    made, facts = experiment.feature_store.make(), facts_of(experiment, graph_of())
    assert made.place(experiment.setting, facts, asked).startswith(words)
    assert made.on_device == words.startswith("device")
    assert not sum(need.num_bytes for need in experiment.feature_store.needs(facts, 8, Share(facts.num_nodes, 1)))


@pytest.mark.parametrize("sparse", [False, True])
def test_auto_of_sparse_features_is_the_host(sparse: bool) -> None:
    experiment = experiment_of(_config("data", 1, "auto"))
    made, facts = experiment.feature_store.make(), facts_of(experiment, graph_of(sparse=sparse))
    assert made.place(experiment.setting, facts, lambda: ROOMY).startswith("host: sparse" if sparse else "device: ")


def _chosen(config: dict[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        job = assemble(experiment_of(config), Artifacts(nasty_graph()), Path(folder), read_environment())
        job.comm.release()
        return str(job.facts["features"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
@pytest.mark.parametrize(("limit", "tier"), [(None, "device"), (1000, "host")])
def test_all_ranks_choose_the_same_tier(ranks, limit, tier) -> None:
    config = _config("data", 2, "auto")
    config["hardware"]["device_memory"] = limit
    first, second = ranks(2).run(_chosen, config)
    assert first == second and first.startswith(f"{tier}: ")


def test_a_run_on_the_cpu_records_the_host() -> None:
    assert _chosen(_config("data", 1, "auto", "cpu")) == "host: the run is on the CPU"
    assert _chosen(_config("data", 1, "auto", "auto")).startswith(
        "device: " if torch.cuda.is_available() else "host: the run is on the CPU"
    )
    assert _chosen(_config("data", 1, "host", "cpu")) == "host"
