"""Several threads make the hop of one thread: counts, edges, places, and foreign sources, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.samplers import ordered, sample
from gnnexp.kernels.samplers.ordered import FirstLoop, SecondLoop, count_in_ranges, in_ranges
from gnnexp.kernels.samplers.split import split_table

ALL_BITS = np.uint64(2**64 - 1)
NODES = 3000


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ordered, "MIN_ROWS", 8)
    monkeypatch.setattr(ordered, "MIN_EDGES", 16)
    yield


def hop(
    seed: int, fanout: int, loops: int, wants_positions: bool, threads: int = 1
) -> tuple[FirstLoop, np.random.Generator]:
    """The first loop of a hop, which is counted by `threads` threads: skewed degrees, some of them 0."""
    generator = np.random.default_rng(seed)
    degrees = (generator.pareto(1.2, NODES) * 4).astype(np.int64).clip(0, 500)
    indptr = np.concatenate(([0], np.cumsum(degrees)))
    indices = generator.integers(0, NODES, indptr[-1]).astype(np.int32)
    vertices = np.concatenate((generator.permutation(NODES)[:1200], np.zeros(NODES, np.int64))).astype(np.int32)
    count = 1200 if seed else 0
    starts, room, bounds = np.empty(count, np.int64), np.empty(count, np.uint32), np.empty(count + 1, np.int64)
    if threads == 1:
        total = sample.count_hop(indptr, vertices, 0, count, fanout, loops, starts, room, bounds)
    else:
        total = count_in_ranges(indptr, vertices, count, fanout, loops, starts, room, bounds, threads)
    positions, key = np.empty(total if wants_positions else 0, np.int64), np.uint64(stream(seed, Purpose.SAMPLE))
    found, largest = np.empty(total, np.int32), int(degrees.max())
    names = vertices[:0]
    first = FirstLoop(
        indices, vertices, names, count, fanout, loops, key, starts, room, bounds, largest, positions, found
    )
    return first, generator


def drawn_by_one(first: FirstLoop) -> None:
    if first.fanout < 0:
        sample.copy_hop(
            first.indices,
            first.vertices,
            0,
            first.num_dst,
            first.loops,
            first.starts,
            first.block_indptr,
            first.positions,
            first.neighbours,
        )
        return
    width, places, mask = sample.round_width(first.fanout), first.positions, ALL_BITS
    if not places.size:
        size = 1 << (2 * width * (first.fanout + first.loops) - 1).bit_length()
        places, mask = np.empty(size, np.int64), np.uint64(size - 1)
    sample.sample_hop(
        first.indices,
        first.vertices,
        first.names,
        0,
        first.num_dst,
        first.fanout,
        first.loops,
        first.key,
        first.starts,
        first.room,
        first.block_indptr,
        np.empty(sample.ROUND, np.uint64),
        np.empty(first.fanout * width, np.uint32),
        np.zeros(first.largest, np.uint8),
        places,
        mask,
        first.neighbours,
    )


def second_of(first: FirstLoop, owner: np.ndarray | None, in_place: bool) -> SecondLoop:
    """The second loop after a batch that has the hop's destinations; with owners, it also splits, as part 0."""
    base, count, total = 7, first.num_dst, first.neighbours.size
    table = np.zeros(NODES, np.int32) if owner is None else split_table(owner, 0)
    room = np.empty(2 * NODES + total + 4, np.int32)
    known = first.vertices[:count] if owner is None else first.vertices[:count][owner[first.vertices[:count]] == 0]
    sample.place_seeds(known, table, base, room)
    sources = first.neighbours if in_place else np.empty(total, np.int32)
    if owner is None:
        return SecondLoop(table, base, room, known.size, sources)
    return SecondLoop(table, base, room, known.size, sources, base + 3, NODES + 1)


@pytest.mark.parametrize("wants_positions", [False, True])
@pytest.mark.parametrize("loops", [0, 1])
@pytest.mark.parametrize("fanout", [-1, 1, 5, sample.LARGE_FANOUT + 3])
@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_hop_is_the_same(seed: int, threads: int, fanout: int, loops: int, wants_positions: bool) -> None:
    """With relabelling, with splitting, and with the first loop alone; in place or not."""
    one, generator = hop(seed, fanout, loops, wants_positions)
    drawn_by_one(one)
    owner = generator.integers(0, 3, NODES).astype(np.int16)
    for owners, in_place in ((None, False), (None, True), (owner, False), (owner, True)):
        several, _ = hop(seed, fanout, loops, wants_positions, threads)
        assert several.block_indptr.tolist() == one.block_indptr.tolist()
        assert several.starts.tolist() == one.starts.tolist() and several.room.tolist() == one.room.tolist()
        expected, found = second_of(one, owners, in_place=False), second_of(several, owners, in_place)
        counts = expected.run(one.neighbours)
        assert in_ranges(several, found, threads) == counts
        assert np.array_equal(found.sources, expected.sources)
        assert np.array_equal(found.table, expected.table)
        assert np.array_equal(found.vertices[: counts[0]], expected.vertices[: counts[0]])
        foreign = slice(expected.first_foreign, expected.first_foreign + counts[1])
        assert np.array_equal(found.vertices[foreign], expected.vertices[foreign])
        assert np.array_equal(several.positions, one.positions)
    alone, _ = hop(seed, fanout, loops, wants_positions, threads)
    assert in_ranges(alone, None, threads) == (0, 0)
    assert np.array_equal(alone.neighbours, one.neighbours) and np.array_equal(alone.positions, one.positions)


def test_the_turn_passes_through_all_ranges_however_threads_meet() -> None:
    """Many small hops: a forgotten range would leave places unwritten."""
    one, _ = hop(4, 3, 0, False)
    drawn_by_one(one)
    expected = second_of(one, None, in_place=False)
    counts = expected.run(one.neighbours)
    for _ in range(300):
        several, _ = hop(4, 3, 0, False)
        found = second_of(several, None, in_place=False)
        found.sources[:] = -5
        assert in_ranges(several, found, 2) == counts
        assert np.array_equal(found.sources, expected.sources)
