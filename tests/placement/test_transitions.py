"""What a rank holds from batch to batch: everything read is there, what stays keeps its place, no place is wasted."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.placement.transitions import _places

SETS = st.lists(st.sets(st.integers(0, 30), max_size=20), min_size=1, max_size=8)


def _arrays(sets: list[set[int]]) -> list[np.ndarray]:
    return [np.array(sorted(rows), np.int64) for rows in sets]


@given(SETS)
def test_what_stays_keeps_its_place(sets: list[set[int]]) -> None:
    held, capacity = _places(_arrays(sets), 31, stay=True)
    before: dict[int, int] = {}
    for rows, found in zip(sets, held, strict=True):
        now = dict(zip(found.rows.tolist(), found.places.tolist(), strict=True))
        assert set(now) == rows
        assert len(set(now.values())) == len(now), "one row per place"
        assert all(0 <= place < capacity for place in now.values())
        assert all(now[row] == before[row] for row in now.keys() & before.keys())
        before = now
    assert capacity == max(len(rows) for rows in sets), "left places are used again before there are new ones"


@given(SETS)
def test_without_reuse_every_batch_starts_at_place_0(sets: list[set[int]]) -> None:
    held, capacity = _places(_arrays(sets), 31, stay=False)
    assert capacity == max(len(rows) for rows in sets)
    for rows, found in zip(sets, held, strict=True):
        assert found.rows.tolist() == sorted(rows) and found.places.tolist() == list(range(len(rows)))
