"""A first layer that runs some steps ahead (P3's pipeline): exact to a simulation, with the bytes of push-pull."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest
import torch
from combinations import combinations
from delayed_reference import Epochs, Step, epochs_of_rank, reference
from experiments import assembled, estimated, experiment_in, planned
from sparse_graphs import mostly_zero, sparse_links
from stopping import attempt, curve, undisturbed

from gnnexp.comm import owners
from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.paradigms.base import Paradigm
from gnnexp.testing.exactness import joined
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, Curve, optimizer, small_config, worst_gradient_error
from gnnexp.training.assemble import Artifacts
from gnnexp.training.train import probe_memory

PUSH_PULL = {"_target_": "gnnexp.paradigms.push_pull.PushPull"}
SLICED = {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"}
LINKS = {"_target_": "gnnexp.tasks.link_prediction.LinkPredictionOptions"}
SLICED_ROWS = {"_target_": "gnnexp.feature_stores.embedding.SlicedEmbeddingOptions", "dim": 7}
WAIT_S = 60.0  # of a loop that waits where it must not


def config_of(delay: int, model: str = "sage", pull: str = "auto", **changes: Any) -> dict[str, Any]:
    """Epochs have four batches of 8, 8, 8 and 6 targets."""
    options = {**MODELS[model], **changes.pop("of_model", {})}
    config = small_config(options, paradigm={**PUSH_PULL, "pull": pull, "delay": delay}, **changes)
    return {**config, "feature_store": SLICED}


def assert_equal_to_reference(
    found: list[Epochs], expected: list[Step], bound: float = 1e-10, *, first_step: int = 0
) -> None:
    """Of every step: the global loss, and every gradient."""
    assert len(found[0].steps) == len(expected) > first_step
    for number, one in enumerate(expected[first_step:], first_step):
        of_ranks = [rank.steps[number] for rank in found]
        assert sum(step.targets for step in of_ranks) == one.targets
        assert sum(step.loss for step in of_ranks) == pytest.approx(one.loss, rel=bound, abs=0)
        curves = [Curve([], step.gradients, {}, {}, {}) for step in of_ranks]
        whole = Curve([], one.gradients, {}, {}, {})
        assert worst_gradient_error(joined(curves, whole), whole) <= bound


def check(ranks: Any, size: int, config: dict[str, Any], make: Callable[[], Graph] = nasty_graph) -> list[Epochs]:
    found = ranks(size).run(epochs_of_rank, config, make, 2)
    assert_equal_to_reference(found, reference(config, make(), config["paradigm"]["delay"], 2))
    return found


# --- the definition --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("size", "model", "pull", "delay", "overlap"),
    combinations(
        [1, 2, 3, 4],
        MODELS,
        ["projections", "aggregates"],
        [1, 2, 9],  # the last one is more than the batches of an epoch
        [False, True],
        quick=lambda *case: (
            case
            in (
                (4, "gat", "aggregates", 2, True),
                (3, "gat", "projections", 1, True),
                (2, "sage", "aggregates", 9, True),
                (2, "gin", "projections", 2, False),
                (1, "gcn", "aggregates", 2, True),
            )
        ),
    ),
)
def test_losses_and_gradients_are_those_of_one_worker_with_old_copies(ranks, size, model, pull, delay, overlap):
    """With dropout of features and of attention."""
    check(ranks, size, config_of(delay, model, pull, train={"overlap": overlap}))


@pytest.mark.parametrize(
    ("model", "pull", "layers"),
    combinations(
        MODELS,
        ["projections", "aggregates"],
        [1, 3],
        quick=lambda *case: case in (("gat", "aggregates", 3), ("gin", "projections", 3), ("sage", "projections", 1)),
    ),
)
def test_normalisation_skip_connections_and_other_depths(ranks, model, pull, layers):
    changes = {"residual": True, "norm": True, "layers": layers}
    config = config_of(
        2, model, pull, of_model=changes, sampler={"fanouts": [3, 3, 2][:layers]}, train={"overlap": True}
    )
    check(ranks, 3, config)


@pytest.mark.parametrize("model", [pytest.param(m, marks=() if m == "sage" else pytest.mark.slow) for m in MODELS])
def test_sparse_features(ranks, model):
    check(ranks, 3, config_of(2, model, train={"overlap": True}), mostly_zero)


@pytest.mark.parametrize("model", [pytest.param(m, marks=() if m == "gcn" else pytest.mark.slow) for m in MODELS])
def test_ranks_without_targets_and_without_columns(ranks, model):
    """Batches of 3 and 3 columns for 4 ranks: one rank has no target, and one has no column."""
    config = config_of(2, model, train={"batch_size": 3, "overlap": True})
    found = check(ranks, 4, config, narrow_graph)
    assert any(not step.targets for rank in found for step in rank.steps)


def narrow_graph() -> Graph:
    return nasty_graph(num_features=3)


@pytest.mark.parametrize(
    "optimizer_", [optimizer("SGD", momentum=0.9), pytest.param(optimizer("RMSprop"), marks=pytest.mark.slow)]
)
def test_other_optimizers(ranks, optimizer_):
    check(ranks, 2, {**config_of(1, train={"overlap": True}), "optimizer": optimizer_})


def test_links(ranks):
    check(ranks, 3, {**config_of(2, train={"overlap": True}), "task": LINKS}, sparse_links)


def test_without_learning_a_delay_changes_nothing(ranks):
    """Each rank samples for itself, and other ranks' shares have other masks. What is equal is equal bit for bit."""

    def epochs(delay: int) -> list[Epochs]:
        config = config_of(delay, "gat", "aggregates", train={"overlap": True}, sampler={"key": "micro"})
        return ranks(3).run(epochs_of_rank, {**config, "optimizer": optimizer("SGD", lr=0.0)}, nasty_graph, 2)

    exact, late = epochs(0), epochs(1)
    for before, after in zip(exact, late, strict=True):
        for one, other in zip(before.steps, after.steps, strict=True):
            assert one.loss == other.loss and one.gradients.keys() == other.gradients.keys()
            assert all(torch.equal(gradient, other.gradients[name]) for name, gradient in one.gradients.items())


