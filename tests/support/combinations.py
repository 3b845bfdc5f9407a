"""Cases of every combination: few in `make test`, every pair of values in `make test-slow`, all in `make nightly`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from _pytest.mark.expression import Expression
from allpairspy import AllPairs

# A variable that has pytest's `-m` (conftest.py sets it): cases are made before pytest selects.
CHOSEN = "GNNEXP_TESTS_CHOSEN"
_WITH = ((), ("slow",), ("gpu",), ("gpu", "slow"), ("hypothesis",), ("slurm",))


def combinations(*axes: Iterable[Any], quick: Callable[..., bool]) -> list[Any]:
    """Every combination as a case of `pytest.mark.parametrize`.

    Cases that are `quick` run in `make test`. Further ones run in `make test-slow`: together with the quick cases, they
    have every pair of values of two axes. All others have the mark `nightly`, and are made only where they may be
    chosen: most cases are of this kind.
    """
    values = [list(axis) for axis in axes]
    places = list(product(*(range(len(axis)) for axis in values)))
    cases = list(product(*values))
    known = [list(place) for place, case in zip(places, cases, strict=True) if quick(*case)]
    slow = (
        {tuple(place) for place in AllPairs([list(range(len(axis))) for axis in values], previously_tested=known)}
        if len(values) > 1
        else set(places)
    )
    nightly = _may_be_chosen("nightly")
    return [
        pytest.param(
            *case, marks=() if list(place) in known else pytest.mark.slow if place in slow else pytest.mark.nightly
        )
        for place, case in zip(places, cases, strict=True)
        if nightly or list(place) in known or place in slow
    ]


def _may_be_chosen(mark: str) -> bool:
    """Whether `-m` of this pytest may select a test with `mark`, and perhaps with other marks."""
    words = os.environ.get(CHOSEN, "")
    chosen = Expression.compile(words)
    return not words or any(chosen.evaluate(lambda name, more=more: name in {mark, *more}) for more in _WITH)
