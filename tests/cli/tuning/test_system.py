"""A trial is judged by the records of its runs; the best trial is one that ended within the budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gnnexp.cli.tuning.definition import Tuning, read_tuning
from gnnexp.cli.tuning.search import Search
from gnnexp.cli.tuning.system import System, Trial, objective_of, seconds_of, validation_curve
from gnnexp.record.runs import RecordedRun


def tuning(**more: object) -> Tuning:
    found, problems = read_tuning({"distributions": {"optimizer.lr": {"low": 0.1, "high": 1}}, "trials": 3, **more})
    assert problems == []
    return found


def run(values: Sequence[float], status: str = "finished", **epoch: Any) -> RecordedRun:
    epochs = [{"acc/val": value, "acc/test": 0.5, "time/epoch_s": 2.0, **epoch} for value in values]
    summary = {"acc/val": max(values), "acc/test": 0.5} if values else {}
    return RecordedRun(Path("run"), {"task": {"metric": "acc"}}, {}, epochs, summary, status)


def system(options: Tuning, trials: Sequence[tuple[float | None, float]]) -> System:
    found = System("dgl_digits", "system=dgl", [()], options, Search(options))
    found.trials += [Trial(found.search.ask(), value, seconds) for value, seconds in trials]
    return found


def test_the_value_is_the_best_validation_metric() -> None:
    assert objective_of(run([0.1, 0.8, 0.7]), tuning()) == 0.8
    assert objective_of(run([0.1, 0.8], "failed"), tuning()) is None
    assert objective_of(run([]), tuning()) is None, "the run was not evaluated"


def test_the_time_to_a_value_ends_with_the_first_epoch_that_reaches_it() -> None:
    goal = tuning(objective="time_to_target", target=0.75)
    assert objective_of(run([0.1, 0.8, 0.7]), goal) == 4.0
    assert objective_of(run([0.1, 0.7]), goal) is None
    assert objective_of(run([0.1, 0.75]), goal) == 4.0


def test_seconds_are_those_of_all_epochs_also_of_a_failed_run() -> None:
    assert seconds_of(run([0.1, 0.2, 0.3], "failed")) == 6.0
    assert seconds_of(run([])) == 0.0


def with_curves(options: Tuning, *curves: tuple[float | None, tuple[float, ...]]) -> System:
    found = system(options, ())
    found.trials += [Trial(found.search.ask(), value, 1.0, curve=curve) for value, curve in curves]
    return found


def test_limits_are_the_medians_of_trials_with_a_value() -> None:
    curves = [(0.5, (0.1, 0.5)), (0.5, (math.nan, 0.5)), (0.75, (0.3, 0.75)), (None, (0.0, 0.0)), (0.8, (0.8,))]
    options = tuning(trials=9, pruner="median")
    assert with_curves(options, *curves[:4]).limits == (), "three trials have a value"
    assert with_curves(options, *curves).limits == (None, 0.625)
    assert with_curves(tuning(trials=9, pruner="median", warmup=0), *curves).limits == (None, 0.625), "one had none"
    assert with_curves(tuning(trials=9), *curves).limits == ()
    assert with_curves(options, *curves).ask().lines[-1] == "train.stop_below=[null,0.625]"
    tight = with_curves(tuning(trials=9, pruner="median", warmup=0), *[(0.12345678, (0.12345678,))] * 4)
    assert tight.limits == (0.1234,), "an equal trial is not below"


def test_the_curve_is_the_best_metric_so_far() -> None:
    assert validation_curve(run([0.1, 0.5, 0.4])) == (0.1, 0.5, 0.5)
    assert math.isnan(validation_curve(run([math.nan, 0.4]))[0]) and validation_curve(run([math.nan, 0.4]))[1] == 0.4


def test_an_equal_trial_that_came_first_is_the_best() -> None:
    found = system(tuning(), [(None, 1.0), (0.5, 1.0), (0.9, 1.0), (0.9, 1.0)]).best
    assert found is not None and found.asked.number == 2
    fastest = system(tuning(objective="time_to_target", target=0.5), [(9.0, 9.0), (4.0, 9.0)]).best
    assert fastest is not None and fastest.value == 4.0
    assert system(tuning(), [(None, 1.0)]).best is None


def test_a_trial_that_ended_after_the_budget_of_seconds_does_not_count() -> None:
    found = system(tuning(trials=None, seconds=5), [(0.5, 3.0), (0.9, 3.0)])
    assert not found.wants(0) and found.best is not None and found.best.value == 0.5
    assert system(tuning(trials=None, seconds=5), [(0.9, 6.0)]).best is None


@pytest.mark.parametrize(
    ("trials", "seconds", "wants"),
    [(3, None, True), (2, None, False), (9, 4.0, True), (9, 2.0, False), (None, 9.0, True)],
)
def test_the_search_ends_at_the_first_limit(trials: int | None, seconds: float | None, wants: bool) -> None:
    found = system(tuning(trials=trials, seconds=seconds), [(0.5, 1.0), (0.6, 1.0)])
    assert found.wants(0) is wants
    found.stopped = "trial 2 is failed"
    assert not found.wants(0) and not found.budget.is_spent
