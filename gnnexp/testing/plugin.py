"""Fixtures for pytest: write `pytest_plugins = ["gnnexp.testing.plugin"]` in the root's `conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gnnexp.testing.ranks import RankPools


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPools]:
    """`ranks(n).run(function, *args)` runs a case on n real ranks, which are kept for the next case."""
    pools = RankPools()
    yield pools
    pools.close()
