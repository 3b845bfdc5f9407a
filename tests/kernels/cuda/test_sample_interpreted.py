"""Triton's sampling kernels, interpreted in the process that `tests/kernels/test_triton.py` starts."""

from __future__ import annotations

import pytest

from gnnexp.ops.backends import has_triton, is_interpreted

pytestmark = pytest.mark.skipif(not (has_triton() and is_interpreted()), reason="run by tests/kernels/test_triton.py")


@pytest.mark.parametrize("number", [597, 1069])
def test_interpreted_kernels_make_the_blocks_of_the_cpu(number: int) -> None:
    """Small cases on two ranks: a key for each rank, ends of links, and edges in host memory; one key for all ranks,
    own targets, and edges on the device.
    """
    from interpreted_sampling import check_case

    check_case(number)
