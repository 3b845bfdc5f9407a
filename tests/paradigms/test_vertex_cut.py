"""Vertex parallelism over a vertex-cut: exact without delay, late by `delay` epochs."""

from __future__ import annotations

from typing import Any

import pytest
from combinations import combinations
from experiments import experiment_in
from full_graph import FULL_MODELS, full_config

from gnnexp.paradigms.vertex_parallel import VertexParallel
from gnnexp.testing.exactness import assert_exact, cut_parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import Curve, run_steps
from gnnexp.testing.ways import VERTEX

STEPS, LAYERS, FEATURES, HIDDEN, CLASSES = 4, 2, 13, 16, 4


def _config(name: str, dtype: str = "float64", **options: Any) -> dict[str, Any]:
    return full_config(name, {"_target_": VERTEX, **options}, dtype)


@pytest.mark.parametrize(
    ("size", "model", "held"),
    combinations(
        [1, 2, 3, 4],
        FULL_MODELS,
        [False, True],
        quick=lambda size, model, held: size == 3 + held and held == (model in ("sage", "gat_residual")),
    ),
)
def test_same_losses_and_gradients_as_one_worker(ranks, size, model, held, steps):
    steps = 20 if (size, model) == (3, "gat") else steps
    config, partition = _config(model, cache_input_halo=held), cut_parts(nasty_graph(), size)
    assert_exact(ranks, size, nasty_graph, config, 1e-10, partition=partition, steps=steps)


@pytest.mark.parametrize("model", ["gat_residual", pytest.param("gcn", marks=pytest.mark.slow)])
def test_a_part_without_vertices_and_edges(ranks, model, steps):
    partition = cut_parts(nasty_graph(), 3, "empty")
    assert_exact(ranks, 3, nasty_graph, _config(model), 1e-10, partition=partition, steps=steps)


def test_float32(ranks, steps):
    partition = cut_parts(nasty_graph(), 3)
    assert_exact(ranks, 3, nasty_graph, _config("gat", "float32"), 1e-5, partition=partition, steps=steps)


def _steps(config: dict[str, Any], size: int, steps: int = STEPS) -> Curve:
    graph = nasty_graph()
    return run_steps(config, graph, steps, cut_parts(graph, size))


def _copies(size: int) -> tuple[int, int]:
    """Foreign source and destination copies over all ranks, counted edge by edge."""
    graph = nasty_graph()
    partition = cut_parts(graph, size)
    assert partition.edge_owner is not None
    master, sources, destinations, edge = partition.node_owner.tolist(), set(), set(), 0
    for v in range(graph.num_nodes):
        for u in graph.indices[int(graph.indptr[v]) : int(graph.indptr[v + 1])].tolist():
            part = int(partition.edge_owner[edge])
            edge += 1
            sources |= {(part, u)} if master[u] != part else set()
            destinations |= {(part, v)} if master[v] != part else set()
    return len(sources), len(destinations)


@pytest.mark.parametrize(
    ("model", "size"), combinations(["sage", "gat"], [2, 3], quick=lambda *case: case in (("sage", 2), ("gat", 3)))
)
def test_bytes_equal_their_formula(ranks, size, model):
    """Forward Rs(C+B) + Rd(C+B) + 3 Rd B, backward the same without the two rounds of the maximum."""
    curves = ranks(size).run(_steps, _config(model, "float32"), size)
    rs, rd = _copies(size)
    heads = {"sage": (0, 0), "gat": (2, 1)}[model]
    forward = backward = 0
    for width, keys in zip((HIDDEN, CLASSES), heads, strict=True):
        forward += rs * (width + keys) + rd * (width + keys) + 3 * rd * keys
        backward += rs * (width + keys) + rd * (width + keys) + rd * keys
    sent = sum(curve.sent_bytes[tag] for curve in curves for tag in ("features", "activations"))
    assert sent == STEPS * 4 * (forward + backward)
    assert all(curve.rounds["features"] == 2 * STEPS for curve in curves), "layer 1's rows and their gradients"
    graph = nasty_graph()
    edges = LAYERS * (graph.num_edges + (graph.num_nodes if model == "gat" else 0))
    assert sum(curve.work["edges_computed"] for curve in curves) == STEPS * edges, "each edge once"
    assert sum(curve.work["edges_redundant"] for curve in curves) == 0


def test_what_is_late_is_used_later(ranks):
    """The same traffic, other losses; without learning and dropout, only the first epochs miss something."""
    exact, late = (_config("sage", delay=delay) for delay in (0, 2))
    for config in (exact, late):
        config["optimizer"]["lr"] = 0.0
        config["model"] |= {"dropout": 0.0, "input_dropout": 0.0}
    now, later = (ranks(3).run(_steps, config, 3, 8) for config in (exact, late))
    for one, other in zip(now, later, strict=True):
        assert (one.sent_bytes, one.rounds) == (other.sent_bytes, other.rounds)
    losses = [[sum(curve.losses[step][0] for curve in curves) for step in range(8)] for curves in (now, later)]
    assert losses[0] == pytest.approx([losses[0][0]] * 8)
    assert losses[1][0] != pytest.approx(losses[0][0]), "nothing has arrived yet"
    # Layer 1's sums are two epochs late, layer 2's rows two more and its sums two more.
    assert losses[1][6:] == pytest.approx(losses[0][6:]), "what is late is the same as ever"


@pytest.mark.parametrize(
    ("options", "partitioner", "key"),
    [
        ({"dependency": "cache"}, "libra.Libra", "paradigm.dependency"),
        ({"exchange": "broadcast"}, "libra.Libra", "paradigm.exchange"),
    ],
)
def test_options_that_do_not_go_together(options, partitioner, key):
    config = _config("gcn", **options)
    config["partitioner"] = {"_target_": f"gnnexp.partitioners.{partitioner}Partitioner"}
    problems = VertexParallel(**options).check(experiment_in(config))
    assert [problem.key for problem in problems] == [key] and problems[0].fix


def test_late_sums_of_attention_are_refused():
    """They were divided by the exponential of another epoch's peak."""
    config = _config("gat", delay=1)
    config["partitioner"] = {"_target_": "gnnexp.partitioners.libra.LibraPartitioner"}
    (problem,) = VertexParallel(delay=1).check(experiment_in(config))
    assert problem.key == "paradigm.delay" and "peak" in problem.allowed
    assert not VertexParallel(delay=0).check(experiment_in(config))


def test_an_input_halo_that_is_held_is_not_fetched(ranks):
    rs, rd = _copies(3)
    for held in (False, True):
        curves = ranks(3).run(_steps, _config("sage", cache_input_halo=held), 3, 1)
        assert sum(curve.work["halo_fetched"] for curve in curves) == (LAYERS - held) * rs + LAYERS * rd


def test_ordinary_layers_are_refused():
    config = _config("sage")
    config["model"] = {"_target_": "gnnexp.models.sage_pool.SAGEPoolOptions", "hidden": 16, "layers": 2}
    config["partitioner"] = {"_target_": "gnnexp.partitioners.libra.LibraPartitioner"}
    assert [problem.key for problem in VertexParallel().check(experiment_in(config))] == ["model"]