@pytest.mark.parametrize(
    "control",
    [
        {"too_new": True},
        {"fresh": ["bias"]},
        {"fresh": ["norm.weight", "norm.bias"]},
        {"fresh": ["src_attention", "dst_attention"]},
    ],
)
def test_a_simulation_of_another_algorithm_is_told_apart(control):
    """All parameters of the first layer are old, also those that each rank has whole."""
    config = config_of(2, "gat", of_model={"norm": True})
    expected, other = (reference(config, nasty_graph(), 2, 2, **of) for of in ({}, control))
    assert max(abs(a.loss / b.loss - 1) for a, b in zip(other, expected, strict=True)) > 1e-6


def test_more_steps_than_an_epoch_has_are_all_that_it_has(ranks):
    of_all, of_more = (ranks(2).run(epochs_of_rank, config_of(delay), nasty_graph, 2) for delay in (3, 50))
    assert [[step.loss for step in rank.steps] for rank in of_all] == [
        [step.loss for step in rank.steps] for rank in of_more
    ]


# --- overlap and traffic ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "pull"),
    combinations(MODELS, ["projections", "aggregates"], quick=lambda *case: case == ("gat", "aggregates")),
)
def test_a_thread_changes_no_bit_and_no_byte(ranks, model, pull):
    alone, aside, exact = (
        ranks(3).run(epochs_of_rank, config_of(delay, model, pull, train={"overlap": overlap}), nasty_graph, 2)
        for delay, overlap in ((2, False), (2, True), (0, True))
    )
    for one, other, plain in zip(alone, aside, exact, strict=True):
        assert [step.loss for step in one.steps] == [step.loss for step in other.steps]
        for before, after in zip(one.steps, other.steps, strict=True):
            assert all(torch.equal(gradient, after.gradients[name]) for name, gradient in before.gradients.items())
        assert one.sent_bytes == other.sent_bytes == plain.sent_bytes
        assert one.rounds == other.rounds == plain.rounds
    assert alone[0].facts["first_layers"] == "pulled in the loop"
    assert aside[0].facts["first_layers"] == "pulled in the background"
    assert "first_layers" not in exact[0].facts


def losses_while_sums_wait(config: dict[str, Any]) -> tuple[int, dict[str, float]]:
    """Runs on a rank: the sum for batch n waits until the loss of batch n - delay is known, and for nothing later."""
    delay, total = config["paradigm"]["delay"], owners._total
    known, started = [Event() for _ in range(4)], 0

    def late_total(*args: Any) -> Any:
        nonlocal started
        number, started = started, started + 1
        assert number == 0 or known[max(0, number - delay)].wait(WAIT_S), "the loop waits for a sum of a later batch"
        return total(*args)

    with tempfile.TemporaryDirectory() as folder, patch.object(owners, "_total", late_total):
        job, trainer = assembled(config, Artifacts(nasty_graph()), Path(folder), read_environment())
        job.timer.start_epoch()
        steps, task_loss = 0, trainer.task_loss

        def loss(*args: Any) -> Any:
            nonlocal steps
            result = task_loss(*args)
            known[steps].set()
            steps += 1
            return result

        trainer.task_loss = loss
        for batch in trainer.batches(0):
            trainer.forward_backward(batch)
            trainer.synchronize()
            trainer.clear_gradients()
        times = job.timer.end_epoch()
        job.comm.release()
    return started, dict(times.hidden)


