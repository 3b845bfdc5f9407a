"""The section `tune` of a sweep: ranges, choices, budgets, and every mistake at once."""

from __future__ import annotations

from typing import Any

import pytest

from gnnexp.cli.tuning.definition import Distribution, read_tuning, trial_key_problems

RANGE = {"low": 0.001, "high": 0.1, "log": True}


def keys_of(section: dict[str, Any]) -> set[str]:
    return {problem.key for problem in read_tuning(section)[1]}


def test_ranges_and_choices_are_read() -> None:
    ranges = {
        "optimizer.lr": RANGE,
        "model.hidden": {"low": 8, "high": 64},
        "sampler.fanouts": {"choices": [[5], [9]]},
        "scheduler": {"choices": [None, "cosine"]},
    }
    tuning, problems = read_tuning({"distributions": ranges, "trials": 3})
    assert problems == []
    assert tuning.distributions == (
        Distribution("optimizer.lr", 0.001, 0.1, log=True),
        Distribution("model.hidden", 8, 64),
        Distribution("sampler.fanouts", choices=("[5]", "[9]")),
        Distribution("scheduler", choices=("null", "cosine")),
    )
    assert [one.is_whole for one in tuning.distributions[:2]] == [False, True]
    assert tuning.budget == "3 trials" and tuning.objective == "val_metric"


def test_a_number_without_a_dot_is_a_number_although_yaml_reads_a_text() -> None:
    tuning, problems = read_tuning({"distributions": {"optimizer.lr": {"low": "1e-4", "high": "1e-1"}}, "trials": 1})
    assert problems == [] and (tuning.distributions[0].low, tuning.distributions[0].high) == (0.0001, 0.1)


def test_a_budget_may_be_trials_or_seconds_or_both() -> None:
    both = read_tuning({"distributions": {"a": RANGE}, "trials": 12, "seconds": 60})[0]
    assert both.budget == "12 trials or 60 s of training"
    assert read_tuning({"distributions": {"a": RANGE}, "trials": 1})[0].budget == "1 trial"
    assert read_tuning({"distributions": {"a": RANGE}, "seconds": 60})[0].budget == "60 s of training"


def test_every_mistake_is_reported_at_once() -> None:
    section = {
        "distributions": {
            "a": {"low": 2, "high": 1},
            "b": {"low": 0, "high": 1, "log": True},
            "c": {"choices": []},
            "d": {"choices": [1, 1]},
            "e": {"low": 1},
            "f": 3,
            "g": {"lo": 1, "high": 2},
            "h": {"low": "x", "high": 2},
            "i": {"choices": [1], "log": True},
            "good": RANGE,
            "j": {"low": 0, "high": float("inf")},
            "k": {"low": True, "high": 2},
        },
        "objective": "accuracy",
        "seed": -1,
        "batch": 0,
        "prunner": "median",
    }
    assert keys_of(section) == {
        *(f"tune.distributions.{key}" for key in "abcdefhijk"),
        "tune.distributions.g.lo",
        "tune.objective",
        "tune.seed",
        "tune.batch",
        "tune.prunner",
        "tune.trials",
    }


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"trials": 0}, "tune.trials"),
        ({"trials": 10**9}, "tune.trials"),
        ({"seconds": 0}, "tune.seconds"),
        ({"seconds": float("nan")}, "tune.seconds"),
        ({"trials": 1, "objective": "time_to_target"}, "tune.target"),
        ({"trials": 1, "target": 0.9}, "tune.target"),
        ({"trials": "many"}, "tune.trials"),
        ({}, "tune.trials"),
        ({"trials": 1, "objective": "time_to_target", "target": float("nan")}, "tune.target"),
    ],
)
def test_a_wrong_budget_or_target_is_a_problem(section: dict[str, Any], key: str) -> None:
    assert keys_of({"distributions": {"a": RANGE}, **section}) == {key}


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"pruner": "hyperband"}, "tune.pruner"),
        ({"pruner": "median", "warmup": -1}, "tune.warmup"),
        ({"warmup": 2}, "tune.warmup"),
        ({"pruner": "median", "objective": "time_to_target", "target": 0.9}, "tune.pruner"),
    ],
)
def test_a_wrong_pruner_is_a_problem(section: dict[str, Any], key: str) -> None:
    assert keys_of({"distributions": {"a": RANGE}, "trials": 1, **section}) == {key}
    assert keys_of({"distributions": {"a": RANGE}, "trials": 1, "pruner": "median", "warmup": 0}) == set()


def test_a_tuning_without_distributions_is_a_problem() -> None:
    assert keys_of({"trials": 1}) == {"tune.distributions"}
    assert keys_of({"trials": 1, "distributions": {}}) == {"tune.distributions"}
    assert keys_of({"trials": 1, "distributions": [1]}) == {"tune.distributions"}


def test_a_key_that_is_tuned_and_set_is_a_problem() -> None:
    tuning, _ = read_tuning({"distributions": {"optimizer.lr": RANGE}, "trials": 1})
    cases = [("seed=0", "optimizer.lr=0.1"), ("seed=1", "optimizer.lr=0.1"), ("optimizer=sgd",)]
    assert [problem.key for problem in trial_key_problems(tuning, cases)] == ["optimizer.lr=0.1"]
