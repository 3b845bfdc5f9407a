"""Splits by time: parts begin at a time, are in order, and as near to their shares as equal times allow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.datasets.splits.times import Times, parts_by_time
from gnnexp.errors import DataError


@given(st.lists(st.integers(0, 12), min_size=3, max_size=60), st.tuples(*[st.integers(0, 60)] * 2))
def test_equal_times_stay_together(values: list[int], cuts: tuple[int, int]) -> None:
    count = len(values)
    first, second = sorted(min(cut, count) for cut in cuts)
    sizes = (first, second - first, count - second)
    times = Times(np.array(values), "year", dated=False)
    wanted = sum(size > 0 for size in sizes)
    if len(set(values)) < wanted:
        with pytest.raises(DataError, match="different times"):
            parts_by_time(times, sizes, "vertices")
        return
    parts = parts_by_time(times, sizes, "vertices").parts
    of_time = {value: {int(part) for one, part in zip(values, parts, strict=True) if one == value} for value in values}
    assert all(len(found) == 1 for found in of_time.values())
    order = [next(iter(of_time[value])) for value in sorted(of_time)]
    assert order == sorted(order), "no later time is in an earlier part"
    assert all((np.sum(parts == part) > 0) == (size > 0) for part, size in enumerate(sizes))


def test_a_cut_is_the_nearest_one_and_the_earlier_of_two() -> None:
    times = Times(np.array([2019, 2017, 2017, 2018, 2018, 2020, 2016, 2021]), "year", dated=False)
    found = parts_by_time(times, (4, 2, 2), "vertices")  # 3 are before 2018, and 5 before 2019
    assert found.parts.tolist() == [1, 0, 0, 1, 1, 2, 0, 2]
    assert "val from 2018 on; test from 2020 on (train 3, val 3, test 2)" in found.note


def test_dates_are_shown_as_dates() -> None:
    day = 86_400_000_000
    times = Times(np.array([0, day, day + 3_600_000_000]), "t", dated=True)
    assert "val from 1970-01-02 on; test from 1970-01-02T01:00:00 on" in parts_by_time(times, (1, 1, 1), "links").note
