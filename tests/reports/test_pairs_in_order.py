"""Pairs of systems in the published order, counted by hand."""

from __future__ import annotations

import math

import pytest

from gnnexp.reports.metrics import mean_and_interval
from gnnexp.reports.published_cells import pairs_in_order


def of(group: str, **pairs: tuple[float, float]) -> list[tuple[str, float, float]]:
    return [(group, ours, papers) for ours, papers in pairs.values()]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (of("a", x=(1, 10), y=(2, 20), z=(3, 15)), (2, 3)),
        (of("a", x=(1, 10)) + of("b", y=(2, 5)), (0, 0)),
        (of("a", x=(1, 10), y=(1, 20)), (0, 1)),
        (of("a", x=(1, 10), y=(2, 10)), (0, 0)),
        (of("a", x=(1, 10), y=(math.nan, 20), z=(2, math.nan)), (0, 0)),
        (of("a", x=(math.inf, math.inf), y=(5, 20)), (1, 1)),
        ([], (0, 0)),
    ],
)
def test_pairs(found: list[tuple[str, float, float]], expected: tuple[int, int]) -> None:
    assert pairs_in_order(found) == expected


def test_an_interval_over_seeds() -> None:
    mean, half = mean_and_interval([1.0, 2.0, 3.0, math.nan])
    assert mean == 2 and half == pytest.approx(4.302653 / math.sqrt(3))
    _, half = mean_and_interval([float(number) for number in range(41)])
    assert half == pytest.approx(2.0211 * math.sqrt(143.5 / 41), rel=1e-4)
    assert mean_and_interval([1.5])[0] == 1.5 and math.isnan(mean_and_interval([1.5])[1])
    assert all(map(math.isnan, (*mean_and_interval([]), *mean_and_interval([math.nan]))))


def test_quantiles_cover_what_they_should() -> None:
    """Of means of normal samples, 95 of 100 intervals hold the true mean."""
    import numpy as np

    draws = np.random.default_rng(0).normal(size=(4000, 4))
    held = sum(abs(mean) <= half for mean, half in map(mean_and_interval, draws.tolist()))
    assert 0.94 < held / len(draws) < 0.96
