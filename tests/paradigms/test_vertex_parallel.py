"""Vertex parallelism is exact wherever nothing is stale, and its traffic is that of its formulas."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import combinations
from experiments import assembled, experiment_in, planned
from full_graph import FULL_MODELS, full_config

from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.vertex_parallel import VertexParallel
from gnnexp.paradigms.vertices.edge_cut import EdgeCutTrainer
from gnnexp.testing.exactness import assert_exact, parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import Curve, run_steps
from gnnexp.testing.ways import VERTEX
from gnnexp.training.assemble import Artifacts
from gnnexp.training.train import probe_memory

HARDWARE = {"links": {"network": 1e9}, "flops": 1e11, "gather": 1e10}
WAYS: dict[str, dict[str, Any]] = {
    "communicate": {"dependency": "communicate"},
    "input_halo": {"dependency": "communicate", "cache_input_halo": True},
    "cache": {"dependency": "cache"},
    "hybrid": {"dependency": "hybrid"},
    "stale_0": {"dependency": "stale", "staleness": 0},
    "broadcast": {"dependency": "stale", "exchange": "broadcast"},
    "chunks": {"dependency": "communicate", "chunks": 4},
    "cache_in_chunks": {"dependency": "cache", "chunks": 3},
}


def _config(name: str, way: str, dtype: str = "float64", **changes: Any) -> dict[str, Any]:
    hardware = {**HARDWARE, **changes.pop("hardware", {})}
    return full_config(name, {"_target_": VERTEX, **WAYS[way]}, dtype, hardware=hardware, **changes)


@pytest.mark.parametrize(
    ("size", "model", "way"),
    combinations(
        [1, 2, 3, 4],
        FULL_MODELS,
        WAYS,
        quick=lambda size, model, way: (
            (size, way) == (3, "communicate")
            or (model == "gat" and size == 3 and way not in ("cache", "hybrid", "chunks"))
            or (size, way, model) in ((2, "chunks", "gat_residual"), (2, "hybrid", "gcn"), (4, "cache", "sage"))
        ),
    ),
)
def test_same_losses_and_gradients_as_one_worker(ranks, size, model, way, steps):
    steps = 20 if (way, model) == ("hybrid", "gcn") else steps
    assert_exact(ranks, size, nasty_graph, _config(model, way), 1e-10, num_parts=size, steps=steps)


@pytest.mark.parametrize("way", ["communicate", "cache"])
def test_float32(ranks, way, steps):
    assert_exact(ranks, 3, nasty_graph, _config("gat", way, "float32"), 1e-5, num_parts=3, steps=steps)


@pytest.mark.parametrize(
    ("model", "way", "kind"),
    combinations(
        FULL_MODELS,
        WAYS,
        ["skewed", "empty"],
        quick=lambda model, way, kind: (
            model == "gat_residual" and kind == "empty" and way not in ("input_halo", "cache_in_chunks")
        ),
    ),
)
def test_uneven_and_empty_parts(ranks, model, way, kind, steps):
    assert_exact(ranks, 3, nasty_graph, _config(model, way), 1e-10, num_parts=3, kind=kind, steps=steps)


@pytest.mark.parametrize("way", WAYS)
def test_ordinary_layers_run_unchanged(ranks, way, steps):
    config = _config("sage", way)
    config["model"] = {**config["model"], "_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"}
    assert_exact(ranks, 2, nasty_graph, config, 1e-10, num_parts=2, steps=steps)


def test_partitioned_features(ranks, steps):
    config = _config("gcn", "cache")
    config["feature_store"] = {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"}
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, num_parts=3, steps=steps)


# --- counts ----------------------------------------------------------------------------------------------------------
STEPS, LAYERS, FEATURES, HIDDEN = 4, 3, 13, 16


def _halo(size: int) -> tuple[int, list[set[int]]]:
    """Foreign in-neighbours over all ranks, counted edge by edge, and each rank's own vertices."""
    graph, owner = nasty_graph(), parts(nasty_graph(), size).node_owner
    pairs = set()
    for v in range(graph.num_nodes):
        for u in graph.indices[int(graph.indptr[v]) : int(graph.indptr[v + 1])].tolist():
            if owner[u] != owner[v]:
                pairs.add((int(owner[v]), u))
    return len(pairs), [set(torch.nonzero(owner == part).flatten().tolist()) for part in range(size)]


