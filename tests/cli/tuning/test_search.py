"""The search of a system depends on its seed and on the values of its trials, and on nothing else."""

from __future__ import annotations

import math

from gnnexp.cli.tuning.definition import Tuning, read_tuning
from gnnexp.cli.tuning.search import Asked, Search

RANGES = {"optimizer.lr": {"low": 0.0001, "high": 0.1, "log": True}, "model.hidden": {"low": 8, "high": 64},
          "sampler.fanouts": {"choices": [[5], [10]]}}


def tuning(**more: object) -> Tuning:
    found, problems = read_tuning({"distributions": RANGES, "trials": 12, **more})
    assert problems == []
    return found


def value_of(asked: Asked) -> float:
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
