"""Pairs: runs cut to equal length, and systems that are shown without counting."""

from __future__ import annotations

from dataclasses import replace

from claim_runs import check_of, claim_of, run_of

from gnnexp.record.runs import RecordedRun
from gnnexp_papers.claim import Expects
from gnnexp_papers.evaluate import outcome
from gnnexp_papers.page import evaluated, make_table

SAME = Expects("difference", None, None, 0, "higher")


def trained(system: str, accuracies: list[tuple[float, float]]) -> RecordedRun:
    """Validation and test accuracy by epoch; the summary is of the best validation epoch."""
    run = run_of(system, 1)
    epochs = [{"acc/val": val, "acc/test": test, "loss/train": 1.0} for val, test in accuracies]
    best = max(accuracies)
    return replace(run, epochs=epochs, summary={"acc/val": best[0], "acc/test": best[1]})


def test_both_runs_of_a_pair_are_looked_at_after_as_many_epochs() -> None:
    """Four epochs against two: the later ones do not count, even where they are better."""
    long = trained("slow", [(0.3, 0.31), (0.5, 0.52), (0.7, 0.74), (0.6, 0.6)])
    short = trained("fast", [(0.5, 0.5), (0.4, 0.45)])
    check = check_of(value="[summary/acc/test]", within=0.05)
    runs = {"s": [long, short]}
    claim = claim_of(check, SAME, kind="accuracy")
    assert [round(one.value, 6) for one in outcome(claim, runs).measured] == [0.24]
    equal = claim_of(replace(check, equal_epochs=True), SAME, kind="accuracy")
    assert [round(one.value, 6) for one in outcome(equal, runs).measured] == [0.02]
    assert outcome(claim, runs).verdict == "exceeds" and outcome(equal, runs).verdict == "holds"


def test_further_systems_are_shown_and_not_counted() -> None:
    runs = [run_of("slow", 6), run_of("hybrid", 2), run_of("fast", 3)]
    claim = claim_of(check_of(uncounted={"system": ("hybrid",)}))
    found = outcome(claim, {"s": runs})
    assert found.verdict == "holds" and [one.value for one in found.uncounted] == [2 / 3]
    (row,) = make_table(evaluated([claim], {"s": runs})).rows
    assert row[4] == "2 (slow over fast); not counted: 0.667 (hybrid over fast)"


def test_a_key_without_a_value_names_no_side() -> None:
    """A graph that has no shape is named by its name."""
    runs = [run_of("slow", 6, shape="like"), run_of("slow", 3)]
    check = check_of(
        of={"dataset.shape": ("like",)}, over={}, uncounted={"dataset.shape": ("null",), "dataset.name": ("a",)}
    )
    (row,) = make_table(evaluated([claim_of(check)], {"s": runs})).rows
    assert row[4] == "6 (like); not counted: 3 (a)"
