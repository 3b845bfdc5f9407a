"""Moving vertices between parts, one by one, where that cuts fewer edges or keeps fewer copies.

A part takes a vertex only if it fits: its mass (vertices) and its load (in-edges). A vertex leaves a part that has too
much of either for the best part where it fits, whatever that costs.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.partitioners.clusters import ask_ahead
from gnnexp.kernels.prefetch import prefetch

# Pins of a vertex in a part are counted in a byte; what reaches the end of it stays there until it is counted again.
_MOST = 255
_LOW, _HIGH, _ONE = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x8080808080808080), np.uint64(7)
PARTS_PER_WORD = 8
# Edges ahead whose pins are asked for, about as long as a line takes to come from L3.
_NETS_AHEAD = 12


@compiled(nogil=True)
def count_masses(owners: np.ndarray, masses: np.ndarray, totals: np.ndarray) -> None:
    """Sum `masses` `[n]` over every part's vertices into `totals` `[p]`."""
    totals[:] = 0
    for vertex in range(owners.size):
        totals[owners[vertex]] += masses[vertex]


@compiled(nogil=True)
def cut_weight(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, owners: np.ndarray) -> int:
    """Weight of the edges between parts."""
    cut = np.int64(0)
    for vertex in range(indptr.size - 1):
        for edge in range(indptr[vertex], indptr[vertex + 1]):
            if owners[indices[edge]] != owners[vertex]:
                cut += weights[edge] if weights.size > 0 else 1
    return int(cut)


@compiled(nogil=True)
def move_by_edges(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, masses: np.ndarray, loads: np.ndarray,
    order: np.ndarray, owners: np.ndarray, part_masses: np.ndarray, part_loads: np.ndarray, max_mass: int,
    max_load: int,
) -> int:
    """Every vertex to the part that most of its edges come from, the lighter one on ties; how many moved.

    Args:
        indptr: `[n + 1]` int64.
        indices: `[m]` in-neighbours.
        weights: `[m]` of edges, empty for 1 each.
        masses: `[n]` int64 of vertices, empty for 1 each.
        loads: `[n]` int64 in-edges of vertices, empty if those are the rows' lengths.
        order: `[n]` in which vertices come.
        owners: `[n]` parts, changed.
        part_masses: `[p]` int64, changed.
        part_loads: `[p]` int64, changed.
        max_mass: of a part.
        max_load: of a part.
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
            found, sums[part] = sums[part], 0
            if found < most or part == own or part_masses[part] + mass > max_mass:
                continue
            if part_loads[part] + load <= max_load and (
                found > most or part_masses[part] + (mass if best == own else 0) < part_masses[best]
            ):
                best, most = part, found
        if best != own:
            owners[vertex] = best
            part_masses[own] -= mass
            part_masses[best] += mass
            part_loads[own] -= load
            part_loads[best] += load
            moved += 1
    return moved


@compiled(inline="always")
def _pin(pins: np.ndarray, at: int, count: int) -> None:
    """Add to a byte that ends at `_MOST`, where it stays."""
    if pins[at] != _MOST:
        pins[at] = max(0, min(_MOST, np.int64(pins[at]) + count))


@compiled(nogil=True)
def count_pins(indptr: np.ndarray, indices: np.ndarray, owners: np.ndarray, stride: int, pins: np.ndarray) -> None:
    """Out-neighbours of every vertex in every part, itself included, up to 255, into `pins` `[V stride]` uint8.

    A part with any has the vertex, of its own or as a copy. Parallel edges count each, self loops do not.
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
    """Add to each byte of `present` whether the byte of `words` is not 0: 8 parts at a time."""
    for word in range(count):
        found = words[first + word]
        present[word] += ((((found & _LOW) + _LOW) | found) & _HIGH) >> _ONE


@compiled(inline="always")
def _flush(present: np.ndarray, totals: np.ndarray) -> None:
    """Add the bytes of `present` to `totals`, and clear them."""
    for word in range(present.size):
        found = present[word]
        for byte in range(PARTS_PER_WORD):
            totals[word * PARTS_PER_WORD + byte] += np.int64(found >> np.uint64(8 * byte)) & 255
        present[word] = np.uint64(0)


