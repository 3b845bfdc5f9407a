"""Sancus' adaptive skipping in training: exact with bound 0, and what is not sent is counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from experiments import experiment_in, planned
from full_graph import full_config
from sparse_graphs import sparse_links

from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.vertex_parallel import VertexParallel
from gnnexp.testing.exactness import assert_exact, parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import Curve, run_steps
from gnnexp.testing.ways import VERTEX

STEPS, SIZE, LAYERS = 6, 3, 3
MUCH = 1e9  # no rows move that far


def _config(bound: float, **changes: Any) -> dict[str, Any]:
    paradigm = {
        "_target_": VERTEX,
        "dependency": "stale",
        "staleness_metric": "variation",
        "variation_bound": bound,
        **changes.pop("paradigm", {}),
    }
    model = {"layers": LAYERS, "dropout": 0.0, "input_dropout": 0.0, **changes.pop("model", {})}
    return full_config("sage", paradigm, model=model, **changes)


def _steps(config: dict[str, Any], kind: str = "random") -> Curve:
    graph = nasty_graph()
    return run_steps(config, graph, STEPS, parts(graph, SIZE, kind))


@pytest.mark.parametrize("exchange", ["halo", pytest.param("broadcast", marks=pytest.mark.slow)])
def test_bound_0_is_exact(ranks, exchange, steps):
    config = _config(0.0, paradigm={"exchange": exchange}, model={"dropout": 0.5, "input_dropout": 0.2})
    assert_exact(ranks, SIZE, nasty_graph, config, 1e-10, num_parts=SIZE, steps=steps)


@pytest.mark.parametrize("kind", ["random", "empty"])
@pytest.mark.parametrize("exchange", ["halo", "broadcast"])
def test_what_is_sent_and_what_is_skipped_are_what_fresh_rows_take(ranks, exchange, kind):
    options = {"exchange": exchange}
    fresh, some = (ranks(SIZE).run(_steps, _config(bound, paradigm=options), kind) for bound in (0.0, 0.15))
    for before, after in zip(fresh, some, strict=True):
        sent, still = (sum(it.sent_bytes.get(tag, 0) for tag in ("features", "activations")) for it in (before, after))
        assert still + after.work["comm/bytes_skipped"] == sent
        assert (after.sent_bytes["sizes"], after.rounds["sizes"]) == (STEPS * LAYERS * 8 * (SIZE - 1), STEPS * LAYERS)
        assert after.rounds["features"] == (SIZE if exchange == "broadcast" else 1), "features are constant: sent once"
    assert [curve.losses[0] for curve in some] == [curve.losses[0] for curve in fresh], "all first rows are sent"
    sent, still = (sum(curve.sent_bytes["activations"] for curve in curves) for curves in (fresh, some))
    assert 0.5 * sent < still < sent, "gradients, and some rows"


def test_a_bound_that_nothing_reaches_keeps_the_first_rows_for_ever(ranks):
    """That is an age that no row reaches, also with masks of dropout that stay as they were."""
    dropout = {"dropout": 0.5, "input_dropout": 0.2}
    kept = ranks(SIZE).run(_steps, _config(MUCH, model=dropout))
    config = _config(0.0, model=dropout)
    config["paradigm"] = {"_target_": VERTEX, "dependency": "stale", "staleness": STEPS}
    old = ranks(SIZE).run(_steps, config)
    assert [curve.losses for curve in kept] == [curve.losses for curve in old]
    assert all(curve.rounds["activations"] == (LAYERS - 1) * (1 + STEPS) for curve in kept), "gradients go home"


def test_trained_features_move(ranks):
    found = []
    for bound in (1e-9, 0.0):
        config = _config(bound)
        config["feature_store"] = {"_target_": "gnnexp.feature_stores.embedding.EmbeddingOptions", "dim": 9}
        found.append(ranks(SIZE).run(_steps, config))
    (moved, fresh) = ([(curve.losses, curve.sent_bytes["features"]) for curve in curves] for curves in found)
    assert moved == fresh


def test_several_steps_in_an_epoch(ranks):
    """What is compared are steps, so links may be trained in several of them."""
    config = _config(0.0)
    config["train"]["batch_size"] = 10
    config["task"] = {"_target_": "gnnexp.tasks.link_prediction.LinkPredictionOptions"}
    assert not VertexParallel(**_options(0.5)).check(experiment_in(config))
    assert_exact(ranks, 2, sparse_links, config, 1e-10, num_parts=2, steps=8)


def _options(bound: float) -> dict[str, Any]:
    return {"dependency": "stale", "staleness_metric": "variation", "variation_bound": bound}


def test_the_plan_says_that_traffic_has_no_formula_and_what_is_kept():
    experiment, graph = experiment_in(_config(0.1, hardware={"workers": SIZE})), nasty_graph()
    plan = planned(experiment, graph)
    assert not plan.is_exact and "cannot be counted without training" in plan.approximates
    by_age = planned(experiment, graph, VertexParallel("stale", staleness=1))
    assert planned(experiment, graph, VertexParallel(**_options(0.0))).is_exact
    own = graph.num_nodes * (LAYERS - 1) * 16 * torch.float64.itemsize  # what a rank sent last
    assert plan.checkpoint_bytes == by_age.checkpoint_bytes + own


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({**_options(0.1), "dependency": "communicate"}, "staleness_metric"),
        ({**_options(-0.1)}, "variation_bound"),
        ({**_options(float("nan"))}, "variation_bound"),
        ({**_options(0.1), "staleness": 2}, "staleness"),
        ({"dependency": "stale", "variation_bound": 0.1}, "variation_bound"),
        ({**_options(0.1), "rows": "cheapest"}, "rows"),
        ({**_options(0.1), "staleness_metric": "norm"}, "staleness_metric"),
    ],
)
def test_options_that_make_no_sense(options, key):
    with pytest.raises(ConfigError) as error:
        build({"_target_": VERTEX, **options}, Paradigm, "paradigm")
    assert [problem.key.removeprefix("paradigm.") for problem in error.value.problems] == [key]


def test_sums_of_a_vertex_cut_have_no_variation():
    config = _config(0.1)
    config["partitioner"] = {"_target_": "gnnexp.partitioners.dbh.DbhPartitioner"}
    (problem,) = VertexParallel(**_options(0.1)).check(experiment_in(config))
    assert problem.key == "paradigm.staleness_metric" and "epochs" in problem.fix
