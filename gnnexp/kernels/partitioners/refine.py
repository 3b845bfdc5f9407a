"""Move vertices between parts, one by one, if that cuts fewer edges or needs fewer copies.

A part takes a vertex only if the vertex fits in by its mass (number of vertices) and its load (in-edges). If a part
exceeds either limit, a vertex leaves it for the best part in which it fits, even if that is worse.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.partitioners.clusters import ask_ahead
from gnnexp.kernels.prefetch import prefetch

# The pins of a vertex in a part are counted in a byte. A count that reaches this limit stays there until pins are
# counted again.
_MOST = 255
_LOW, _HIGH, _ONE = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x8080808080808080), np.uint64(7)
PARTS_PER_WORD = 8
# Pins are prefetched this many edges ahead, about as long as a cache line takes to come from L3.
_NETS_AHEAD = 12


@compiled(nogil=True)
def cut_weight(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, owners: np.ndarray) -> int:
    """The total weight of the edges between different parts."""
    cut = np.int64(0)
    for vertex in range(indptr.size - 1):
        for edge in range(indptr[vertex], indptr[vertex + 1]):
            if owners[indices[edge]] != owners[vertex]:
                cut += weights[edge] if weights.size > 0 else 1
    return int(cut)


@compiled(inline="always")
def _move(
    vertex: int,
    left: int,
    joined: int,
    mass: int,
    load: int,
    owners: np.ndarray,
    part_masses: np.ndarray,
    part_loads: np.ndarray,
) -> None:
    """Move a vertex of mass `mass` and load `load` from part `left` to part `joined`."""
    owners[vertex] = joined
    part_masses[left] -= mass
    part_masses[joined] += mass
    part_loads[left] -= load
    part_loads[joined] += load


@compiled(nogil=True)
def move_by_edges(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray,
    masses: np.ndarray,
    loads: np.ndarray,
    order: np.ndarray,
    owners: np.ndarray,
    part_masses: np.ndarray,
    part_loads: np.ndarray,
    max_mass: int,
    max_load: int,
) -> int:
    """Move every vertex to the part with the most edges to it, the lighter part on ties; returns how many have moved.

    Args:
        indptr: `[n + 1]` int64, in-edges of each vertex.
        indices: `[m]` in-neighbours.
        weights: `[m]` weights of edges, empty for 1 each.
        masses: `[n]` int64 masses of vertices, empty for 1 each.
        loads: `[n]` int64 in-edges of vertices, empty if these are the lengths of the rows.
        order: `[n]` order in which vertices are visited.
        owners: `[n]` part of each vertex, changed.
        part_masses: `[p]` int64 sum of masses of each part, changed.
        part_loads: `[p]` int64 sum of loads of each part, changed.
        max_mass: largest mass of a part.
        max_load: largest load of a part.
    """
    num_parts, weighted, moved = part_masses.size, weights.size > 0, 0
    sums = np.zeros(num_parts, np.int64)
    for place in range(order.size):
        ask_ahead(indptr, indices, order, place, owners)
        vertex = np.int64(order[place])
        for edge in range(indptr[vertex], indptr[vertex + 1]):
            if indices[edge] != vertex:
                sums[owners[indices[edge]]] += weights[edge] if weighted else 1
        own, mass = owners[vertex], masses[vertex] if masses.size > 0 else 1
        load = loads[vertex] if loads.size > 0 else indptr[vertex + 1] - indptr[vertex]
        most = sums[own]
        if part_masses[own] > max_mass or part_loads[own] > max_load:
            most = -1
        best = own
        for part in range(num_parts):
            count, sums[part] = sums[part], 0
            if count < most or part == own or part_masses[part] + mass > max_mass:
                continue
            if part_loads[part] + load <= max_load and (
                count > most or part_masses[part] + (mass if best == own else 0) < part_masses[best]
            ):
                best, most = part, count
        if best != own:
            _move(vertex, own, best, mass, load, owners, part_masses, part_loads)
            moved += 1
    return moved


@compiled(inline="always")
def _pin(pins: np.ndarray, at: int, count: int) -> None:
    """Add `count` to a byte; a byte that has reached `_MOST` keeps this value."""
    if pins[at] != _MOST:
        pins[at] = max(0, min(_MOST, np.int64(pins[at]) + count))


@compiled(nogil=True)
def count_pins(indptr: np.ndarray, indices: np.ndarray, owners: np.ndarray, stride: int, pins: np.ndarray) -> None:
    """Count the out-neighbours of every vertex in every part, up to 255, in `pins` `[V stride]` uint8.

    A vertex counts as its own neighbour. A part with a count above 0 holds the vertex, as its owner or as a copy.
    Parallel edges count each; self loops do not count.
    """
    pins[:] = 0
    for vertex in range(indptr.size - 1):
        part = np.int64(owners[vertex])
        _pin(pins, vertex * stride + part, 1)
        for edge in range(indptr[vertex], indptr[vertex + 1]):
            prefetch(pins, np.int64(indices[min(edge + _NETS_AHEAD, indices.size - 1)]) * stride)
            if indices[edge] != vertex:
                _pin(pins, np.int64(indices[edge]) * stride + part, 1)


@compiled(inline="always")
def _add_present(words: np.ndarray, first: int, count: int, present: np.ndarray) -> None:
    """Add 1 to each byte of `present` whose byte in `words` is not 0, for 8 parts at a time."""
    for word in range(count):
        found = words[first + word]
        present[word] += ((((found & _LOW) + _LOW) | found) & _HIGH) >> _ONE


@compiled(inline="always")
def _flush(present: np.ndarray, totals: np.ndarray) -> None:
    """Add the bytes of `present` to `totals`, and set them to 0."""
    for word in range(present.size):
        found = present[word]
        for byte in range(PARTS_PER_WORD):
            totals[word * PARTS_PER_WORD + byte] += np.int64(found >> np.uint64(8 * byte)) & 255
        present[word] = np.uint64(0)


@compiled(inline="always")
def _repin(
    indptr: np.ndarray, indices: np.ndarray, vertex: int, left: int, joined: int, stride: int, pins: np.ndarray
) -> None:
    """Update `pins` after `vertex` has moved: the vertex now pins itself and its in-neighbours to another part."""
    _pin(pins, vertex * stride + left, -1)
    _pin(pins, vertex * stride + joined, 1)
    for edge in range(indptr[vertex], indptr[vertex + 1]):
        if indices[edge] != vertex:
            row = np.int64(indices[edge]) * stride
            _pin(pins, row + left, -1)
            _pin(pins, row + joined, 1)


@compiled(inline="always")
def _look(
    indptr: np.ndarray,
    indices: np.ndarray,
    vertex: int,
    owners: np.ndarray,
    pins: np.ndarray,
    words: np.ndarray,
    present: np.ndarray,
    holds: np.ndarray,
    sums: np.ndarray,
) -> tuple[int, int]:
    """The number of vertices that `vertex` needs in its part, and how many of them the part can drop without `vertex`.

    A vertex needs itself and its in-neighbours. `holds` receives the number of them that each part holds, `sums` the
    number of edges from each part. A source that the part owns pins itself there, so it is not dropped. `present` is
    working memory of zeros.
    """
    num_words, own, end = present.size, np.int64(owners[vertex]), indptr[vertex + 1]
    stride, edge = num_words * PARTS_PER_WORD, indptr[vertex]
    holds[:] = 0
    _add_present(words, vertex * num_words, num_words, present)
    needs, drops, pending = 1, np.int64(pins[vertex * stride + own] == 1), 1
    while edge < end:
        prefetch(words, np.int64(indices[min(edge + _NETS_AHEAD, indices.size - 1)]) * num_words)
        source, first = np.int64(indices[edge]), edge
        while edge < end and indices[edge] == source:
            edge += 1
        if source == vertex:
            continue
        drops += pins[source * stride + own] == edge - first
        sums[owners[source]] += edge - first
        _add_present(words, source * num_words, num_words, present)
        needs += 1
        pending += 1
        if pending == _MOST:
            _flush(present, holds)
            pending = 0
    _flush(present, holds)
    return needs, int(drops)


@compiled(nogil=True)
def move_by_copies(
    indptr: np.ndarray,
    indices: np.ndarray,
    order: np.ndarray,
    owners: np.ndarray,
    part_masses: np.ndarray,
    part_loads: np.ndarray,
    max_mass: int,
    max_load: int,
    pins: np.ndarray,
    words: np.ndarray,
    tilt: float,
) -> int:
    """Move every vertex to the part that minimises the vertices held by all parts; returns how many have moved.

    This reduces `replication_full`. A vertex that moves needs its in-neighbours in the new part: missing ones are
    copied. Copies that only this vertex needed are dropped from the old part. One cut edge less counts as `tilt`
    copies less. So if moves do not differ in copies, vertices move towards their neighbours, and later moves save
    copies.

    Args:
        indptr: `[V + 1]` int64, in-edges of each vertex.
        indices: `[E]` in-neighbours, rows sorted.
        order: `[V]` order in which vertices are visited.
        owners: `[V]` part of each vertex, changed.
        part_masses: `[p]` int64 vertices of each part, changed.
        part_loads: `[p]` int64 in-edges of each part, changed.
        max_mass: most vertices of a part.
        max_load: most in-edges of a part.
        pins: `[V stride]` uint8 from `count_pins`, changed.
        words: `[V stride / 8]` uint64, the memory of `pins`.
        tilt: value of one cut edge, in copies.
    """
    num_parts, moved = part_masses.size, 0
    num_words = words.size // owners.size
    stride = num_words * PARTS_PER_WORD
    present, sums = np.zeros(num_words, np.uint64), np.zeros(num_parts, np.int64)
    holds = np.zeros(stride, np.int64)
    for place in range(order.size):
        ask_ahead(indptr, indices, order, place, owners)
        vertex = np.int64(order[place])
        own, load = np.int64(owners[vertex]), indptr[vertex + 1] - indptr[vertex]
        needs, drops = _look(indptr, indices, vertex, owners, pins, words, present, holds, sums)
        best, most, inside = own, 0.0, sums[own]
        if part_masses[own] > max_mass or part_loads[own] > max_load:
            most = -np.inf
        for part in range(num_parts):
            count, sums[part] = sums[part], 0
            if part == own or part_masses[part] >= max_mass or part_loads[part] + load > max_load:
                continue
            gain = drops - (needs - holds[part]) + tilt * (count - inside)
            if gain > most or (gain == most and part_masses[part] + (best == own) < part_masses[best]):
                best, most = part, gain
        if best != own:
            _move(vertex, own, best, 1, load, owners, part_masses, part_loads)
            _repin(indptr, indices, vertex, own, best, stride, pins)
            moved += 1
    return moved


def warm_up() -> None:
    """Compile the kernels of this module for common types."""
    indptr, ids, none = np.array([0, 1, 2]), np.array([1, 0], np.int32), np.empty(0, np.int64)
    one, order, words = np.ones(2, np.int64), np.arange(2, dtype=np.int32), np.zeros(2, np.uint64)
    owners, masses, loads = np.zeros(2, np.int16), np.zeros(1, np.int64), np.zeros(1, np.int64)
    for weights, some in ((none, none), (one, one)):
        move_by_edges(indptr, ids, weights, some, some, order, owners, masses, loads, 2, 2)
    cut_weight(indptr, ids, one, owners)
    count_pins(indptr, ids, owners, PARTS_PER_WORD, words.view(np.uint8))
    move_by_copies(indptr, ids, order, owners, masses, loads, 2, 2, words.view(np.uint8), words, 0.1)
