"""Both loops of FastSample's Algorithm 1 by several threads, with the result of one thread bit by bit.

The destinations of a hop are divided into ranges. The first loop draws a range's edges, which needs no other range: any
thread does it at any time. The second loop gives new vertices their places in order of first appearance, so it goes
through the ranges in order. It takes a third of the time. So no thread waits: the one that has drawn a range looks
whether the next range of the second loop is drawn and nobody is at it. If so, it takes the turn and goes on as long as
ranges are drawn. Otherwise, it draws another range. With two threads, all work is shared. With many, the second loop is
the limit: three times the speed of one thread.

The second loop relabels (`relabel_sources`), or it also splits (`split_hop`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnexp.kernels.atomics import read_shared, swap_shared
from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.rows.rowkernel import RANGES_PER_THREAD, RowKernel, boundaries
from gnnexp.kernels.samplers.sample import (
    LARGE_FANOUT,
    ROUND,
    copy_hop,
    count_hop,
    relabel_sources,
    round_width,
    sample_hop,
)
from gnnexp.kernels.samplers.split import split_hop
from gnnexp.kernels.threads import kernel_threads

# Fewest destinations and edges of a range.
MIN_ROWS, MIN_EDGES = 1 << 10, 1 << 11
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
_NO_MAP, _NO_SOURCES = np.empty(0, np.int32), np.empty(0, np.int32)
# Entries of the state that threads share.
_TURN, _NEXT, _KNOWN, _FOREIGN = 0, 1, 2, 3


@dataclass(frozen=True, eq=False)
class FirstLoop:
    """What draws the edges of a hop: arguments of `sample_hop` and `copy_hop`.

    Attributes:
        indices, vertices, names: see `sample_hop`.
        num_dst: D.
        fanout: f, or negative for all edges.
        loops, key: see `sample_hop`.
        starts, room, block_indptr: from `count_hop`.
        largest: most edges of a vertex; 0 if the fanout is below `LARGE_FANOUT`.
        positions: `[E]` int64, filled with the position of each edge; empty if nobody needs it.
        neighbours: `[E]`, filled with the source vertex of each edge.
    """

    indices: np.ndarray
    vertices: np.ndarray
    names: np.ndarray
    num_dst: int
    fanout: int
    loops: int
    key: np.uint64
    starts: np.ndarray
    room: np.ndarray
    block_indptr: np.ndarray
    largest: int
    positions: np.ndarray
    neighbours: np.ndarray


@dataclass(frozen=True, eq=False)
class SecondLoop:
    """What gives sources their places: arguments of `relabel_sources` and `split_hop`.

    Attributes:
        table, base: the map and the base of the batch.
        vertices: vertices of the batch, with space for new ones; `room` of `split_hop`.
        known: number of vertices so far.
        sources: `[E]` int32, filled with places.
        hop_base: base of the hop, if vertices are split.
        first_foreign: position of the first foreign source, if vertices are split; 0: they are not.
    """

    table: np.ndarray
    base: int
    vertices: np.ndarray
    known: int
    sources: np.ndarray
    hop_base: int = 0
    first_foreign: int = 0

    def run(self, neighbours: np.ndarray) -> tuple[int, int]:
        """The loop by one thread; returns the numbers of vertices and of foreign sources."""
        if not self.first_foreign:
            known = relabel_sources(neighbours, self.table, self.base, self.vertices, self.known, self.sources)
            return int(known), 0
        known, foreign = split_hop(
            neighbours,
            self.table,
            self.base,
            self.hop_base,
            self.vertices,
            self.known,
            self.first_foreign,
            0,
            self.sources,
        )
        return int(known), int(foreign)


@compiled(nogil=True)
def _count_ranges(
    first: int,
    last: int,
    bounds: np.ndarray,
    totals: np.ndarray,
    indptr: np.ndarray,
    vertices: np.ndarray,
    fanout: int,
    loops: int,
    starts: np.ndarray,
    room: np.ndarray,
    block_indptr: np.ndarray,
) -> None:
    for part in range(first, last):
        totals[part] = count_hop(
            indptr, vertices, bounds[part], bounds[part + 1], fanout, loops, starts, room, block_indptr
        )


@compiled(nogil=True)
def _take_turns(
    done: np.ndarray,
    state: np.ndarray,
    bounds: np.ndarray,
    block_indptr: np.ndarray,
    neighbours: np.ndarray,
    table: np.ndarray,
    base: int,
    vertices: np.ndarray,
    sources: np.ndarray,
    hop_base: int,
    first_foreign: int,
) -> None:
    """The second loop for all ranges that are next and drawn, if no other thread is at it.

    A thread that leaves because another has the turn has marked its range before. The other looks at the marks again
    after it has given the turn back, so no range is forgotten.
    """
    while True:
        part = read_shared(state, _NEXT)
        if part == done.size or not read_shared(done, part) or swap_shared(state, _TURN, 1):
            return
        part = read_shared(state, _NEXT)
        while part < done.size and read_shared(done, part):
            low, high = block_indptr[bounds[part]], block_indptr[bounds[part + 1]]
            known = state[_KNOWN]
            if first_foreign:
                state[_KNOWN], state[_FOREIGN] = split_hop(
                    neighbours[low:high],
                    table,
                    base,
                    hop_base,
                    vertices,
                    known,
                    first_foreign,
                    state[_FOREIGN],
                    sources[low:high],
                )
            else:
                state[_KNOWN] = relabel_sources(neighbours[low:high], table, base, vertices, known, sources[low:high])
            part += 1
            swap_shared(state, _NEXT, part)
        swap_shared(state, _TURN, 0)


@compiled(nogil=True)
def _draw_range(
    low: int,
    high: int,
    indices: np.ndarray,
    vertices: np.ndarray,
    names: np.ndarray,
    fanout: int,
    loops: int,
    key: np.uint64,
    starts: np.ndarray,
    room: np.ndarray,
    block_indptr: np.ndarray,
    largest: int,
    positions: np.ndarray,
    neighbours: np.ndarray,
) -> None:
    """The first loop for the destinations `low` to `high - 1`, with working memory of its own."""
    if fanout < 0:
        copy_hop(indices, vertices, low, high, loops, starts, block_indptr, positions, neighbours)
        return
    width, places, mask = round_width(fanout), positions, _ALL_BITS
    if positions.size == 0:
        size = 1
        while size < 2 * width * (fanout + loops):
            size *= 2
        places, mask = np.empty(size, np.int64), np.uint64(size - 1)
    sample_hop(
        indices,
        vertices,
        names,
        low,
        high,
        fanout,
        loops,
        key,
        starts,
        room,
        block_indptr,
        np.empty(ROUND, np.uint64),
        np.empty(fanout * width, np.uint32),
        np.zeros(largest if fanout >= LARGE_FANOUT else 0, np.uint8),
        places,
        mask,
        neighbours,
    )


@compiled(nogil=True)
def _both_loops(
    first: int,
    last: int,
    bounds: np.ndarray,
    done: np.ndarray,
    state: np.ndarray,
    indices: np.ndarray,
    vertices: np.ndarray,
    names: np.ndarray,
    fanout: int,
    loops: int,
    key: np.uint64,
    starts: np.ndarray,
    room: np.ndarray,
    block_indptr: np.ndarray,
    largest: int,
    positions: np.ndarray,
    neighbours: np.ndarray,
    table: np.ndarray,
    base: int,
    placed: np.ndarray,
    sources: np.ndarray,
    hop_base: int,
    first_foreign: int,
) -> None:
    """Draw the ranges `first` to `last - 1`. With a map, take turns in the second loop."""
    for part in range(first, last):
        _draw_range(
            bounds[part],
            bounds[part + 1],
            indices,
            vertices,
            names,
            fanout,
            loops,
            key,
            starts,
            room,
            block_indptr,
            largest,
            positions,
            neighbours,
        )
        if table.size:
            swap_shared(done, part, 1)
            _take_turns(
                done,
                state,
                bounds,
                block_indptr,
                neighbours,
                table,
                base,
                placed,
                sources,
                hop_base,
                first_foreign,
            )


count_ranges, both_loops = RowKernel(_count_ranges), RowKernel(_both_loops)


def count_in_ranges(
    indptr: np.ndarray,
    vertices: np.ndarray,
    num_dst: int,
    fanout: int,
    loops: int,
    starts: np.ndarray,
    room: np.ndarray,
    block_indptr: np.ndarray,
    threads: int,
) -> int:
    """`count_hop` for all `num_dst` destinations, by `threads` threads."""
    parts = max(1, min(threads * RANGES_PER_THREAD, num_dst // MIN_ROWS))
    bounds, totals = np.arange(parts + 1) * num_dst // parts, np.empty(parts, np.int64)
    with kernel_threads(threads):
        count_ranges(np.arange(parts + 1), bounds, totals, indptr, vertices, fanout, loops, starts, room, block_indptr)
    before = 0
    for part, total in enumerate(totals.tolist()):
        block_indptr[bounds[part] + 1 : bounds[part + 1] + 1] += before
        before += total
    return before


def in_ranges(first: FirstLoop, second: SecondLoop | None, threads: int) -> tuple[int, int]:
    """Both loops of a hop by `threads` threads; returns what `SecondLoop.run` returns, or zeros without a second loop.

    Args:
        first: the first loop.
        second: the second loop; its `sources` may be the neighbours themselves. None: the first loop only.
        threads: number of threads.
    """
    indptr = first.block_indptr
    parts = max(1, min(threads * RANGES_PER_THREAD, int(indptr[first.num_dst]) // MIN_EDGES))
    bounds, done = boundaries(indptr[: first.num_dst + 1], parts), np.zeros(parts, np.int64)
    state = np.array([0, 0, second.known if second else 0, 0])
    last: tuple[np.ndarray | int, ...] = (_NO_MAP, 0, first.neighbours, _NO_SOURCES, 0, 0)
    if second is not None:
        last = (second.table, second.base, second.vertices, second.sources, second.hop_base, second.first_foreign)
    with kernel_threads(threads):
        both_loops(
            np.arange(parts + 1),
            bounds,
            done,
            state,
            first.indices,
            first.vertices,
            first.names,
            first.fanout,
            first.loops,
            first.key,
            first.starts,
            first.room,
            indptr,
            first.largest,
            first.positions,
            first.neighbours,
            *last,
        )
    return int(state[_KNOWN]), int(state[_FOREIGN])