@compiled(inline="always")
def _repin(indptr: np.ndarray, indices: np.ndarray, vertex: int, left: int, joined: int, stride: int,
           pins: np.ndarray) -> None:
    """`vertex` has moved: it pins itself and its in-neighbours to another part."""
    _pin(pins, vertex * stride + left, -1)
    _pin(pins, vertex * stride + joined, 1)
    for edge in range(indptr[vertex], indptr[vertex + 1]):
        if indices[edge] != vertex:
            row = np.int64(indices[edge]) * stride
            _pin(pins, row + left, -1)
            _pin(pins, row + joined, 1)


@compiled(inline="always")
def _look(
    indptr: np.ndarray, indices: np.ndarray, vertex: int, owners: np.ndarray, pins: np.ndarray, words: np.ndarray,
    present: np.ndarray, holds: np.ndarray, sums: np.ndarray,
) -> tuple[int, int]:
    """How many a vertex needs, itself included, and how many of these its part would drop without it.

    `holds` receives how many of them each part has, `sums` the edges from each. A source that the part has for its own
    sake is pinned there by itself, so it is not dropped. `present` is room of zeros.
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
    indptr: np.ndarray, indices: np.ndarray, order: np.ndarray, owners: np.ndarray, part_masses: np.ndarray,
    part_loads: np.ndarray, max_mass: int, max_load: int, pins: np.ndarray, words: np.ndarray, tilt: float,
) -> int:
    """Every vertex to the part where parts hold the fewest vertices in all (`replication_full`); how many moved.

    A vertex that moves takes its in-neighbours along: those that the part has not yet are copied, and those that only
    it needed are dropped where it leaves. `tilt` edges fewer cut are worth as much as one copy fewer: where copies do
    not differ, edges show the way to where they do.

    Args:
        indptr: `[V + 1]` int64.
        indices: `[E]` in-neighbours, rows sorted.
        order: `[V]` in which vertices come.
        owners: `[V]` parts, changed.
        part_masses: `[p]` int64 vertices, changed.
        part_loads: `[p]` int64 in-edges, changed.
        max_mass: of a part.
        max_load: of a part.
        pins: `[V stride]` uint8 (`count_pins`), changed.
        words: `[V stride / 8]` uint64, the same memory.
        tilt: weight of an edge, in copies.
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
            found, sums[part] = sums[part], 0
            if part == own or part_masses[part] >= max_mass or part_loads[part] + load > max_load:
                continue
            gain = drops - (needs - holds[part]) + tilt * (found - inside)
            if gain > most or (gain == most and part_masses[part] + (best == own) < part_masses[best]):
                best, most = part, gain
        if best != own:
            owners[vertex] = best
            part_masses[own] -= 1
            part_masses[best] += 1
            part_loads[own] -= load
            part_loads[best] += load
            _repin(indptr, indices, vertex, own, best, stride, pins)
            moved += 1
    return moved


def warm_up() -> None:
    """Compile them for common types."""
    indptr, ids, none = np.array([0, 1, 2]), np.array([1, 0], np.int32), np.empty(0, np.int64)
    one, order, words = np.ones(2, np.int64), np.arange(2, dtype=np.int32), np.zeros(2, np.uint64)
    owners, masses, loads = np.zeros(2, np.int16), np.zeros(1, np.int64), np.zeros(1, np.int64)
    count_masses(owners, one, masses)
    for weights, some in ((none, none), (one, one)):
        move_by_edges(indptr, ids, weights, some, some, order, owners, masses, loads, 2, 2)
    cut_weight(indptr, ids, one, owners)
    count_pins(indptr, ids, owners, PARTS_PER_WORD, words.view(np.uint8))
    move_by_copies(indptr, ids, order, owners, masses, loads, 2, 2, words.view(np.uint8), words, 0.1)
