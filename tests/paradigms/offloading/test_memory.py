"""The fewest chunks that fit a budget, wherever the search begins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.errors import DataError
from gnnexp.paradigms.offloading.memory import fewest_chunks


@given(st.integers(1, 500), st.integers(1, 60), st.integers(0, 20))
def test_the_fewest_whatever_is_known_of_the_least(vertices, budget, overhead):
    tried: list[int] = []

    def cut(count: int) -> Any:
        tried.append(count)
        return count

    def needed(count: Any) -> int:
        return -(-vertices // count) + overhead

    if needed(vertices) > budget:
        with pytest.raises(DataError, match="single vertex"):
            fewest_chunks(cut, needed, vertices, budget, max(1, vertices // budget))
        return
    fitting = next(count for count in range(1, vertices + 1) if needed(count) <= budget)
    assert fewest_chunks(cut, needed, vertices, budget) == fitting
    first = len(tried)
    assert fewest_chunks(cut, needed, vertices, budget, -(-vertices // budget)) == fitting
    assert len(tried) - first <= first
