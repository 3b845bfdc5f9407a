"""Restreaming: vertices one by one, each with all its in-edges, to the part that scores best by what is known so far.

Scores: LDG (Stanton & Kliot, KDD 2012) and Fennel (Tsourakakis et al., WSDM 2014). Passes: Nishimura & Ugander, KDD
2013: the parts are empty again at the start of a pass, so a cap that can be held in the first one can be held in all;
neighbours not met yet in this pass count where the last one has put them.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.prefetch import prefetch
from gnnexp.kernels.stream import AHEAD


@compiled(inline="always")
def _worth(found: int, size: int, fennel: bool, penalty: float, most: int) -> float:
    """Score of a part of `size` vertices that has `found` in-neighbours."""
    return found - penalty if fennel else found * (1.0 - size / most)


@compiled(nogil=True)
def stream_vertices(
    indptr: np.ndarray, indices: np.ndarray, order: np.ndarray, owners: np.ndarray, sizes: np.ndarray,
    loads: np.ndarray, fennel: bool, alpha: float, gamma: float, max_vertices: int, max_edges: int,
) -> int:
    """One pass; how many vertices changed their part.

    A vertex goes to the best of the parts where it fits: vertices and in-edges. If its in-edges fit nowhere, to the
    part with the fewest in-edges of those with room for a vertex: `max_edges` is exceeded, see `unload`.

    Args:
        indptr: `[V + 1]` int64.
        indices: `[E]` in-neighbours.
        order: `[V]` in which vertices come, or empty for that of their ids.
        owners: `[V]` parts of the last pass or -1, changed.
        sizes: `[p]` int64, receives vertices of every part.
        loads: `[p]` int64, receives in-edges.
        fennel: its score, otherwise LDG's.
        alpha: of Fennel: a part of n vertices costs alpha n^gamma.
        gamma: of Fennel.
        max_vertices: of a part; all parts together take V.
        max_edges: of a part, in-edges.
    """
    num_nodes, num_parts, last = indptr.size - 1, sizes.size, indices.size - 1
    counts, penalties = np.zeros(num_parts, np.int64), np.zeros(num_parts)
    sizes[:] = 0
    loads[:] = 0
    moved = 0
    for place in range(num_nodes):
        vertex = np.int64(order[place]) if order.size > 0 else place
        if order.size > 0:
            far, near = min(place + 8, num_nodes - 1), min(place + 4, num_nodes - 1)
            prefetch(indptr, order[far])
            prefetch(indices, indptr[order[near]])
        first, end = indptr[vertex], indptr[vertex + 1]
        for edge in range(first, end):
            prefetch(owners, indices[min(edge + AHEAD, last)])
            neighbour = indices[edge]
            part = owners[neighbour]
            if part >= 0 and neighbour != vertex:
                counts[part] += 1
        best, spare, best_score = -1, -1, 0.0
        for part in range(num_parts):
            found, counts[part] = counts[part], 0
            if sizes[part] >= max_vertices:
                continue
            if spare < 0 or loads[part] < loads[spare]:
                spare = part
            if loads[part] + (end - first) > max_edges:
                continue
            score = _worth(found, sizes[part], fennel, penalties[part], max_vertices)
            if best < 0 or score > best_score or (score == best_score and sizes[part] < sizes[best]):
                best, best_score = part, score
        part = spare if best < 0 else best
        moved += owners[vertex] != part
        owners[vertex] = part
        sizes[part] += 1
        loads[part] += end - first
        if fennel:
            penalties[part] = alpha * gamma * np.float64(sizes[part]) ** (gamma - 1.0)
    return moved


@compiled(nogil=True)
def _relieve(
    indptr: np.ndarray, vertex: int, owners: np.ndarray, sizes: np.ndarray, loads: np.ndarray, max_vertices: int,
    max_edges: int,
) -> bool:
    """Move a vertex to the part with the fewest in-edges where it fits, if there is one."""
    degree, target = indptr[vertex + 1] - indptr[vertex], -1
    for part in range(sizes.size):
        fits = sizes[part] < max_vertices and loads[part] + degree <= max_edges
        if fits and (target < 0 or loads[part] < loads[target]):
            target = part
    if target < 0:
        return False
    left = owners[vertex]
    owners[vertex] = target
    sizes[left] -= 1
    sizes[target] += 1
    loads[left] -= degree
    loads[target] += degree
    return True


@compiled(nogil=True)
def _exchange(
    indptr: np.ndarray, falling: np.ndarray, full: int, owners: np.ndarray, loads: np.ndarray, max_edges: int
) -> bool:
    """Swap a vertex of part `full` for one with fewer in-edges of another part, if that keeps the cap there.

    Of every other part the vertex with the fewest in-edges is offered: none leaves more room.
    """
    offers = np.full(loads.size, -1, np.int64)
    for place in range(falling.size - 1, -1, -1):
        part = owners[falling[place]]
        if offers[part] < 0:
            offers[part] = falling[place]
    for vertex in falling:
        if owners[vertex] != full:
            continue
        degree = indptr[vertex + 1] - indptr[vertex]
        for part in range(loads.size):
            offer = offers[part]
            if part == full or offer < 0:
                continue
            less = degree - (indptr[offer + 1] - indptr[offer])
            if less > 0 and loads[part] + less <= max_edges:
                owners[vertex], owners[offer] = part, full
                loads[part] += less
                loads[full] -= less
                return True
    return False


@compiled(nogil=True)
def unload(
    indptr: np.ndarray, falling: np.ndarray, owners: np.ndarray, sizes: np.ndarray, loads: np.ndarray,
    max_vertices: int, max_edges: int,
) -> int:
    """Vertices leave the parts that have more than `max_edges` in-edges, those with most first; what is still too much.

    Then they are exchanged for vertices with fewer in-edges, where moving is barred by `max_vertices`. To tell whether
    a cap can be held at all is bin packing: what is left (0 = held) need not be the least possible.

    Args:
        indptr: `[V + 1]` int64.
        falling: `[V]` int64 vertices, most in-edges first.
        owners: `[V]`, changed.
        sizes: `[p]` int64 vertices of every part, changed.
        loads: `[p]` int64 in-edges, changed.
        max_vertices: of a part; holds before and after.
        max_edges: of a part.
    """
    for vertex in falling:
        if loads[owners[vertex]] > max_edges:
            _relieve(indptr, vertex, owners, sizes, loads, max_vertices, max_edges)
    over = np.int64(0)
    for part in range(loads.size):
        while loads[part] > max_edges and _exchange(indptr, falling, part, owners, loads, max_edges):
            pass
        over = max(over, loads[part] - max_edges)
    return over


def warm_up() -> None:
    """Compile them for common types."""
    indptr, ids, order = np.array([0, 1, 2]), np.zeros(2, np.int32), np.arange(2)
    for owners in (np.zeros(2, np.int16), np.zeros(2, np.int32)):
        sizes, loads = np.zeros(1, np.int64), np.zeros(1, np.int64)
        stream_vertices(indptr, ids, order, owners, sizes, loads, True, 1.0, 1.5, 2, 2)
        unload(indptr, order, owners, sizes, loads, 2, 2)
