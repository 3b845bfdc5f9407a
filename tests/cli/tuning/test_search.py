"""The search of a system depends on its seed and on the values of its trials, and on nothing else."""

from __future__ import annotations

import importlib.metadata
import inspect
import math

import pytest

from gnnexp.cli.tuning.chooser import OPTIONS
from gnnexp.cli.tuning.definition import Tuning, read_tuning
from gnnexp.cli.tuning.search import ProposedTrial, Search

RANGES = {
    "optimizer.lr": {"low": 0.0001, "high": 0.1, "log": True},
    "model.hidden": {"low": 8, "high": 64},
    "sampler.fanouts": {"choices": [[5], [10]]},
}

KNOWN = [
    "0.004430 48",
    "0.001866 44",
    "0.077802 29",
    "0.005060 60",
    "0.000115 55",
    "0.086269 53",
    "0.000226 44",
    "0.003677 31",
    "0.000659 14",
    "0.014728 63",
]


def tuning(**more: object) -> Tuning:
    found, problems = read_tuning({"distributions": RANGES, "trials": 12, **more})
    assert problems == []
    return found


def value_of(asked: ProposedTrial) -> float:
    return -abs(math.log10(float(asked.values["optimizer.lr"])) + 2)


def searched(options: Tuning, count: int, batch: int = 4) -> list[dict[str, str]]:
    search, found = Search(options), list[dict[str, str]]()
    while len(found) < count:
        asked = [search.ask() for _ in range(min(batch, count - len(found)))]
        for one in asked:
            search.tell(one, None if one.number == 2 else value_of(one))
        found += [one.values for one in asked]
    return found


def test_the_same_values_give_the_same_trials() -> None:
    assert searched(tuning(), 12) == searched(tuning(), 12)
    assert searched(tuning(), 12) != searched(tuning(seed=1), 12)


def test_more_trials_begin_with_the_same_ones() -> None:
    assert searched(tuning(), 16)[:8] == searched(tuning(), 8)


def test_a_pruned_trial_is_told_with_its_metrics() -> None:
    search = Search(tuning())
    first, second = search.ask(), search.ask()
    search.tell(first, None, (math.nan, 0.4, 0.5))
    search.tell(second, None)
    told = first.trial.study.trials
    assert [trial.state.name for trial in told] == ["PRUNED", "PRUNED"]
    assert [trial.intermediate_values for trial in told] == [{1: 0.4, 2: 0.5}, {}]


def test_values_are_in_their_ranges() -> None:
    for values in searched(tuning(), 24):
        assert 0.0001 <= float(values["optimizer.lr"]) <= 0.1 and 8 <= int(values["model.hidden"]) <= 64
        assert values["sampler.fanouts"] in ("[5]", "[10]")


def test_the_search_finds_better_values_than_chance() -> None:
    found = searched(tuning(), 40)
    near = [abs(math.log10(float(values["optimizer.lr"])) + 2) < 0.3 for values in found]
    assert sum(near[20:]) > sum(near[:5]) and sum(near[20:]) >= 10


def test_a_label_shows_three_digits_and_the_override_all_of_them() -> None:
    (asked,) = [Search(tuning()).ask()]
    assert asked.label.startswith("trial 0: optimizer.lr=0.0") and len(asked.label) < len(" ".join(asked.lines)) + 9


def test_every_option_that_decides_trials_is_named() -> None:
    """Optuna may change its defaults. Those that it has deprecated cannot be set without a warning."""
    optuna = pytest.importorskip("optuna")
    named = inspect.signature(optuna.samplers.TPESampler.__init__).parameters
    deprecated = {
        "consider_prior",
        "prior_weight",
        "consider_magic_clip",
        "consider_endpoints",
        "gamma",
        "weights",
        "warn_independent_sampling",
        "categorical_distance_func",
    }
    given = {"self", "seed", "constraints_func", *OPTIONS}
    assert set(named) - deprecated <= given, "name the new option, so that its default decides nothing"
    sampler = Search(tuning())._study.sampler
    assert {name: getattr(sampler, f"_{name}") for name in OPTIONS} == dict(OPTIONS)


def test_the_trials_of_this_version_are_known() -> None:
    """If this fails after an upgrade of Optuna, searches that were begun before must not go on: the version says so."""
    if importlib.metadata.version("optuna") != "5.0.0":
        pytest.skip("the trials are those of Optuna 5.0.0")
    found = [f"{float(one['optimizer.lr']):.6f} {one['model.hidden']}" for one in searched(tuning(), 10)]
    assert found == KNOWN
