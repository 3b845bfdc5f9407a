"""Owners may project rows before they send them: the same losses and gradients, with the bytes of the formula."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from combinations import combinations
from experiments import assembled, experiment_in
from full_graph import FULL_MODELS, full_config
from sparse_graphs import mostly_zero, sparse_links

from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.models.layer import Layer
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.vertex_parallel import VertexParallel
from gnnexp.paradigms.vertices.sent_rows import FeatureRows, sent_bytes, sent_projected
from gnnexp.testing.exactness import assert_exact, parts
from gnnexp.testing.graphs import half_without_in_edges, nasty_graph, typed_graph, weighted_graph
from gnnexp.testing.steps import Curve, run_steps
from gnnexp.testing.ways import PROFILE, VERTEX
from gnnexp.training.assemble import Artifacts

DBH = "gnnexp.partitioners.dbh.DbhPartitioner"
RGCN = "gnnexp.models.rgcn.RGCNOptions"
MODELS: dict[str, dict[str, Any]] = {
    **FULL_MODELS,
    "keyed": {"_target_": "full_graph.Keyed", "heads": 2, "attention_dropout": 0.3, "residual": True},
    "bases": {"_target_": RGCN, "bases": 2},
    "blocks": {"_target_": RGCN, "decomposition": "block", "blocks": 3},
    "mlp": {"_target_": "gnnexp.models.mlp.MLPOptions"},
}
WAYS: dict[str, dict[str, Any]] = {
    "communicate": {},
    "held_inputs": {"cache_input_halo": True},
    "cache": {"dependency": "cache"},
    "hybrid": {"dependency": "hybrid"},
    "parts": {"exchange": "broadcast"},
    "stale_0": {"dependency": "stale"},
    "chunks": {"chunks": 4},
    "hybrid_chunks": {"dependency": "hybrid", "chunks": 3},
}
# Costs at which hybrid computes some foreign rows and fetches others.
BETWEEN = {"links": {"network": 1e9}, "gather": 1e10, "flops": 1e12}


def _config(model: str, way: str, rows: str = "projected", dtype: str = "float64", **changes: Any) -> dict[str, Any]:
    config = full_config("gcn", {"_target_": VERTEX, "rows": rows, **WAYS[way]}, dtype, hardware=BETWEEN, **changes)
    config["model"] = {**config["model"], "layers": 3, **MODELS[model]}
    return config


def _graph(model: str) -> Any:
    return typed_graph if model in ("bases", "blocks") else nasty_graph


@pytest.mark.parametrize(
    ("size", "model", "way"),
    combinations(
        [1, 2, 3, 4],
        MODELS,
        WAYS,
        quick=lambda size, model, way: (
            (size, model, way)
            in (
                (3, "gat_residual", "communicate"),
                (2, "keyed", "chunks"),
                (3, "residual", "hybrid_chunks"),
                (2, "bases", "hybrid"),
                (3, "gin", "parts"),
                (2, "written_here", "cache"),
            )
        ),
    ),
)
def test_same_losses_and_gradients_as_one_worker(ranks, size, model, way, steps):
    assert_exact(ranks, size, _graph(model), _config(model, way), 1e-10, num_parts=size, steps=steps)


@pytest.mark.parametrize(
    ("model", "way", "kind"),
    combinations(
        MODELS,
        WAYS,
        ["skewed", "empty"],
        quick=lambda model, way, kind: (
            (model, way, kind) in (("gat_residual", "chunks", "empty"), ("sage", "hybrid", "empty"))
        ),
    ),
)
def test_uneven_and_empty_parts(ranks, model, way, kind, steps):
    assert_exact(ranks, 3, _graph(model), _config(model, way), 1e-10, num_parts=3, kind=kind, steps=steps)


@pytest.mark.parametrize("way", ["communicate", pytest.param("chunks", marks=pytest.mark.slow)])
def test_float32(ranks, way, steps):
    assert_exact(ranks, 3, nasty_graph, _config("gat", way, "cheapest", "float32"), 1e-5, num_parts=3, steps=steps)


@pytest.mark.parametrize(
    ("make", "model", "way"),
    combinations(
        [weighted_graph, half_without_in_edges, mostly_zero],
        ["gcn", "sage", "gin", "gat", "keyed"],
        ["communicate", "chunks", "hybrid", "held_inputs", "parts"],
        quick=lambda make, model, way: (
            (make, model, way)
            in (
                (weighted_graph, "sage", "chunks"),
                (half_without_in_edges, "gcn", "hybrid"),
                (mostly_zero, "keyed", "communicate"),
                (mostly_zero, "gcn", "chunks"),
                (mostly_zero, "sage", "hybrid"),
            )
        ),
    ),
)
def test_weights_and_sparse_features(ranks, make, model, way, steps):
    if make is weighted_graph and model == "keyed":
        pytest.skip("this test's layer with keys has no formula for edge weights")
    assert_exact(ranks, 2, make, _config(model, way), 1e-10, num_parts=2, steps=steps)


def test_several_steps_of_links_with_sparse_features(ranks):
    config = _config("sage", "communicate")
    config["train"]["batch_size"] = 10
    config["task"] = {"_target_": "gnnexp.tasks.link_prediction.LinkPredictionOptions"}
    assert_exact(ranks, 2, sparse_links, config, 1e-10, num_parts=2, steps=8)


def test_trained_rows_get_their_gradients(ranks, steps):
    config = _config("gat", "communicate", "projected")
    config["feature_store"] = {"_target_": "gnnexp.feature_stores.embedding.EmbeddingOptions", "dim": 9}
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, num_parts=3, steps=steps)


def test_ordinary_layers_send_raw_rows_if_that_is_not_chosen(ranks, steps):
    config = _config("sage", "communicate", "cheapest")
    config["model"] = {**config["model"], "_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"}
    assert_exact(ranks, 2, nasty_graph, config, 1e-10, num_parts=2, steps=steps)


# --- counts ----------------------------------------------------------------------------------------------------------
STEPS, FEATURES, HIDDEN, LAYERS = 2, 13, 16, 3


def _steps(config: dict[str, Any], make: Any, size: int) -> Curve:
    graph = make()
    return run_steps(config, graph, STEPS, parts(graph, size))


def _halo(graph: Graph, size: int) -> int:
    """Foreign in-neighbours over all ranks."""
    owner = parts(graph, size).node_owner.tolist()
    edges = zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True)
    return len({(owner[v], u) for u, v in edges if owner[u] != owner[v]})


def _of_rows(curves: list[Curve]) -> int:
    return sum(curve.sent_bytes.get(tag, 0) for curve in curves for tag in ("features", "activations"))


def _values(model: str, rows: str, classes: int, *, held: bool = False) -> int:
    """Columns of a foreign row, sent in a step by all layers, forward and backward."""
    bases, total = 2 if model == "bases" else 1, 0
    for index, (width, out) in enumerate([(FEATURES, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, classes)]):
        if held and index == 0:
            continue
        raw = width * (2 if index else 1)
        keys = 0 if model != "gat" else 1 if index == LAYERS - 1 else 2
        projected = 2 * (bases * out + keys)
        total += {"raw": raw, "projected": projected, "cheapest": min(raw, projected)}[rows]
    return total


@pytest.mark.parametrize(
    ("model", "rows", "way"),
    combinations(
        ["gcn", "gat", "bases"],
        ["raw", "projected", "cheapest"],
        ["communicate", "held_inputs", "chunks", "parts"],
        quick=lambda model, rows, way: (
            ((model, way) in (("gat", "communicate"), ("gcn", "parts")) and rows != "raw")
            or (model, rows, way) in (("bases", "cheapest", "chunks"), ("gcn", "cheapest", "held_inputs"))
        ),
    ),
)
def test_bytes_of_sent_rows(ranks, model, rows, way):
    """Halo rows x columns x itemsize: projected rows have C columns and K source keys, also backward in layer 1."""
    size, make = 3, _graph(model)
    graph = make()
    curves = ranks(size).run(_steps, _config(model, way, rows, "float32"), make, size)
    copies = (size - 1) * graph.num_nodes if way == "parts" else _halo(graph, size)
    assert _of_rows(curves) == STEPS * copies * _values(model, rows, graph.num_classes, held=way == "held_inputs") * 4


def test_sparse_rows_are_cheap_to_send(ranks):
    """Layer 1 has fewer values than projections have columns, so only the last layer projects."""
    curves = {
        rows: ranks(2).run(_steps, _config("gcn", "communicate", rows), mostly_zero, 2)
        for rows in ("raw", "projected", "cheapest")
    }
    features = {rows: sum(curve.sent_bytes["features"] for curve in found) for rows, found in curves.items()}
    halo, classes = _halo(mostly_zero(), 2), mostly_zero().num_classes
    assert features["cheapest"] == features["raw"] < features["projected"] == STEPS * halo * 2 * HIDDEN * 8
    assert _of_rows(curves["cheapest"]) == features["raw"] + STEPS * halo * 2 * (HIDDEN + classes) * 8


def _layers(config: dict[str, Any]) -> list[tuple[bool, list[float]]]:
    """For each layer: whether it is projected, and the bytes of a raw and of a projected row."""
    graph = nasty_graph()
    with tempfile.TemporaryDirectory() as folder:
        job, _ = assembled(config, Artifacts(graph, parts(graph, 1)), Path(folder), read_environment())
        job.comm.release()
    inputs, layers = FeatureRows.of(job.graph), job.model.stack
    chosen = sent_projected(layers, "cheapest", inputs, 8)
    return [
        (way, [sent_bytes(layer, index, inputs, 8, projects=projects) for projects in (False, True)])
        for index, (layer, way) in enumerate(zip(layers, chosen, strict=True))
        if isinstance(layer, Layer)
    ]


@pytest.mark.parametrize(
    ("hidden", "dim", "expected"),
    [(16, None, [False, False, True]), (6, None, [True, False, True]), (12, 20, [True, False, True])],
)
def test_the_cheapest_kind_knows_constant_and_trained_features(ranks, hidden, dim, expected):
    config = _config("gcn", "communicate")
    config["model"]["hidden"] = hidden
    if dim is not None:
        config["feature_store"] = {"_target_": "gnnexp.feature_stores.embedding.EmbeddingOptions", "dim": dim}
    (found,) = ranks(1).run(_layers, config)
    assert [way for way, _ in found] == expected
    width = FEATURES if dim is None else dim
    assert found[0][1] == [width * (1 if dim is None else 2) * 8, 2 * hidden * 8]


@pytest.mark.parametrize(
    ("rows", "changes", "fix"),
    [
        ("projected", {"model": {"_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"}}, "paradigm.rows=cheapest"),
        ("cheapest", {"partitioner": {"_target_": DBH}}, "paradigm.rows=raw"),
    ],
)
def test_what_cannot_send_projected_rows_is_refused(rows, changes, fix):
    config = full_config("sage", {"_target_": VERTEX}, hardware=PROFILE)
    config |= {group: {**config[group], **values} for group, values in changes.items()}
    (problem,) = VertexParallel(rows=rows).check(experiment_in(config))
    assert (problem.key, problem.value) == ("paradigm.rows", rows) and fix in problem.fix


def test_rounded_rows_are_raw():
    experiment = experiment_in(full_config("sage", {"_target_": VERTEX}))
    assert VertexParallel().refuses_rounded_rows(experiment) is None
    assert VertexParallel(rows="cheapest").refuses_rounded_rows(experiment) is not None


@pytest.mark.parametrize("options", [{"dependency": "stale", "staleness": 1}, {"delay": 1}, {"rows": "guess"}])
def test_old_and_late_rows_are_raw(options):
    with pytest.raises(ConfigError) as error:
        build({"_target_": VERTEX, "rows": "projected", **options}, Paradigm, "paradigm")
    assert [problem.key.removeprefix("paradigm.") for problem in error.value.problems] == ["rows"]
