"""Section III-C of SDT-GNN: as many parts as it takes, dealt in turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gnnexp.paradigms.parts.allocation import num_parts, parts_of


def test_the_formula_by_hand() -> None:
    assert num_parts(10**12, 4, None) == 4, "nobody said how much room there is"
    assert num_parts(8, 4, memory=6) == 4, "T = 4, room for 2 on each: S = 8 just fits"
    assert num_parts(9, 4, memory=6) == 5
    assert num_parts(9, 4, memory=6, reserve=0) == 4
    assert num_parts(100, 2, memory=30, reserve=20) == 10 and num_parts(101, 2, memory=30, reserve=20) == 11


@given(data=st.integers(0, 10**12), ranks=st.integers(1, 64), memory=st.integers(3, 10**9))
def test_parts_fit(data: int, ranks: int, memory: int) -> None:
    parts = num_parts(data, ranks, memory)
    room = memory - 2 * memory // 3
    assert parts >= ranks and data <= parts * room
    assert parts == ranks or data > (parts - 1) * room, "no more than it takes"


@given(ranks=st.integers(1, 9), parts=st.integers(1, 40))
def test_every_part_has_one_rank_and_ranks_have_as_many_as_possible_alike(ranks: int, parts: int) -> None:
    dealt = [list(parts_of(rank, ranks, parts)) for rank in range(ranks)]
    assert sorted(part for mine in dealt for part in mine) == list(range(parts))
    assert {len(mine) for mine in dealt} <= {parts // ranks, -(-parts // ranks)}
