"""Cases of every combination: few in `make test`, every pair of values in `make test-slow`, all in `make nightly`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from allpairspy import AllPairs


def combinations(*axes: Iterable[Any], quick: Callable[..., bool]) -> list[Any]:
    """Every combination as a case of `pytest.mark.parametrize`.

    Cases that are `quick` run in `make test`. Further ones run in `make test-slow`: together with the quick cases, they
    have every pair of values of two axes. All others have the mark `nightly`.
    """
    values = [list(axis) for axis in axes]
    places = list(product(*(range(len(axis)) for axis in values)))
    cases = list(product(*values))
    known = [list(place) for place, case in zip(places, cases, strict=True) if quick(*case)]
    slow = {tuple(place) for place in AllPairs([list(range(len(axis))) for axis in values], previously_tested=known)
            } if len(values) > 1 else set(places)
    return [pytest.param(*case, marks=() if list(place) in known else
                         pytest.mark.slow if place in slow else pytest.mark.nightly)
            for place, case in zip(places, cases, strict=True)]
