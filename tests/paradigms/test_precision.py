"""`train.matmul=bf16`: every exact way trains like one worker with the same rounding of factors.

Forward, a way gives the serial loss if it multiplies the same rows. Some ways project rows before they sum them, where
one worker sums first, or the reverse: then other numbers are rounded. Backward, a rank rounds its own part of a row's
gradient. So gradients agree as well as bfloat16 numbers do (8 bits), and not better.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from combinations import combinations

from gnnexp.experiment.build import experiment_of
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, Curve, global_losses, run_steps, worst_loss_error
from gnnexp.testing.ways import SLICED, WAYS, config_in, placed

UNIT = 2**-8  # half the distance between bfloat16 numbers, relative
# Ways whose rows are those of one worker, for layers without attention.
SAME_ROWS = ("data", "split", "communicate", "cache", "hybrid", "chunks", "offload_raw", "offload")


def _steps(config: Mapping[str, Any], way: str, size: int) -> Curve:
    graph = nasty_graph()
    return run_steps(config, graph, 2, placed(way, graph, size))


def _config(way: str, model: str, workers: int, matmul: str) -> dict[str, Any]:
    return config_in(way, MODELS[model], train={"dtype": "float32", "matmul": matmul}, hardware={"workers": workers})


def _distance(found: Curve, expected: Curve) -> float:
    """Norm of the difference of all gradients, relative to their norm."""
    pairs = [(found.gradients[name], gradient) for name, gradient in expected.gradients.items()]
    return float(
        torch.cat([(a - b).flatten() for a, b in pairs]).norm() / torch.cat([b.flatten() for _, b in pairs]).norm()
    )


@pytest.mark.parametrize(
    ("way", "model"),
    combinations(
        WAYS,
        MODELS,
        quick=lambda way, model: (
            model == "sage" or (model, way) in {("gat", "split"), ("gat", "vertex_cut"), ("gin", "coupled")}
        ),
    ),
)
def test_a_way_rounds_as_one_worker_does(ranks, way, model):
    serial = {
        **_config("data", model, 1, "bf16"),
        **{group: _config(way, model, 1, "bf16")[group] for group in ("sampler", "train")},
    }
    reference = _steps(serial, "data", 1)
    curves = ranks(2).run(_steps, _config(way, model, 2, "bf16"), way, 2)
    error = worst_loss_error(global_losses(curves)[:1], global_losses([reference])[:1])
    assert error <= (1e-6 if way in SAME_ROWS and model != "gat" else UNIT)
    assert worst_loss_error(global_losses(curves), global_losses([reference])) <= 4 * UNIT
    if way not in SLICED:
        assert max(_distance(curve, reference) for curve in curves) <= 4 * UNIT


@pytest.mark.parametrize("way", ["data", "split", "aggregates", "communicate", "vertex_cut", "coupled", "offload"])
def test_rounding_changes_the_loss_of_every_paradigm(ranks, way):
    """The control: the option reaches every trainer."""
    plain, rounded = (ranks(2).run(_steps, _config(way, "sage", 2, matmul), way, 2) for matmul in ("float32", "bf16"))
    pairs = itertools.pairwise(map(global_losses, (plain, rounded)))
    assert all(1e-6 < worst_loss_error(a[:1], b[:1]) < 4 * UNIT for a, b in pairs)


@pytest.mark.parametrize(
    ("model", "typed"),
    [
        ({"_target_": "gnnexp.models.mlp.MLPOptions"}, False),
        ({"_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"}, False),
        ({"_target_": "gnnexp.models.rgcn.RGCNOptions"}, True),
        ({"_target_": "gnnexp.models.rgcn.RGCNOptions", "decomposition": "block", "blocks": 3}, True),
    ],
    ids=str,
)
def test_other_models_round_too_and_train(model, typed):
    graph = nasty_graph(typed=typed)
    plain, rounded = (
        run_steps(
            config_in("communicate", model, train={"dtype": "float32", "matmul": matmul}),
            graph,
            2,
            placed("communicate", graph, 1),
        )
        for matmul in ("float32", "bf16")
    )
    assert 1e-6 < worst_loss_error(global_losses([plain]), global_losses([rounded])) < 4 * UNIT
    # Rounding may flip the sign of a unit before its ReLU: 60 vertices are few, and one flip changes much.
    assert 1e-4 < _distance(rounded, plain) < 32 * UNIT


# --- train.activations=bf16 -----------------------------------------------------------------------------------------
HALVED = ("data", "split", "communicate", "cache")


def _halved(way: str, model: str, workers: int, activations: str = "bf16", **more: Any) -> dict[str, Any]:
    return config_in(
        way,
        {**MODELS[model], **more},
        train={"dtype": "float32", "activations": activations},
        hardware={"workers": workers},
    )


@pytest.mark.parametrize(
    ("way", "model"),
    combinations(
        HALVED,
        MODELS,
        quick=lambda way, model: (
            model == "sage" or (model, way) in {("gat", "split"), ("gin", "communicate"), ("gcn", "communicate")}
        ),
    ),
)
def test_rows_between_layers_are_rounded_once_wherever_they_are(ranks, way, model):
    """Rows are rounded by their owner, and exchanged without a further loss: forward is that of one worker."""
    serial = {**_halved("data", model, 1), **{group: _halved(way, model, 1)[group] for group in ("sampler", "train")}}
    reference = _steps(serial, "data", 1)
    curves = ranks(2).run(_steps, _halved(way, model, 2), way, 2)
    assert worst_loss_error(global_losses(curves)[:1], global_losses([reference])[:1]) <= 1e-6
    assert worst_loss_error(global_losses(curves), global_losses([reference])) <= 4 * UNIT
    assert max(_distance(curve, reference) for curve in curves) <= UNIT
    plain = _steps({**serial, "train": {**serial["train"], "activations": "float32"}}, "data", 1)
    assert 1e-7 < worst_loss_error(global_losses([plain])[:1], global_losses([reference])[:1]) < 4 * UNIT


@pytest.mark.parametrize(
    ("way", "more"),
    [("split", {}), ("communicate", {}), ("communicate", {"dependency": "communicate", "exchange": "broadcast"})],
)
def test_exchanges_of_rows_between_layers_have_half_of_the_bytes(ranks, way, more):
    """Everything else has the same bytes and rounds."""
    half, plain = (
        ranks(2).run(
            _steps,
            {**(config := _halved(way, "sage", 2, activations, layers=2)), "paradigm": {**config["paradigm"], **more}},
            way,
            2,
        )
        for activations in ("bf16", "float32")
    )
    for one, other in zip(half, plain, strict=True):
        assert one.rounds == other.rounds and one.sent_bytes["activations"] > 0
        assert one.sent_bytes == {**other.sent_bytes, "activations": other.sent_bytes["activations"] // 2}
        assert other.sent_bytes["activations"] % 4 == 0


@pytest.mark.parametrize("way", [way for way in WAYS if way not in (*HALVED, "chunks")])
def test_ways_that_exchange_other_values_refuse_rows_in_bfloat16(way):
    experiment = experiment_of(_halved(way, "sage", 2))
    (problem,) = experiment.model.check(experiment.setting)
    assert problem.key == "train.activations" and problem.allowed
