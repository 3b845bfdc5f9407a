"""Data parallelism is exact: the same losses and gradients as one worker, whatever the ranks; every byte counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from combinations import combinations

from gnnexp.testing.exactness import ranks_steps
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import (
    MODELS,
    Curve,
    global_losses,
    run_steps,
    small_config,
    worst_gradient_error,
    worst_loss_error,
)

WHOLE = 20
BOUNDS = {"float64": 1e-10, "float32": 1e-5}


def _steps(config: Mapping[str, Any], steps: int) -> Curve:
    return run_steps(config, nasty_graph(), steps)


def _compare(ranks, size: int, config: dict[str, Any], bound: float, steps: int) -> None:
    reference = run_steps(config, nasty_graph(), steps)
    curves = ranks(size).run(_steps, config, steps)
    expected, found = global_losses([reference]), global_losses(curves)
    worst = worst_loss_error(found, expected)
    assert worst <= bound
    assert max(worst_gradient_error(curve, reference) for curve in curves) <= bound


@pytest.mark.parametrize(
    ("size", "model", "dtype"),
    combinations(
        [2, 3, 4],
        MODELS,
        BOUNDS,
        quick=lambda *case: (
            case in ((3, "gcn", "float32"), (3, "gin", "float32"), (4, "sage", "float64"), (4, "gat", "float64"))
        ),
    ),
)
def test_same_losses_and_gradients_as_one_worker(ranks, size, model, dtype, steps):
    steps = WHOLE if (model, dtype) == ("gat", "float64") else steps
    _compare(ranks, size, small_config(MODELS[model], train={"dtype": dtype}), BOUNDS[dtype], steps)


@pytest.mark.parametrize("model", combinations(MODELS, quick=lambda model: model in ("gin", "gat")))
def test_residual_and_norm(ranks, model, steps):
    config = small_config(
        {**MODELS[model], "residual": True, "norm": True, "layers": 3}, sampler={"fanouts": [3, 3, 2]}
    )
    _compare(ranks, 3, config, 1e-10, steps)


@pytest.mark.parametrize("overlap", [True, False])
def test_full_neighbours_and_overlap(ranks, overlap, steps):
    sampler = {"_target_": "gnnexp.samplers.full.FullOptions", "key": "global"}
    config = small_config(MODELS["gat"], train={"overlap": overlap, "batch_size": None})
    config["sampler"] = sampler
    _compare(ranks, 2, config, 1e-10, steps)


def test_a_batch_smaller_than_the_ranks_leaves_some_without_targets(ranks, steps):
    config = small_config(MODELS["sage"], train={"batch_size": 9})  # 30 targets: the last batch has 3
    _compare(ranks, 4, config, 1e-10, steps)


def test_micro_key_draws_independently(ranks):
    config = small_config(MODELS["sage"], sampler={"key": "micro", "fanouts": [1, 1]})
    reference = run_steps(config, nasty_graph(), 3)
    curves = ranks(2).run(_steps, config, 3)
    assert abs(global_losses(curves)[0] - global_losses([reference])[0]) > 1e-6


def test_micro_batches_draw_the_same_wherever_the_topology_is(ranks):
    """A vertex of another part is drawn there with the key of the rank that asks."""
    config = small_config(MODELS["sage"], sampler={"key": "micro", "fanouts": [2, 2]}, paradigm={"assign": "owner"})
    whole, parted = (
        ranks(3).run(
            ranks_steps, nasty_graph, {**config, "sampler": {**config["sampler"], "topology": topology}}, 8, 3, "random"
        )
        for topology in ("replicated", "partitioned")
    )
    assert [curve.losses for curve in parted] == [curve.losses for curve in whole]
    assert all(curve.rounds["frontier"] for curve in parted)


def test_dropout_matters_to_the_comparison(ranks):
    """The control: with another seed the curves must differ, or the comparison could not fail."""
    config = small_config(MODELS["sage"])
    other = ranks(2).run(_steps, {**config, "seed": 4}, 3)
    assert abs(global_losses(other)[0] - global_losses([run_steps(config, nasty_graph(), 3)])[0]) > 1e-6


@pytest.mark.parametrize("size", [2, 3, 4])
def test_bytes_and_rounds_equal_their_formulas(ranks, size):
    config = small_config(MODELS["gcn"], train={"dtype": "float32"})
    curves = ranks(size).run(_steps, config, 5)
    parameters = (13 * 16 + 16) + (16 * 4 + 4)
    assert sum(curve.sent_bytes["gradients"] for curve in curves) == 5 * 2 * (size - 1) * parameters * 4
    assert all(curve.rounds == {"gradients": 5} for curve in curves)
