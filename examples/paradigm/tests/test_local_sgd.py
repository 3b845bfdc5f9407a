"""Local SGD says what it approximates, is exact where it says so, and sends the bytes of its formula."""

from __future__ import annotations

import pytest
from my_paradigms.local_sgd import LocalSGD

from gnnexp.components.facts import GraphFacts
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import experiment_of
from gnnexp.testing.exactness import ranks_steps
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, Curve, global_losses, optimizer, run_steps, small_config


def config_of(sync_every: int, **train):
    config = small_config(
        {**MODELS["sage"]},
        train=train,
        paradigm={"_target_": "my_paradigms.local_sgd.LocalSGD", "sync_every": sync_every},
    )
    return {**config, "optimizer": optimizer("SGD", lr=0.1)}


def curves_of(ranks, size: int, config, steps: int) -> list[Curve]:
    return ranks(size).run(ranks_steps, nasty_graph, config, steps, None, "random")


def difference(curves: list[Curve], config, steps: int) -> float:
    """Largest relative difference between the losses of these ranks and of one worker, with SGD."""
    serial = {**config, "paradigm": small_config({})["paradigm"]}
    expected = global_losses([run_steps(serial, nasty_graph(), steps)])
    return max(abs(a - b) / abs(b) for a, b in zip(global_losses(curves), expected, strict=True))


def approximated(config, size: int) -> str:
    experiment = experiment_of({**config, "hardware": {**config["hardware"], "workers": size}})
    return experiment.paradigm.plan(experiment, GraphFacts.of(nasty_graph())).approximates


@pytest.mark.parametrize(("size", "sync_every"), [(1, 5), (2, 1), (3, 1)])
def test_exact_on_one_rank_and_where_ranks_meet_in_every_step(ranks, size, sync_every):
    config = config_of(sync_every)
    assert difference(curves_of(ranks, size, config, 12), config, 12) < 1e-10


def test_apart_it_is_another_algorithm_and_says_so(ranks):
    config = config_of(4)
    assert difference(curves_of(ranks, 2, config, 12), config, 12) > 1e-6
    assert "4 steps" in approximated(config, 2)
    assert approximated(config_of(1), 2) == approximated(config, 1) == ""


@pytest.mark.parametrize(("size", "sync_every", "averages"), [(2, 1, 4 + 4), (3, 3, 2 + 2), (2, 5, 1 + 1)])
def test_bytes_and_rounds_are_those_of_the_averages(ranks, size, sync_every, averages):
    """Two epochs of 4 steps: one average every `sync_every` steps, and one at the end of an epoch if it needs it."""
    config = config_of(sync_every)
    curves = curves_of(ranks, size, config, 9)  # the first step of a third epoch shows that the second is over
    found = averages + (sync_every == 1)
    parameters = sum(gradient.numel() for gradient in curves[0].gradients.values())
    assert [curve.rounds["parameters"] for curve in curves] == [found] * size
    assert sum(curve.sent_bytes["parameters"] for curve in curves) == found * 2 * (size - 1) * parameters * 8
    assert all("gradients" not in curve.rounds for curve in curves)


def test_the_number_of_steps_is_the_one_that_the_formula_takes():
    assert nasty_graph().splits.train.numel() in range(25, 33), "4 steps of 8 targets"


def test_mistakes_are_told():
    with pytest.raises(ConfigError, match="at least 1"):
        LocalSGD(sync_every=0)
    (problem,) = LocalSGD().check(experiment_of({**config_of(2), "optimizer": optimizer("Adam")}))
    assert problem.key == "optimizer" and "sgd" in problem.fix
    store = {"feature_store": {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"}}
    assert "feature_store" in [problem.key for problem in LocalSGD().check(experiment_of({**config_of(2), **store}))]
