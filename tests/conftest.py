"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from rank_pool import RankPools


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPools]:
    """`ranks(n).run(function, *args)` runs a case on n real gloo ranks."""
    pools = RankPools()
    yield pools
    pools.close()


# Machines are busy and numba compiles at first use: a deadline per example would only measure that.
settings.register_profile("gnnexp", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("gnnexp")
