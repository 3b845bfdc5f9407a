"""`late=0` equals NeutronStar to the bit; `late=1` trains with rows of the epoch before, and the plan says so."""

from __future__ import annotations

import pytest

from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build, experiment_of
from gnnexp.paradigms.base import Paradigm
from gnnexp.testing.exactness import ranks_steps
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, Curve, global_losses, small_config

PIPEGCN = {"_target_": "my_paradigms.pipegcn.PipeGCN"}
NEUTRONSTAR = {"_target_": "gnnexp.paradigms.vertex_parallel.VertexParallel", "dependency": "communicate"}
LATE = {"_target_": "gnnexp.paradigms.vertex_parallel.VertexParallel", "delay": 1}


def config_of(paradigm, model: str = "sage", size: int = 3):
    config = small_config(MODELS[model], train={"batch_size": None}, hardware={"workers": size})
    return {
        **config,
        "paradigm": paradigm,
        "sampler": {"_target_": "gnnexp.samplers.full.FullOptions", "key": "global"},
    }


def curves_of(ranks, size: int, config, steps: int = 8) -> list[Curve]:
    return ranks(size).run(ranks_steps, nasty_graph, config, steps, size, "skewed")


QUICK = {(1, "gin"), (2, "gcn"), (3, "sage"), (3, "gat")}  # the others take the same path


@pytest.mark.parametrize(
    ("size", "model"),
    [
        pytest.param(size, model, marks=() if (size, model) in QUICK else pytest.mark.slow)
        for size in (1, 2, 3)
        for model in MODELS
    ],
)
def test_without_delay_it_is_neutronstar_to_the_bit(ranks, model, size):
    found, expected = (
        curves_of(ranks, size, config_of(paradigm, model, size)) for paradigm in ({**PIPEGCN, "late": 0}, NEUTRONSTAR)
    )
    for one, other in zip(found, expected, strict=True):
        assert (one.losses, one.sent_bytes, one.rounds, one.work) == (
            other.losses,
            other.sent_bytes,
            other.rounds,
            other.work,
        )
        assert all((one.gradients[name] == other.gradients[name]).all() for name in other.gradients)


@pytest.mark.parametrize("model", [pytest.param("gcn", marks=pytest.mark.slow), "gat"])
def test_an_epoch_late_it_trains_and_sends_as_much(ranks, model):
    config = config_of(PIPEGCN, model)
    config["optimizer"] |= {"lr": 0.02}
    config["model"] |= {"dropout": 0.0, "input_dropout": 0.0}
    curves = curves_of(ranks, 3, config, 30)
    losses = global_losses(curves)
    assert losses[-1] < 0.8 * losses[0]
    exact = curves_of(ranks, 3, {**config, "paradigm": {**PIPEGCN, "late": 0}}, 30)
    assert losses != global_losses(exact)
    assert [(one.sent_bytes, one.rounds) for one in curves] == [(one.sent_bytes, one.rounds) for one in exact]


def test_waiting_for_late_rows_gives_the_same(ranks):
    """`paradigm.delay` makes the same exchanges, but the loop waits for each of them."""
    found, expected = (global_losses(curves_of(ranks, 3, config_of(paradigm))) for paradigm in (PIPEGCN, LATE))
    assert found == expected


def test_mistakes_are_told():
    with pytest.raises(ConfigError, match="0 or more epochs"):
        build({**PIPEGCN, "late": -1}, Paradigm)
    config = config_of(PIPEGCN)
    config["train"]["batch_size"] = 8
    problems = experiment_of(config).paradigm.check(experiment_of(config))
    assert {problem.key for problem in problems} == {"train.batch_size", "paradigm.late"}
