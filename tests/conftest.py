"""Settings for all tests; the fixture `ranks` is `gnnexp.testing.plugin`'s."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The contract's number of steps takes long: what `make test` runs has fewer, but for some ways of every paradigm.
QUICK, WHOLE = 6, 20

# Machines are busy and numba compiles at first use: a deadline per example would only measure that.
settings.register_profile("gnnexp", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("gnnexp")


@pytest.fixture
def steps(request: pytest.FixtureRequest) -> int:
    """How many steps of training a case compares."""
    return WHOLE if request.node.get_closest_marker("slow") else QUICK
