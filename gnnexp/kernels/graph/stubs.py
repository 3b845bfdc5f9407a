"""Edges of the configuration model (Bollobás 1980; Newman, "Networks", chapter 12), computed and never stored.

Vertices have *places* `0..V-1`. A level l has blocks of `sizes[l]` consecutive places. `bounds[l, p] .. bounds[l, p+1]`
are the stubs of place p at this level, so the stubs of a block are consecutive too. In an undirected graph, the stubs
of a block are matched by an involution. In a directed one, a stub is an in-edge. Its source is the vertex at a position
in the cumulated out-weights of the block, and a permutation spreads the in-stubs evenly over these positions.

`Stubs`, the argument of most functions, is a tuple (`gnnexp.graph.stubs` makes it):
(bounds, ends, offsets, index, index_starts, shifts, sizes, keys, num_nodes, directed, scrambled, id_key):

- bounds: `[L * (V + 1)]` int64, all levels one after the other.
- ends: what is searched for a source: `bounds`, or the `[V + 1]` int64 cumulated weights of a directed graph.
- offsets: `[L]` where a level begins in `ends`.
- index, index_starts, shifts: entry `index_starts[l] + (x >> shifts[l])` of `index` (int32) is the place that holds the
  first value with the same bits as x.
- sizes: `[L]` int64 places of a block.
- keys: `[L]` uint64 keys of the levels.
- num_nodes: V.
- directed: whether edges have one direction.
- scrambled, id_key: whether ids are a keyed permutation of places, and its key.
"""

from __future__ import annotations

import numba
import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import absorb, draw
from gnnexp.kernels.graph.permutation import bits_of, permuted, unpermuted
from gnnexp.kernels.prefetch import prefetch

Stubs = tuple[
    np.ndarray,
    np.ndarray,
    np.ndarray,
    np.ndarray,
    np.ndarray,
    np.ndarray,
    np.ndarray,
    np.ndarray,
    int,
    bool,
    bool,
    np.uint64,
]
# Edges whose cache misses overlap.
_GROUP = 64
_0 = np.uint64(0)


@compiled(inline="always")
def partner(stub: int, low: int, high: int, key: np.uint64) -> np.int64:
    """The stub of `low .. high - 1` that `stub` is matched with: an involution. A stub that is left is its own."""
    count = high - low
    bits, own = bits_of(count), absorb(key, np.uint64(low))
    other = permuted(stub - low, count, bits, own) ^ 1
    return np.int64(stub if other >= count else low + unpermuted(other, count, bits, own))


