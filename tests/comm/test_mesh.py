"""Groups of ranks by the names of axes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from exchanging import connect
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.comm.mesh import Mesh


def test_rows_are_consecutive_and_columns_are_not() -> None:
    mesh = Mesh.of(groups=2, parts=3)
    assert mesh.groups("parts") == [[0, 1, 2], [3, 4, 5]]
    assert mesh.groups("groups") == [[0, 3], [1, 4], [2, 5]]
    assert (mesh.place("groups", 4), mesh.place("parts", 4)) == (1, 1)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_every_rank_is_in_one_group_of_every_axis_at_its_place(sizes: list[int]) -> None:
    mesh = Mesh.of(**{f"axis{number}": size for number, size in enumerate(sizes)})
    count = math.prod(sizes)
    for axis, size in mesh.axes:
        groups = mesh.groups(axis)
        assert sorted(rank for group in groups for rank in group) == list(range(count))
        for group in groups:
            assert [mesh.place(axis, rank) for rank in group] == list(range(size))
            assert len({after - before for before, after in pairwise(group)}) <= 1


def _columns() -> tuple[Any, Any, Any]:
    """The ranks of this rank's row, of its column, and of the column's clone for a thread. The mesh has two rows."""
    whole, mesh = connect(), Mesh.of(rows=2, columns=2)
    row, column = whole.along(mesh, "columns"), whole.along(mesh, "rows")
    aside, rank = column.clone_for_thread(), whole.rank
    assert (column.rank, row.rank) == (mesh.place("rows", rank), mesh.place("columns", rank))
    total = torch.ones(1) * 10**rank
    column.all_reduce(total, "gradients")
    members: Any = column.gather_objects(rank)
    found = row.gather_objects(rank), [int(total), *members], aside.gather_objects(rank)
    whole.barrier()
    whole.release()
    return found


def test_rows_and_columns_of_a_mesh(ranks):
    for rank, (row, column, aside) in enumerate(ranks(4).run(_columns)):
        below, first = rank % 2, rank // 2 * 2
        assert row == [first, first + 1]
        assert column == [10**below + 10 ** (below + 2), below, below + 2] and aside == [below, below + 2]
