"""Splitting a hop against plain Python, over batches and hops that share one map."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.kernels.samplers.split import (
    group_by_owner,
    join_frontier,
    place_foreign,
    split_hop,
    split_table,
    spread_rows,
)


@given(st.data())
@settings(max_examples=100)
def test_hops_of_batches_equal_lists(data: st.DataObject) -> None:
    num_nodes, part = 12, data.draw(st.integers(0, 2))
    owner = np.array(data.draw(st.lists(st.integers(0, 2), min_size=num_nodes, max_size=num_nodes)), np.int16)
    table, base = split_table(owner, part), 1
    room = np.empty(200, np.int32)
    for _ in range(3):
        local: list[int] = []
        hop_base, count = base, 0
        for _ in range(3):
            found = np.array(data.draw(st.lists(st.integers(0, num_nodes - 1), max_size=30)), np.int32)
            sources, foreign = np.empty(found.size, np.int32), []
            expected = []
            for vertex in found.tolist():
                mine = owner[vertex] == part
                seen = local if mine else foreign
                if vertex not in seen:
                    seen.append(vertex)
                expected.append(seen.index(vertex) if mine else -1 - seen.index(vertex))
            count, num_foreign = split_hop(found, table, base, hop_base, room, count, 100, 0, sources)
            hop_base += num_foreign
            assert room[:count].tolist() == local
            assert room[100 : 100 + num_foreign].tolist() == foreign
            assert sources.tolist() == expected
            wanted = np.array(data.draw(st.lists(st.sampled_from(range(num_nodes)), max_size=5)), np.int32)
            wanted = wanted[owner[wanted] == part]
            rows = np.empty(wanted.size, np.int64)
            for vertex in wanted.tolist():
                if vertex not in local:
                    local.append(vertex)
            count = join_frontier(wanted, table, base, room, count, rows)
            assert room[:count].tolist() == local
            assert rows.tolist() == [local.index(vertex) for vertex in wanted.tolist()]
            places = np.random.default_rng(0).permutation(num_foreign).astype(np.int32)
            moved = [count + int(places[-1 - s]) if s < 0 else s for s in expected]
            assert place_foreign(sources, places, count) == sum(s < 0 for s in expected)
            assert sources.tolist() == moved
        base = max(base + count, hop_base)


@given(st.lists(st.integers(0, 9), max_size=40), st.lists(st.integers(0, 3), min_size=10, max_size=10))
def test_grouping_is_a_stable_sort_by_owner(vertices: list[int], owners: list[int]) -> None:
    foreign, owner = np.array(vertices, np.int32), np.array(owners, np.int16)
    counts, grouped, places = np.zeros(4, np.int64), np.empty_like(foreign), np.empty(foreign.size, np.int32)
    group_by_owner(foreign, owner, counts, grouped, places)
    assert grouped.tolist() == sorted(vertices, key=lambda vertex: owners[vertex])
    assert counts.tolist() == [sum(owners[vertex] == part for vertex in vertices) for part in range(4)]
    assert grouped[places].tolist() == vertices


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=8), st.randoms())
def test_rows_are_spread_by_a_permutation(rows: list[list[int]], random) -> None:
    order = list(range(len(rows)))
    random.shuffle(order)
    placed: list[list[int]] = [[] for _ in rows]
    for row, place in zip(rows, order, strict=True):
        placed[place] = row
    indptr = np.cumsum([0, *map(len, rows)])
    values = np.array([value for row in rows for value in row], np.int64)
    out = np.empty_like(values)
    spread_rows(np.array(order, np.int64), indptr, values, np.cumsum([0, *map(len, placed)]), out)
    assert out.tolist() == [value for row in placed for value in row]