def _counted(ranks, size: int, way: str, **more: Any) -> list[Curve]:
    config = _config("sage", way, "float32", model={"layers": LAYERS, "dropout": 0.0, "input_dropout": 0.0})
    config["paradigm"] |= more
    return ranks(size).run(_steps, config, size)


def _steps(config: dict[str, Any], size: int) -> Curve:
    graph = nasty_graph()
    return run_steps(config, graph, STEPS, parts(graph, size))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_bytes_of_communicated_halos(ranks, size):
    """L exchanges forward, L-1 backward (features take no gradient), of halo rows x width x itemsize."""
    curves = _counted(ranks, size, "communicate")
    halo, _ = _halo(size)
    sent = {tag: sum(curve.sent_bytes[tag] for curve in curves) for tag in ("features", "activations")}
    back_and_forth = STEPS * 2 * (LAYERS - 1)
    assert sent == {"features": STEPS * halo * FEATURES * 4, "activations": back_and_forth * halo * HIDDEN * 4}
    for curve in curves:
        assert curve.rounds["features"] == STEPS and curve.rounds["activations"] == STEPS * 2 * (LAYERS - 1)
        assert curve.rounds["gradients"] == STEPS and "sizes" not in curve.rounds


def test_an_input_halo_that_is_held_is_not_sent(ranks):
    curves = _counted(ranks, 3, "communicate", cache_input_halo=True)
    assert all("features" not in curve.rounds for curve in curves)
    sent = sum(curve.sent_bytes["activations"] for curve in curves)
    assert sent == STEPS * 2 * (LAYERS - 1) * _halo(3)[0] * HIDDEN * 4


@pytest.mark.parametrize("size", [2, 4])
def test_a_cached_halo_computes_more_and_sends_nothing(ranks, size):
    curves = _counted(ranks, size, "cache")
    graph = nasty_graph()
    into = [graph.indices[int(a) : int(b)].tolist() for a, b in zip(graph.indptr[:-1], graph.indptr[1:], strict=True)]
    redundant = 0
    for own in _halo(size)[1]:
        wanted = set(own)
        for _ in range(LAYERS):
            redundant += sum(len(into[v]) for v in wanted - own)
            wanted |= {u for v in wanted for u in into[v]}
    assert sum(curve.work["edges_redundant"] for curve in curves) == STEPS * redundant > 0
    assert all(set(curve.rounds) == {"gradients"} for curve in curves)
    assert sum(curve.work["edges_computed"] for curve in curves) == STEPS * (LAYERS * graph.num_edges + redundant)


@pytest.mark.parametrize("size", [2, 3])
def test_broadcasts_send_whole_parts(ranks, size):
    """N sequential broadcasts of all rows forward, one reduction backward."""
    curves, vertices = _counted(ranks, size, "broadcast"), nasty_graph().num_nodes
    assert sum(c.sent_bytes["features"] for c in curves) == STEPS * (size - 1) * vertices * FEATURES * 4
    assert sum(c.sent_bytes["activations"] for c in curves) == (
        STEPS * 2 * (LAYERS - 1) * (size - 1) * vertices * HIDDEN * 4
    )
    assert all(c.rounds["features"] == STEPS * size for c in curves)
    assert all(c.rounds["activations"] == STEPS * (LAYERS - 1) * (size + 1) for c in curves)


