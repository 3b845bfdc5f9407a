"""What a step of every way may cost on a GPU, and that every byte that crosses is accounted for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hasty_models
import pytest
import torch
from budgets import FIGURES, FILE, SIZES, Measured, kept, measured, most, read_budgets

from emulated_gpu import is_wanted
from gnnexp.testing.ranks import RankError
from gnnexp.testing.ways import WAYS

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu runs these")]
HASTY = Path(hasty_models.__file__)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_a_steady_step_keeps_its_budget_and_every_byte_that_crosses_is_accounted_for(
    ranks, way: str, size: int, record_property: Callable[[str, object], None]
) -> None:
    if size > torch.cuda.device_count():
        pytest.skip("ranks share a GPU: budgets are those of ranks that do not")
    steps, budget = measured(ranks, way, size), read_budgets()[way, size]
    found = most(way, steps)
    row = {name: f"{getattr(found, name)} / {getattr(budget, name)}" for name in FIGURES}
    record_property("budget", {"way": way, "ranks": size, **row, "h2d": max(step.exact.h2d_bytes for step in steps)})
    assert not kept(budget, steps)
    for step in (one for all_three in steps for one in (all_three.exact, all_three.free, all_three.triton)):
        assert step.h2d_bytes == step.expected_bytes, step.lines("h2d_bytes")


def _lines_that(word: str) -> list[str]:
    """Lines of the mistakes, "file:line"."""
    lines = HASTY.read_text().splitlines()
    return [f"{HASTY.name}:{number}" for number, line in enumerate(lines, 1) if line.endswith(f"# {word}")]


@pytest.mark.parametrize(
    ("model", "figure", "word"),
    [
        ("WithItem", "waits", "waits"),
        ("WithHost", "waits", "crosses"),
        ("WithHost", "pageable_bytes", "crosses"),
    ],
)
@pytest.mark.parametrize("way", ["data", "communicate"])
def test_a_mistake_in_a_layer_is_found_with_its_line(ranks, way: str, model: str, figure: str, word: str) -> None:
    steps = measured(ranks, way, 1, {"_target_": f"hasty_models.{model}"})
    found = next(problem for problem in kept(read_budgets()[way, 1], steps) if problem.startswith(f"{figure}: "))
    assert "and the budget is" in found and any(line in found for line in _lines_that(word))


def test_rows_that_cross_by_mistake_are_not_accounted_for(ranks) -> None:
    (step,) = measured(ranks, "data", 1, {"_target_": "hasty_models.WithHost"})
    assert step.exact.h2d_bytes > step.exact.expected_bytes


@pytest.mark.parametrize("way", ["data", "communicate"])
def test_tensors_of_two_devices_in_a_layer_are_found_with_their_line(ranks, way: str) -> None:
    with pytest.raises(RankError, match="found at least two devices") as told:
        measured(ranks, way, 1, {"_target_": "hasty_models.WithMix"})
    lines = {f"{HASTY.name}:{line}" for line in re.findall(rf'{HASTY.name}", line (\d+)', str(told.value))}
    assert lines & set(_lines_that("mixes"))


def test_a_budget_that_is_far_too_large_is_told_with_the_new_row(ranks) -> None:
    steps, budget = measured(ranks, "data", 1), read_budgets()["data", 1]
    (told,) = kept(replace(budget, waits=2 * budget.waits), steps)
    assert f"far below the budget of {2 * budget.waits}: write `data,1,{budget.waits}," in told and FILE.name in told


def test_a_step_is_steady(ranks) -> None:
    """The same figures again: what is made once was made before."""

    def figures(step: Measured) -> list[int]:
        return [*(step.figure(name) for name in FIGURES), step.exact.h2d_bytes, step.free.h2d_bytes]

    first, second = (measured(ranks, "split", 2) for _ in range(2))
    assert [figures(step) for step in first] == [figures(step) for step in second]
