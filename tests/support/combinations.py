"""Cases of every combination, most of them for `make test-slow`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest


def combinations(*axes: Iterable[Any], quick: Callable[..., bool]) -> list[Any]:
    """Every combination as a case of `pytest.mark.parametrize`; those that are not `quick` run in `make test-slow`."""
    return [pytest.param(*values, marks=() if quick(*values) else pytest.mark.slow) for values in product(*axes)]