@compiled(inline="always")
def position(stub: int, low: int, high: int, total: int, key: np.uint64) -> np.int64:
    """The position in `0 .. total - 1` of an in-stub of `low .. high - 1`: the stubs are spread over it evenly.

    It is floor(P(stub) total / n) + shift, with a random permutation P and one shift below total / n for all stubs. A
    stretch of weight w then has w n / total stubs, rounded up or down, and exactly that number in the mean. The product
    is divided in two steps, because it can have more than 64 bits; n is below 2^32.
    """
    count = high - low
    own = absorb(key, np.uint64(low))
    n, whole = np.uint64(count), np.uint64(total)
    image = np.uint64(permuted(stub - low, count, bits_of(count), own))
    quotient, rest = whole // n, whole % n
    shift = draw(own, _0) % (quotient + np.uint64(rest > _0))
    return np.int64(image * quotient + (image * rest) // n + shift)


@compiled()
def partners(low: int, high: int, key: np.uint64) -> np.ndarray:
    """The partner `[n]` int64 of each stub of a block."""
    found = np.empty(high - low, np.int64)
    for i in range(found.size):
        found[i] = partner(low + i, low, high, key)
    return found


@compiled(inline="always")
def vertex_at(place: int, num_nodes: int, scrambled: bool, id_key: np.uint64) -> np.int64:
    """The id of the vertex at a place."""
    return permuted(place, num_nodes, bits_of(num_nodes), id_key) if scrambled else np.int64(place)


@compiled(inline="always")
def place_of_vertex(vertex: int, num_nodes: int, scrambled: bool, id_key: np.uint64) -> np.int64:
    """The place of the vertex with an id."""
    return unpermuted(vertex, num_nodes, bits_of(num_nodes), id_key) if scrambled else np.int64(vertex)


@compiled(nogil=True, parallel=True)
def places(num_nodes: int, scrambled: bool, id_key: np.uint64) -> np.ndarray:
    """The place `[V]` int32 of each id."""
    found = np.empty(num_nodes, np.int32)
    for vertex in numba.prange(num_nodes):
        found[vertex] = place_of_vertex(vertex, num_nodes, scrambled, id_key)
    return found


@compiled(nogil=True)
def fill_index(ends: np.ndarray, shift: int, index: np.ndarray) -> None:
    """Write the largest p with `ends[p] <= i << shift` to `index[i]`; `ends` `[V + 1]` ascends from 0."""
    place, last = np.int64(0), ends.size - 2
    for i in range(index.size):
        while place < last and ends[place + 1] <= np.int64(i) << shift:
            place += 1
        index[i] = place


@compiled(inline="always")
def _wanted(level: int, place: int, offset: int, stubs: Stubs) -> np.int64:
    """What to search in `ends` for the source of a place's stub number `offset` of a level."""
    bounds, ends, _, _, _, _, sizes, keys, num_nodes, directed, _, _ = stubs
    first = place // sizes[level] * sizes[level]
    last = min(num_nodes, first + sizes[level])
    row = level * (num_nodes + 1)
    low, high, stub = bounds[row + first], bounds[row + last], bounds[row + place] + offset
    if directed:
        return ends[first] + position(stub, low, high, ends[last] - ends[first], keys[level])
    return partner(stub, low, high, keys[level])


@compiled(inline="always")
def _find(count: int, levels: np.ndarray, wanted: np.ndarray, edges: np.ndarray, stubs: Stubs, ids: np.ndarray) -> None:
    """Write the ids of the vertices that hold the first `count` of `wanted` values to `ids[edges]`."""
    _, ends, offsets, index, index_starts, shifts, _, _, num_nodes, _, scrambled, id_key = stubs
    for i in range(count):
        prefetch(index, index_starts[levels[i]] + (wanted[i] >> shifts[levels[i]]))
    for i in range(count):
        cell = index_starts[levels[i]] + (wanted[i] >> shifts[levels[i]])
        prefetch(ends, offsets[levels[i]] + (np.int64(index[cell]) + np.int64(index[cell + 1])) // 2)
    for i in range(count):
        cell, offset = index_starts[levels[i]] + (wanted[i] >> shifts[levels[i]]), offsets[levels[i]]
        low, high = np.int64(index[cell]), np.int64(index[cell + 1]) + 1
        while high - low > 1:
            middle = (low + high) >> 1
            if ends[offset + middle] <= wanted[i]:
                low = middle
            else:
                high = middle
        ids[edges[i]] = vertex_at(low, num_nodes, scrambled, id_key)


@compiled(nogil=True, parallel=True)
def fill_rows(first: int, bounds: np.ndarray, stubs: Stubs, sources: np.ndarray) -> None:
    """Write the sources of all in-edges of the vertices with ids `first, first + 1, …`, in the order of their stubs.

    Args:
        first: id of the first vertex.
        bounds: `[n + 1]` int64 bounds of the vertices' edges in `sources`.
        stubs: see this module.
        sources: `[E]` int32, filled.
    """
    num_levels, num_nodes, scrambled, id_key = stubs[6].size, stubs[8], stubs[10], stubs[11]
    parts = min(256, bounds.size - 1)
    for part in numba.prange(parts):
        levels, wanted, edges = np.empty(_GROUP, np.int64), np.empty(_GROUP, np.int64), np.empty(_GROUP, np.int64)
        count = 0
        for row in range((bounds.size - 1) * part // parts, (bounds.size - 1) * (part + 1) // parts):
            place = place_of_vertex(first + row, num_nodes, scrambled, id_key)
            edge = bounds[row]
            for level in range(num_levels):
                begin = level * (num_nodes + 1) + place
                for offset in range(stubs[0][begin + 1] - stubs[0][begin]):
                    levels[count], wanted[count] = level, _wanted(level, place, offset, stubs)
                    edges[count] = edge
                    edge, count = edge + 1, count + 1
                    if count == _GROUP:
                        _find(count, levels, wanted, edges, stubs, sources)
                        count = 0
        _find(count, levels, wanted, edges, stubs, sources)


@compiled(nogil=True)
def find_sources(
    vertices: np.ndarray,
    first: int,
    last: int,
    loops: int,
    starts: np.ndarray,
    block_indptr: np.ndarray,
    positions: np.ndarray,
    stubs: Stubs,
    neighbours: np.ndarray,
) -> None:
    """Write the sources of the edges that the destinations `first` to `last - 1` of a hop have drawn.

    Args:
        vertices: vertices of the batch.
        first, last: range of destinations.
        loops: 1 if the last edge of every destination is an added self loop, else 0.
        starts: `[D]` position in the graph at which the edges of each destination start.
        block_indptr: `[D + 1]` bounds of the edges that each destination has drawn.
        positions: `[E]` int64 position in the graph of every edge; that of a self loop becomes -1.
        stubs: see this module.
        neighbours: `[E]`, filled with the source of every edge.
    """
    num_levels, num_nodes, scrambled, id_key = stubs[6].size, stubs[8], stubs[10], stubs[11]
    levels, wanted, edges = np.empty(_GROUP, np.int64), np.empty(_GROUP, np.int64), np.empty(_GROUP, np.int64)
    count = 0
    for i in range(first, last):
        place = place_of_vertex(vertices[i], num_nodes, scrambled, id_key)
        end = block_indptr[i + 1] - loops
        for edge in range(block_indptr[i], end):
            offset, level = positions[edge] - starts[i], 0
            while True:
                begin = level * (num_nodes + 1) + place
                here = stubs[0][begin + 1] - stubs[0][begin]
                if offset < here or level == num_levels - 1:
                    break
                offset -= here
                level += 1
            levels[count], wanted[count], edges[count] = level, _wanted(level, place, offset, stubs), edge
            count += 1
            if count == _GROUP:
                _find(count, levels, wanted, edges, stubs, neighbours)
                count = 0
        if loops:
            neighbours[end], positions[end] = vertices[i], -1
    _find(count, levels, wanted, edges, stubs, neighbours)


@compiled(nogil=True, parallel=True)
def sort_sources(first: int, bounds: np.ndarray, sources: np.ndarray, surplus: np.ndarray) -> None:
    """Sort every row, and count its self loops and its further parallel edges to `surplus` `[2, n]` int32.

    A loop that is repeated counts as a loop only. See `fill_rows` for the other arguments.
    """
    for row in numba.prange(bounds.size - 1):
        values = sources[bounds[row] : bounds[row + 1]]
        values.sort()
        loops, parallel = 0, 0
        for i in range(values.size):
            is_loop = values[i] == first + row
            loops += is_loop
            parallel += not is_loop and i > 0 and values[i] == values[i - 1]
        surplus[0, row], surplus[1, row] = loops, parallel


@compiled(nogil=True, parallel=True)
def keep_simple(first: int, bounds: np.ndarray, sources: np.ndarray, kept_bounds: np.ndarray, kept: np.ndarray) -> None:
    """Copy the edges of sorted rows without self loops and repetitions to `kept`, at `kept_bounds` `[n + 1]`."""
    for row in numba.prange(bounds.size - 1):
        place = kept_bounds[row]
        for i in range(bounds[row], bounds[row + 1]):
            if sources[i] != first + row and (i == bounds[row] or sources[i] != sources[i - 1]):
                kept[place] = sources[i]
                place += 1
