"""Intervals, p-values and levels against scipy and by hand; how often equal systems are called different."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from gnnexp.reports.paired.statistics import (
    LEAST_PAIRS,
    MOST_SEEDS,
    PairedDifference,
    Verdict,
    half_width,
    holm_levels,
    level_of_look,
)

NUMBERS = st.floats(-1e3, 1e3, allow_nan=False).map(lambda value: round(value, 3))


def difference(*values: float, margin: float = 0.01, is_ratio: bool = True) -> PairedDifference:
    return PairedDifference(values, is_ratio, margin)


@given(st.lists(NUMBERS, min_size=2, max_size=12), st.sampled_from([0.05, 0.01]))
def test_interval_and_p_value_are_those_of_a_paired_t_test(values: list[float], level: float) -> None:
    assume(np.std(values) > 1e-6)
    theirs = stats.ttest_1samp(values, 0.0)
    ours = difference(*values)
    assert ours.p_value == pytest.approx(float(theirs.pvalue), rel=1e-6, abs=1e-12)
    bounds = theirs.confidence_interval(1 - level)
    assert ours.interval(level) == pytest.approx((float(bounds.low), float(bounds.high)), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((), Verdict.UNDECIDED),
        ((0.3,), Verdict.UNDECIDED),
        ((0.3, 0.3), Verdict.UNDECIDED),  # two shares of few vertices are easily as far apart by chance
        ((0.0, 0.0), Verdict.EQUAL),  # exactly equal in both pairs
        ((0.3, 0.31, 0.29), Verdict.DIFFERS),
        ((-0.3, -0.31, -0.29), Verdict.DIFFERS),
        ((0.001, -0.001, 0.0), Verdict.EQUAL),
        ((0.004, 0.005, 0.006), Verdict.EQUAL),  # not 0, but less than what counts
        ((0.3, -0.3, 0.1), Verdict.UNDECIDED),
    ],
)
def test_verdicts(values: tuple[float, ...], verdict: Verdict) -> None:
    assert difference(*values).verdict() is verdict


@given(st.lists(NUMBERS, min_size=3, max_size=8), st.floats(0.001, 10))
def test_so_many_more_pairs_would_decide(values: list[float], margin: float) -> None:
    line = difference(*values, margin=margin)
    more = line.more_pairs()
    wanted = max(abs(line.mean), margin - abs(line.mean))
    if more is None:
        assert half_width(line.deviation, len(values) + MOST_SEEDS, 0.05) >= wanted
        return
    assert half_width(line.deviation, len(values) + more, 0.05) < wanted
    assert not more or half_width(line.deviation, len(values) + more - 1, 0.05) >= wanted
    if line.verdict() is Verdict.UNDECIDED:
        assert more > 0
    assert difference(1.0, 1.0).more_pairs() == LEAST_PAIRS - 2


def test_more_than_three_rivals_are_corrected() -> None:
    assert holm_levels([0.04, 0.03, 0.02]) == [0.05] * 3
    assert holm_levels([0.2, 0.001, 0.02, math.nan]) == pytest.approx([0.05 / 3, 0.0125, 0.05 / 3, 0.05 / 3])
    assert holm_levels([0.001, 0.002, 0.003, 0.2]) == pytest.approx([0.0125, 0.05 / 3, 0.025, 0.05])


def test_equal_systems_are_rarely_called_different() -> None:
    """The issue's simulation: 2,000 pairs of equal systems, looked at after 5, 10, 20, 40 and 80 seeds."""
    draws = np.random.default_rng(64)
    wrong = 0
    for _ in range(2000):
        values = draws.normal(0.0, 1.0, 80)
        for look, count in enumerate((5, 10, 20, 40, 80), 1):
            line = difference(*values[:count], margin=1e-9)
            if line.verdict(level_of_look(look)) is Verdict.DIFFERS:
                wrong += 1
                break
    assert wrong <= 0.05 * 2000
    assert wrong > 0.01 * 2000, "the levels are not needlessly small"


def test_uncorrected_looks_would_be_wrong_too_often() -> None:
    draws = np.random.default_rng(64)
    looks = [
        [difference(*values[:count], margin=1e-9) for count in (5, 10, 20)] for values in draws.normal(size=(1000, 20))
    ]
    assert sum(any(line.verdict() is Verdict.DIFFERS for line in lines) for lines in looks) > 0.05 * 1000