def test_a_later_first_layer_is_pulled_while_a_batch_trains(ranks):
    found = ranks(2).run(losses_while_sums_wait, config_of(2, pull="projections", train={"overlap": True}))
    for sums, hidden in found:
        assert sums == 4
        assert hidden["comm"] > 0


def pending_after_closing(config: dict[str, Any]) -> list[bool]:
    """Runs on a rank: an epoch that the loop leaves early."""
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(nasty_graph()), Path(folder), read_environment())
        left = []
        for _ in range(2):
            batches = trainer.batches(0)
            trainer.forward_backward(next(batches))
            batches.close()
            left.append(bool(trainer._started))
        job.comm.release()
    return left


def test_nothing_is_under_way_after_an_epoch_that_is_left_early(ranks):
    assert ranks(2).run(pending_after_closing, config_of(2, train={"overlap": True})) == [[False] * 2] * 2


# --- stops -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("overlap", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_stopped_run_ends_its_epoch_and_goes_on_bit_for_bit(ranks, overlap):
    config = config_of(2, train={"epochs": 3, "checkpoint_every": 1, "overlap": overlap})
    expected, ended = undisturbed(ranks, 2, config)
    with tempfile.TemporaryDirectory() as folder:
        first = ranks(2).run(attempt, config, folder, 5)
        assert [end["steps"] for end in first] == [8, 8] and first[1]["stopped_by"] == "SIGTERM"
        second = ranks(2).run(attempt, config, folder, None)
        assert curve(folder) == expected
    for before, after in zip(ended, second, strict=True):
        assert all(torch.equal(before["state"][key], after["state"][key]) for key in before["state"])


# --- what is said ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("delay", [-1, 1.5, "two", None, True])
def test_a_delay_is_a_number_of_steps(delay):
    with pytest.raises(ConfigError, match="delay"):
        build({**PUSH_PULL, "delay": delay}, Paradigm)


def test_trained_rows_are_refused():
    problems = experiment_in({"paradigm": {**PUSH_PULL, "delay": 1}, "feature_store": SLICED_ROWS})
    (problem,) = problems.paradigm.check(problems)
    assert problem.key == "paradigm.delay" and "trains rows" in problem.allowed and "delay=0" in problem.fix
    exact = experiment_in({"paradigm": PUSH_PULL, "feature_store": SLICED_ROWS})
    assert not exact.paradigm.check(exact)


@pytest.mark.parametrize(
    ("delay", "train", "ahead"),
    [
        (0, {}, 0),
        (2, {}, 2),
        (9, {}, 3),
        (2, {"batch_size": None}, 0),
        (1, {"batch_size": 30}, 0),
        (3, {"steps_per_epoch": 2}, 1),
    ],
)
def test_a_run_is_labelled_if_weights_are_old(delay, train, ahead):
    config = config_of(delay, train=train)
    plan = planned(experiment_in(config), nasty_graph())
    assert plan.approximates == (f"the first layer's weights miss up to {ahead} updates" if ahead else "")
    assert [need.what for need in plan.needs] == [f"{ahead} first layers ahead, with their batches"][: bool(ahead)]


def measured(config: dict[str, Any]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        job, _ = assembled(config, Artifacts(wide_graph()), Path(folder), read_environment())
        found = probe_memory(job)["intermediate_bytes"]
        job.comm.release()
    return found


def wide_graph() -> Graph:
    return nasty_graph(4000, 20000, 64)


@pytest.mark.parametrize(
    ("model", "pull"),
    combinations(MODELS, ["projections", "aggregates"], quick=lambda *case: case == ("sage", "aggregates")),
)
def test_the_estimate_has_what_a_step_holds_more(ranks, model, pull):
    def config(delay: int) -> dict[str, Any]:
        return config_of(delay, model, pull, train={"batch_size": 64}, hardware={"workers": 2})

    estimates = [estimated(config(delay), wide_graph()).total("device") for delay in (0, 2)]
    held = [max(ranks(2).run(measured, config(delay))) for delay in (0, 2)]
    assert 0 < held[1] - held[0] <= estimates[1] - estimates[0]
