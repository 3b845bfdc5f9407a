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
    return float(torch.cat([(a - b).flatten() for a, b in pairs]).norm() / torch.cat([b.flatten() for _, b in pairs])
                 .norm())


@pytest.mark.parametrize(("way", "model"), combinations(WAYS, MODELS, quick=lambda way, model: (
    model == "sage" or (model, way) in {("gat", "split"), ("gat", "vertex_cut"), ("gin", "coupled")})))
def test_a_way_rounds_as_one_worker_does(ranks, way, model):
    serial = {**_config("data", model, 1, "bf16"), **{group: _config(way, model, 1, "bf16")[group]
                                                      for group in ("sampler", "train")}}
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
