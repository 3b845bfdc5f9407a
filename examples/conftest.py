"""Each example is a folder of its own: what a user has in the current folder is importable here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_pool import RankPools

# Before the first rank is started: ranks take over the path.
sys.path[:0] = [str(folder) for folder in sorted(Path(__file__).resolve().parent.iterdir()) if folder.is_dir()]


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPools]:
    """`ranks(n).run(function, *args)` runs a case on n real gloo ranks."""
    pools = RankPools()
    yield pools
    pools.close()
