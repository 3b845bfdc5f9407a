"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rank_pool import RankPools


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPools]:
    """`ranks(n).run(function, *args)` runs a case on n real gloo ranks."""
    pools = RankPools()
    yield pools
    pools.close()
