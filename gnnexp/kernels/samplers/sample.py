"""Neighbour sampling straight into CSC: FastSample's fused kernel (section 3.2, Algorithm 1).

One hop consists of three calls. First, `count_hop` computes the vector R of Algorithm 1 and the memory that the hop
needs. Then `sample_hop` or `copy_hop` selects edges and reads their sources: the first loop of Algorithm 1. Finally,
`relabel_sources` turns ids into positions through the map M: the second loop. One thread calls them for the whole hop,
or several threads for ranges of its destinations (`kernels.samplers.ordered`).

There are three differences to Algorithm 1. Destinations come first among the sources, as in DGL's blocks; Algorithm 1
drops destinations that are no neighbours. M is not cleared but has a base that moves. A batch keeps one list of
vertices for all hops, and the sources of every hop are a prefix of it.

Draws. Vertex v of degree d > f (fanout) takes f distinct edges by Floyd's scheme (Bentley and Floyd, "A sample of
brilliance", CACM 30(9), 1987). Draw j of 0..f-1 is uniform on 0..d-f+j, and is replaced by d-f+j if that edge was taken
before. The word of draw j is `draw(absorb(hop key, v), j)`. Multiply-shift maps it to the range, with a bias below
2^-32 for every degree below 2^32. So the choice depends on the hop's key and on v only. Edges are written in the order
of the draws. If d <= f, all edges are written in canonical order.

Indices are unsigned. For signed indices numba handles negative values, which costs a branch and prevents vectorisation.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import absorb, bounded, draw
from gnnexp.kernels.prefetch import prefetch

_U = np.uint64
_0, _1 = _U(0), _U(1)

# Destinations per round of `sample_hop`. The draws of a round are vectorised across destinations. The prefetches of one
# round complete while the next round is drawn. 16 and 64 measured the same within 10 %.
ROUND = 32
# From this fanout on, a table of taken edges finds repeated draws. Below it, a draw is compared with all earlier draws,
# for a whole round at once, which is as fast or faster (fanout 24: equal; fanout 48: 0.6 times as fast).
LARGE_FANOUT = 33
# Addresses are prefetched this many edges or vertices ahead (32: 5-15 % slower, 128: the same).
_AHEAD = _U(64)


@compiled(inline="always")
def round_width(fanout: int) -> int:
    """Destinations per round of `sample_hop`."""
    return 1 if fanout >= LARGE_FANOUT else ROUND


@compiled(nogil=True)
def place_seeds(seeds: np.ndarray, table: np.ndarray, base: int, vertices: np.ndarray) -> int:
    """Make `seeds` the first vertices of a batch: `vertices[i] = seeds[i]`, `table[seeds[i]] = base + i`.

    Returns:
        The number of placed seeds: less than `seeds.size` if the next seed is out of range or a repetition.
    """
    for i in range(seeds.size):
        seed = seeds[i]
        if seed < 0 or seed >= table.size or table[seed] >= base:
            return i
        table[seed] = base + i
        vertices[i] = seed
    return int(seeds.size)


@compiled(nogil=True)
def count_hop(
    indptr: np.ndarray,
    vertices: np.ndarray,
    first: int,
    last: int,
    fanout: int,
    loops: int,
    starts: np.ndarray,
    room: np.ndarray,
    block_indptr: np.ndarray,
) -> int:
    """Count the edges of a range of destinations of a hop.

    Args:
        indptr: `[V + 1]` int64, in-edges of each vertex in the graph.
        vertices: vertices of the batch; the first D are the destinations.
        first, last: the destinations `first` to `last - 1`; 0 and D for the whole hop.
        fanout: most edges per destination, negative for all.
        loops: 1 to count an added self loop per destination, else 0.
        starts: `[>= D]` int64, filled with the position in the graph at which each destination's edges start.
        room: `[>= D]` uint32, filled with degree - fanout, or 0 if all edges are taken.
        block_indptr: `[D + 1]` int64. Its entries after `first` are filled with the end of each destination's edges
            among those of the range; entry 0 too if the range begins there.

    Returns:
        The number of edges of the range.
    """
    most = np.int64(fanout) if fanout >= 0 else np.iinfo(np.int64).max
    if first == 0:
        block_indptr[0] = 0
    total, furthest = np.int64(0), _U(last) - _1
    for i in range(_U(first), _U(last)):
        prefetch(indptr, vertices[min(i + _AHEAD, furthest)])
        vertex = _U(vertices[i])
        start = indptr[vertex]
        degree = indptr[vertex + _1] - start
        starts[i] = start
        room[i] = max(degree - most, np.int64(0))
        total += min(degree, most) + loops
        block_indptr[i + _1] = total
    return int(total)


@compiled(inline="always")
def _name(vertices: np.ndarray, names: np.ndarray, place: np.uint64) -> np.uint64:
    """The original id of the vertex at `place`, which keys its draws."""
    return _U(names[vertices[place]]) if names.size else _U(vertices[place])


@compiled(nogil=True)
def _draw_round(
    first: np.uint64,
    count: np.uint64,
    fanout: np.uint64,
    key: np.uint64,
    vertices: np.ndarray,
    names: np.ndarray,
    room: np.ndarray,
    keys: np.ndarray,
    chosen: np.ndarray,
) -> None:
    """Floyd's scheme for `count` destinations in parallel: every inner loop is vectorised across destinations.

    `chosen[j * ROUND + i]` is the offset of draw j of destination `first + i`. A draw that repeats an earlier one
    becomes degree - fanout + j, which is larger than every earlier draw.
    """
    width = _U(ROUND)
    for i in range(count):
        keys[i] = absorb(key, _name(vertices, names, first + i))
    for j in range(fanout):
        row = j * width
        for i in range(count):
            chosen[row + i] = bounded(draw(keys[i], j), _U(room[first + i]) + j + _1)
        for k in range(j):
            earlier = k * width
            for i in range(count):
                drawn = chosen[row + i]
                chosen[row + i] = room[first + i] + np.uint32(j) if chosen[earlier + i] == drawn else drawn


@compiled(nogil=True)
def _draw_one(
    vertex: np.uint64, room: np.uint64, fanout: np.uint64, key: np.uint64, taken: np.ndarray, chosen: np.ndarray
) -> None:
    """The draws of `_draw_round` for one destination and a large fanout, in O(fanout), written to `chosen[j]`."""
    own = absorb(key, vertex)
    for j in range(fanout):
        drawn = bounded(draw(own, j), room + j + _1)
        drawn = room + j if taken[drawn] else drawn
        taken[drawn] = 1
        chosen[j] = drawn
    for j in range(fanout):
        taken[_U(chosen[j])] = 0


@compiled(inline="always")
def _place_draws(
    first: np.uint64,
    count: np.uint64,
    width: np.uint64,
    loops: int,
    vertices: np.ndarray,
    starts: np.ndarray,
    room: np.ndarray,
    block_indptr: np.ndarray,
    chosen: np.ndarray,
    indices: np.ndarray,
    positions: np.ndarray,
    mask: np.uint64,
) -> None:
    """Write and prefetch the positions of the chosen edges in the graph; a self loop of v is written as -1 - v."""
    for i in range(count):
        edge = _U(block_indptr[first + i])
        end = _U(block_indptr[first + i + _1] - loops)
        start = _U(starts[first + i])
        if room[first + i]:
            for j in range(end - edge):
                position = start + _U(chosen[j * width + i])
                positions[(edge + j) & mask] = position
                prefetch(indices, position)
        else:
            for j in range(end - edge):
                positions[(edge + j) & mask] = start + j
                prefetch(indices, start + j)
        if loops:
            positions[end & mask] = np.int64(-1) - vertices[first + i]


@compiled(inline="always")
def _read_neighbours(
    first: np.uint64,
    last: np.uint64,
    indices: np.ndarray,
    positions: np.ndarray,
    mask: np.uint64,
    neighbours: np.ndarray,
) -> None:
    """Read the sources of the edges `first` to `last - 1`; the position of a self loop becomes -1."""
    for edge in range(first, last):
        position = positions[edge & mask]
        if position < 0:
            neighbours[edge] = np.int64(-1) - position
            positions[edge & mask] = -1
        else:
            neighbours[edge] = indices[_U(position)]


@compiled(nogil=True)
def sample_hop(
    indices: np.ndarray,
    vertices: np.ndarray,
    names: np.ndarray,
    first: int,
    last: int,
    fanout: int,
    loops: int,
    key: np.uint64,
    starts: np.ndarray,
    room: np.ndarray,
    block_indptr: np.ndarray,
    keys: np.ndarray,
    chosen: np.ndarray,
    taken: np.ndarray,
    positions: np.ndarray,
    mask: np.uint64,
    neighbours: np.ndarray,
) -> None:
    """Draw the edges of a range of destinations of a hop, and read their sources.

    Args:
        indices: sources of all edges of the graph.
        vertices: vertices of the batch; the first D are the destinations.
        names: `[V]` original id of every vertex of the graph, empty if vertices have their original ids.
        first, last: the destinations `first` to `last - 1`; 0 and D for the whole hop.
        fanout: f >= 1.
        loops: 1 to add a self loop as the last edge of every destination, else 0.
        key: key of this hop's random stream.
        starts, room, block_indptr: from `count_hop`.
        keys, chosen: `[ROUND]` uint64 and `[f * round_width(f)]` uint32 working memory.
        taken: uint8 zeros, one for each edge of the vertex with the most edges; used from `LARGE_FANOUT` on.
        positions: int64, filled at `edge & mask` with the position of each edge in the graph (-1 for a self loop).
            Its length is E, or 2^k for a ring that holds two rounds: 2^k >= 2 * round_width(f) * (f + loops).
        mask: 2^64 - 1, or 2^k - 1 for a ring.
        neighbours: `[E]`, filled with the source vertex of each edge (dtype of `indices`).
    """
    size, most = _U(last), _U(fanout)
    width = _U(round_width(fanout))
    previous = _U(first)
    for drawn in range(_U(first), size + width, width):
        end = min(drawn + width, size)
        if drawn < size:
            if fanout < LARGE_FANOUT:
                _draw_round(drawn, end - drawn, most, key, vertices, names, room, keys, chosen)
            elif room[drawn]:
                _draw_one(_name(vertices, names, drawn), _U(room[drawn]), most, key, taken, chosen)
            count = end - drawn
            _place_draws(
                drawn, count, width, loops, vertices, starts, room, block_indptr, chosen, indices, positions, mask
            )
        edge, past = _U(block_indptr[previous]), _U(block_indptr[min(drawn, size)])
        _read_neighbours(edge, past, indices, positions, mask, neighbours)
        previous = min(drawn, size)


@compiled(nogil=True)
def copy_hop(
    indices: np.ndarray,
    vertices: np.ndarray,
    first: int,
    last: int,
    loops: int,
    starts: np.ndarray,
    block_indptr: np.ndarray,
    positions: np.ndarray,
    neighbours: np.ndarray,
) -> None:
    """`sample_hop` without a fanout: all edges in canonical order; `positions` `[E]`, or empty if not needed."""
    furthest = _U(last) - _1
    for i in range(_U(first), _U(last)):
        prefetch(indices, starts[min(i + _AHEAD, furthest)])
        edge, end = _U(block_indptr[i]), _U(block_indptr[i + _1] - loops)
        start = _U(starts[i])
        for j in range(end - edge):
            neighbours[edge + j] = indices[start + j]
        if loops:
            neighbours[end] = vertices[i]
        if positions.size:
            for j in range(end - edge):
                positions[edge + j] = start + j
            if loops:
                positions[end] = -1


@compiled(nogil=True)
def relabel_sources(
    neighbours: np.ndarray, table: np.ndarray, base: int, vertices: np.ndarray, count: int, sources: np.ndarray
) -> int:
    """Second loop of Algorithm 1: turn vertices into positions, and append new vertices in order of first appearance.

    The position of a vertex of this batch is `table[v] - base`. Entries of earlier batches are below `base`, so the
    table is never cleared between batches. There are no branches, because it cannot be predicted whether a vertex is
    new.

    Args:
        neighbours: `[E]` source vertex of each edge.
        table: `[V]` int32, the map M.
        base: base of this batch in the table.
        vertices: vertices of the batch, with space for all new vertices and one more.
        count: number of vertices in `vertices` so far.
        sources: `[E]` int32, filled with positions in `vertices`; may be `neighbours` itself.

    Returns:
        The new number of vertices.
    """
    offset, known = np.int64(base), np.int64(count)
    last = _U(neighbours.size) - _1
    for edge in range(_U(neighbours.size)):
        prefetch(table, neighbours[min(edge + _AHEAD, last)])
        vertex = neighbours[edge]
        position = np.int64(table[_U(vertex)]) - offset
        new = position >> 63  # -1 if the entry is older than this batch, else 0
        position ^= (position ^ known) & new
        table[_U(vertex)] = offset + position
        vertices[_U(known)] = vertex
        known -= new
        sources[edge] = position
    return int(known)


@compiled(nogil=True)
def take_or_missing(values: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """`values[positions]`, or -1 where a position is negative."""
    taken = np.empty(positions.size, values.dtype)
    for i in range(positions.size):
        taken[i] = values[_U(positions[i])] if positions[i] >= 0 else -1
    return taken


@compiled(nogil=True)
def append_self_loops(
    indptr: np.ndarray, sources: np.ndarray, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A block's `(indptr, sources, positions)` after a self loop with position -1 is appended to each destination."""
    num_dst = indptr.size - 1
    looped_indptr = indptr + np.arange(num_dst + 1)
    looped, places = np.empty(sources.size + num_dst, sources.dtype), np.empty(sources.size + num_dst, np.int64)
    for dst in range(num_dst):
        start, end = looped_indptr[dst], looped_indptr[dst + 1] - 1
        looped[start:end] = sources[indptr[dst] : indptr[dst + 1]]
        places[start:end] = positions[indptr[dst] : indptr[dst + 1]]
        looped[end], places[end] = dst, -1
    return looped_indptr, looped, places


@compiled(nogil=True)
def largest_degree(indptr: np.ndarray) -> int:
    """The largest number of edges of one destination."""
    largest = np.int64(0)
    for vertex in range(indptr.size - 1):
        largest = max(largest, indptr[vertex + 1] - indptr[vertex])
    return int(largest)
