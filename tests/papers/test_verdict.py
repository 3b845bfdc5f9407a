"""Published ranges, bounds and averages against figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp_papers import verdict as rules
from gnnexp_papers.claim import Check, Expects
from gnnexp_papers.verdict import Verdict

CHECK = Check(("some",), "[a]", {})
EXACT = Check(("some",), "[a]", {}, tolerance=0)
WITHIN = Check(("some",), "[a]", {}, within=0.01)
RANGE = Expects("ratio", 1.3, 3.4, None, "higher")
UP_TO = Expects("ratio", None, 4.4, 2.5, "higher")
AT_MOST = Expects("value", None, 1.5, None, "lower")
AT_LEAST = Expects("ratio", 1.0, None, None, "higher")
MEAN = Expects("ratio", None, None, 1.8, "higher")
SAME = Expects("difference", None, None, 0, "lower")
FOUR = Expects("value", 4, 4, None, "lower")
LESS = Expects("ratio", 0.2, 0.5, None, "lower")
OPEN = Expects("ratio", None, None, None, "higher")
COST = Expects("ratio", 1.5, 2.2, None, "lower")
SMALL = Expects("ratio", 1.1, 1.5, None, "higher")
STABLE = Expects("ratio", 0.92, 1.08, None, "higher")
SAVED = Expects("reduction_pct", 23, 42, None, "higher")


def verdict(values: Sequence[tuple[float, float]], expects: Expects, check: Check) -> Verdict:
    """Of pairs of which the same is expected."""
    return rules.verdict([(value, half, expects) for value, half in values], check)


@pytest.mark.parametrize(
    ("expects", "check", "values", "found"),
    [
        (RANGE, CHECK, [1.3, 3.4], "holds"),
        (RANGE, CHECK, [1.2, 3.7], "holds"),
        (RANGE, CHECK, [1.1, 3.0], "in direction"),
        (RANGE, CHECK, [9.0], "exceeds"),
        (RANGE, CHECK, [9.0, 2.0], "exceeds"),
        (RANGE, CHECK, [9.0, 1.1], "in direction"),
        (RANGE, CHECK, [0.9, 2.0], "does not hold"),
        (RANGE, CHECK, [0.9, 9.0], "does not hold"),
        (UP_TO, CHECK, [4.0], "holds"),
        (UP_TO, CHECK, [40.0], "exceeds"),
        (UP_TO, CHECK, [1.9], "in direction"),
        (UP_TO, CHECK, [0.7], "does not hold"),
        (AT_MOST, CHECK, [1.6], "holds"),
        (AT_MOST, CHECK, [0.1], "holds"),
        (AT_MOST, CHECK, [1.7], "does not hold"),
        (AT_LEAST, CHECK, [5.0, 1.0], "holds"),
        (AT_LEAST, CHECK, [5.0, 0.95], "does not hold"),
        (MEAN, CHECK, [1.9], "holds"),
        (MEAN, CHECK, [2.5], "exceeds"),
        (MEAN, CHECK, [0.9], "does not hold"),
        (FOUR, EXACT, [4.0, 4.0], "holds"),
        (FOUR, EXACT, [4.0, 4.001], "does not hold"),
        (FOUR, EXACT, [3.9], "exceeds"),
        (LESS, CHECK, [0.7], "in direction"),
        (LESS, CHECK, [0.1], "exceeds"),
        (LESS, CHECK, [1.01], "does not hold"),
        (COST, CHECK, [1.2], "exceeds"),
        (COST, CHECK, [3.0], "in direction"),
        (COST, CHECK, [0.9], "exceeds"),
        (STABLE, CHECK, [1.3], "exceeds"),
        (STABLE, CHECK, [0.5], "does not hold"),
        (STABLE, CHECK, [1.0], "holds"),
        (SAVED, CHECK, [60.0], "exceeds"),
        (SAVED, CHECK, [6.0], "in direction"),
        (SAVED, CHECK, [5.0], "too weak"),
        (SAVED, CHECK, [-5.0], "does not hold"),
        (OPEN, CHECK, [9.0], "shown"),
        (RANGE, CHECK, [], "not run"),
        (RANGE, CHECK, [math.nan], "not run"),
    ],
)
def test_of_single_seeds(expects: Expects, check: Check, values: list[float], found: str) -> None:
    assert verdict([(value, math.nan) for value in values], expects, check) == found


@pytest.mark.parametrize(
    ("expects", "enough", "less"),
    [(RANGE, 1.076, 1.074), (UP_TO, 1.86, 1.84), (MEAN, 1.21, 1.19), (LESS, 0.87, 0.88), (SMALL, 1.03, 1.02)],
)
def test_a_quarter_of_the_published_distance_is_a_direction(expects: Expects, enough: float, less: float) -> None:
    """From no effect to its nearest published number: 1 to 1.3, 4.4, 1.8, 0.5, 1.1."""
    assert verdict([(enough, math.nan)], expects, CHECK) == "in direction"
    assert verdict([(less, math.nan)], expects, CHECK) == "too weak"
    assert verdict([(enough, math.nan), (less, math.nan)], expects, CHECK) == "too weak", "the worst pair decides"


def test_the_tolerance_takes_half_of_an_effect_at_most() -> None:
    """A tenth of 1.1 would be all of it."""
    assert verdict([(1.05, math.nan)], SMALL, CHECK) == "holds"
    assert verdict([(1.04, math.nan)], SMALL, CHECK) == "in direction"
    assert verdict([(1.001, math.nan)], SMALL, CHECK) == "too weak"


def test_what_follows_from_a_definition_is_shown() -> None:
    assert verdict([(4.0, math.nan)], FOUR, Check(("some",), "[a]", {}, by_construction="counted so")) == "shown"


@pytest.mark.parametrize(
    ("values", "found"),
    [([0.8], "not decided"), ([1.2], "holds"), ([7.0, 0.8], "not decided"), ([0.95], "not decided")],
)
def test_a_lower_bound_below_the_range_decides_nothing(values: list[float], found: str) -> None:
    """Bytes that were counted are some of those that a program takes."""
    at_least = Expects("value", 1.0, None, None, "higher")
    check = Check(("some",), "[a]", {}, tolerance=0, lower_bound="what an allocator takes is not counted")
    assert verdict([(value, math.nan) for value in values], at_least, check) == found
    assert verdict([(0.8, math.nan)], at_least, EXACT) == "does not hold"


@given(st.floats(0.1, 50), st.sampled_from([RANGE, UP_TO, AT_LEAST, MEAN, COST, SMALL, STABLE]))
def test_on_the_wrong_side_of_no_effect_nothing_speaks_for_a_claim(value: float, expects: Expects) -> None:
    found = verdict([(value, math.nan)], expects, CHECK)
    if value < 1 and expects.better == "higher" and expects is not STABLE:
        assert found == "does not hold"
    if found in ("in direction", "too weak"):
        assert value > 1


@pytest.mark.parametrize(
    ("value", "half", "found"),
    [
        (0.005, math.nan, "holds"),
        (0.02, math.nan, "does not hold"),
        (0.005, 0.004, "holds"),
        (0.025, 0.016, "not decided"),
        (0.005, 0.006, "not decided"),
        (0.001, 0.05, "not decided"),
        (0.04, 0.015, "does not hold"),
    ],
)
def test_the_same_within_what_seeds_spread(value: float, half: float, found: str) -> None:
    assert verdict([(value, half)], SAME, WITHIN) == found


@pytest.mark.parametrize(
    ("value", "half", "found"),
    [
        (0.5, 0.3, "holds"),
        (0.5, 3.0, "not decided"),
        (-0.005, 0.004, "holds"),
        (-0.005, 0.006, "not decided"),
        (-0.03, 0.01, "does not hold"),
    ],
)
def test_no_loss_within_what_is_allowed_needs_the_whole_interval(value: float, half: float, found: str) -> None:
    no_loss = Expects("difference", 0, None, None, "higher")
    assert verdict([(value, half)], no_loss, WITHIN) == found


def test_an_interval_that_reaches_the_range_is_inside() -> None:
    assert verdict([(1.15, 0.12)], RANGE, CHECK) == "holds"
    assert verdict([(1.0, 0.1)], RANGE, CHECK) == "does not hold"


def test_an_interval_that_reaches_no_effect_too_decides_nothing() -> None:
    assert verdict([(1.0, 0.2)], RANGE, CHECK) == "not decided"
    assert verdict([(2.0, 0.1), (1.5, 0.6)], RANGE, CHECK) == "not decided"
    assert verdict([(0.9, 0.05), (1.5, 0.6)], RANGE, CHECK) == "does not hold", "the other one is enough"
    assert verdict([(1.2, 0.5)], AT_LEAST, CHECK) == "not decided"
    assert verdict([(1.2, 0.1)], AT_LEAST, CHECK) == "holds"
    assert verdict([(4.5, 4.0)], UP_TO, CHECK) == "not decided"
    assert verdict([(1.0, 0.3)], Expects("ratio", 0.8, 1.2, None, "lower"), CHECK) == "holds", "no effect is claimed"


@pytest.mark.parametrize(
    ("values", "effect", "found"),
    [
        ([(0.1, 2.0), (1.2, 0.8)], False, "holds"),
        ([(0.1, 2.0), (1.2, 0.8)], True, "not decided"),
        ([(1.3, 0.6), (1.2, 0.8)], True, "holds"),
        ([(0.1, 2.0), (-1.2, 0.8)], True, "does not hold"),
        ([(0.1, math.nan)], True, "holds"),
    ],
)
def test_a_difference_that_the_paper_claims_is_told_from_none(
    values: list[tuple[float, float]],
    effect: bool,
    found: str,
) -> None:
    check = Check(("some",), "[a]", {}, effect=effect)
    assert verdict(values, Expects("difference", 0, None, None, "higher"), check) == found
