"""What the ranks of the tests are forked from."""

from __future__ import annotations

import sys

import pytest

from emulated_gpu import is_wanted
from gnnexp.testing.ranks import RankPools


def _has_loaded_kernels() -> bool:
    return "loaded_kernels" in sys.modules


@pytest.mark.skipif(is_wanted(), reason="on the emulated device, ranks load the device instead")
def test_they_are_forks_of_a_process_that_has_loaded_the_kernels(ranks: RankPools) -> None:
    """A fork server silently skips a module that it cannot import."""
    assert ranks(1).run(_has_loaded_kernels) == [True]
