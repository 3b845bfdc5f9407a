"""Membership by binary search is that of sets."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.graph.subset import contains


@given(st.sets(st.integers(-5, 40)), st.lists(st.integers(-10, 50)))
def test_like_sets(members, ids):
    found = contains(torch.tensor(sorted(members), dtype=torch.int64), torch.tensor(ids, dtype=torch.int64))
    assert found.tolist() == [one in members for one in ids]


def test_other_integers():
    assert contains(torch.tensor([1, 4]), torch.tensor([4, 2], dtype=torch.int32)).tolist() == [True, False]
