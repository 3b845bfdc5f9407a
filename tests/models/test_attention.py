"""What attention says of the values that it holds for each edge."""

from __future__ import annotations

import pytest

from gnnexp.models.gat import GATOptions


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_an_edge_holds_the_values_of_every_head(heads: int) -> None:
    assert GATOptions(hidden=16, heads=heads).values_per_edge == 3 * heads