@pytest.mark.parametrize("bound", [1, 3])
def test_what_is_not_sent_while_rows_are_old_enough(ranks, bound):
    fresh, old = _counted(ranks, 3, "stale_0"), _counted(ranks, 3, "stale_0", staleness=bound)
    rounds = -(-STEPS // (bound + 1))
    for before, after in zip(fresh, old, strict=True):
        assert after.rounds["features"] == rounds
        assert after.rounds["activations"] == (LAYERS - 1) * (rounds + STEPS), "gradients go home in every epoch"
        sent = sum(before.sent_bytes[tag] for tag in ("features", "activations"))
        still_sent = sum(after.sent_bytes[tag] for tag in ("features", "activations"))
        assert still_sent + after.work["comm/bytes_skipped"] == sent
    assert [loss for loss, _ in fresh[0].losses[:1]] == [loss for loss, _ in old[0].losses[:1]]
    assert [loss for loss, _ in fresh[0].losses] != [loss for loss, _ in old[0].losses]


@pytest.mark.parametrize(("network", "cached"), [(1e12, False), (1.0, True)])
def test_hybrid_caches_what_is_dear_to_send(ranks, network, cached):
    config = _config("sage", "hybrid", hardware={"links": {"network": network}})
    curves = ranks(2).run(_steps, config, 2)
    assert all(("activations" in curve.rounds) != cached for curve in curves)
    assert (sum(curve.work["edges_redundant"] for curve in curves) > 0) == cached


def test_hybrid_mixes_both(ranks):
    """At costs in between, some foreign rows are computed and some fetched."""
    config = _config("sage", "hybrid", hardware={"links": {"network": 1e9}, "gather": 1e10, "flops": 1e12})
    config["model"]["layers"] = LAYERS
    curves = ranks(2).run(_steps, config, 2)
    assert sum(curve.work["edges_redundant"] for curve in curves) > 0
    assert sum(curve.sent_bytes["activations"] for curve in curves) > 0
    assert_exact(ranks, 2, nasty_graph, config, 1e-10, num_parts=2)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"staleness": -1}, "staleness"),
        ({"staleness": 2}, "staleness"),
        ({"dependency": "guess"}, "dependency"),
        ({"exchange": "smoke"}, "exchange"),
        ({"dependency": "cache", "exchange": "broadcast"}, "exchange"),
    ],
)
def test_options_that_make_no_sense(options, key):
    with pytest.raises(ConfigError) as error:
        build({"_target_": VERTEX, **options}, Paradigm, "paradigm")
    assert [problem.key.removeprefix("paradigm.") for problem in error.value.problems] == [key]


# --- chunks ----------------------------------------------------------------------------------------------------------
def _probed(config: dict[str, Any]) -> tuple[list[int], dict[str, int]]:
    graph = nasty_graph(3000, 40000, 64, 24)
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts(graph, 2)), Path(folder), read_environment())
        assert isinstance(trainer, EdgeCutTrainer) and trainer.local is not None
        memory = probe_memory(job)
        job.comm.release()
    return [len(chunks) for chunks in trainer.local.chunks], memory


@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "gin"])
def test_chunks_stay_within_the_budget(ranks, model):
    budget = 3_500_000
    config = _config(model, "communicate", "float32")
    config["paradigm"] |= {"chunks": None, "device_memory": budget}
    for chunks, memory in ranks(2).run(_probed, config):
        assert max(chunks) > 1 and max(chunks) < 200, f"a budget that matters, and is made use of: {chunks}"
        assert budget / 10 < memory["device_peak_bytes"] <= budget


def test_chunks_leave_traffic_as_it_is_and_cross_the_tier(ranks):
    whole, cut = _counted(ranks, 2, "communicate"), _counted(ranks, 2, "communicate", chunks=4)
    for before, after in zip(whole, cut, strict=True):
        assert (before.sent_bytes, before.rounds) == (after.sent_bytes, after.rounds)
        assert "tier/d2h_bytes" not in before.work
        assert after.work["tier/d2h_bytes"] > 4 * HIDDEN * after.work["vertices_computed"] / LAYERS


def test_a_budget_below_the_largest_vertex():
    config = _config("gcn", "communicate")
    config["paradigm"] |= {"chunks": None, "device_memory": 5000}
    experiment, graph = experiment_in(config), nasty_graph()
    (problem,) = planned(experiment, graph, VertexParallel("communicate", chunks=None, device_memory=5000)).problems
    assert problem.key == "paradigm.device_memory" and "in-edges" in problem.allowed
    enough = int(problem.fix.split("=")[1].split()[0])
    assert not planned(experiment, graph, VertexParallel("communicate", chunks=None, device_memory=enough)).problems


def test_hybrid_needs_to_know_the_machine():
    config = _config("sage", "hybrid")
    config["hardware"] |= {"links": None, "flops": None}
    problems = VertexParallel("hybrid").check(experiment_in(config))
    assert [problem.key for problem in problems] == ["hardware.flops", "hardware.links.network"]
    assert all("hardware=local_measured" in problem.fix for problem in problems)
