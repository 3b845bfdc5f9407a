"""Restreaming: vertices one by one, each with all its in-edges, to the part that scores best by what is known so far.

Scores: LDG (Stanton & Kliot, KDD 2012) and Fennel (Tsourakakis et al., WSDM 2014). Passes: Nishimura & Ugander, KDD
2013: the parts are empty again at the start of a pass, so a cap that can be held in the first one can be held in all;
neighbours not met yet in this pass count where the last one has put them.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.partitioners.clusters import ask_ahead

_ANY = np.iinfo(np.int64).max


@compiled(inline="always")
def _worth(found: int, mass: int, fennel: bool, penalty: float, most: int) -> float:
    """Score of a part of some mass that has `found` in-neighbours."""
    return found - penalty if fennel else found * (1.0 - mass / most)


@compiled(nogil=True)
def stream_vertices(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, masses: np.ndarray, loads: np.ndarray,
    order: np.ndarray, owners: np.ndarray, part_masses: np.ndarray, part_loads: np.ndarray, fennel: bool, alpha: float,
    gamma: float, max_mass: int, max_load: int,
) -> int:
    """One pass; how many vertices changed their part.

    A vertex goes to the best part where it fits, the lighter on ties, then the lowest; else to that with the least load
    where its mass fits (see `unload`), else to the lightest.

    Args:
        indptr: `[n + 1]` int64.
        indices: `[m]` in-neighbours.
        weights: `[m]` of edges, empty for 1 each.
        masses: `[n]` int64 of vertices, empty for 1 each.
        loads: `[n]` int64 in-edges of vertices, empty if those are the rows' lengths.
        order: `[n]` in which vertices come.
        owners: `[n]` parts of the last pass or -1, changed.
        part_masses: `[p]` int64, receives sums of masses.
        part_loads: `[p]` int64, of loads.
        fennel: its score, otherwise LDG's.
        alpha: of Fennel: a part of mass x costs alpha x^gamma.
        gamma: of Fennel.
        max_mass: of a part; all parts together can take all vertices.
        max_load: of a part.
    """
    num_parts, weighted, moved = part_masses.size, weights.size > 0, 0
    sums, penalties = np.zeros(num_parts, np.int64), np.zeros(num_parts)
    part_masses[:] = part_loads[:] = 0
    for place in range(order.size):
        ask_ahead(indptr, indices, order, place, owners)
        vertex = np.int64(order[place])
        for edge in range(indptr[vertex], indptr[vertex + 1]):
            part = owners[indices[edge]]
            if part >= 0 and indices[edge] != vertex:
                sums[part] += weights[edge] if weighted else 1
        mass = masses[vertex] if masses.size > 0 else 1
        load = loads[vertex] if loads.size > 0 else indptr[vertex + 1] - indptr[vertex]
        best, spare, lightest, most = -1, -1, 0, 0.0
        for part in range(num_parts):
            found, sums[part] = sums[part], 0
            if part_masses[part] < part_masses[lightest]:
                lightest = part
            if part_masses[part] + mass > max_mass:
                continue
            if spare < 0 or part_loads[part] < part_loads[spare]:
                spare = part
            if part_loads[part] + load > max_load:
                continue
            score = _worth(found, part_masses[part], fennel, penalties[part], max_mass)
            if best < 0 or score > most or (score == most and part_masses[part] < part_masses[best]):
                best, most = part, score
        part = best if best >= 0 else (spare if spare >= 0 else lightest)
        moved += owners[vertex] != part
        owners[vertex] = part
        part_masses[part] += mass
        part_loads[part] += load
        if fennel:
            penalties[part] = alpha * gamma * np.float64(part_masses[part]) ** (gamma - 1.0)
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


@compiled(inline="always")
def _next_offer(falling: np.ndarray, place: int, owners: np.ndarray, part: int) -> int:
    """Where the next vertex of `part` stands before `place`, going to more in-edges; -1 without any."""
    place -= 1
    while place >= 0 and owners[falling[place]] != part:
        place -= 1
    return place


@compiled(nogil=True)
def _exchange(
    indptr: np.ndarray, falling: np.ndarray, full: int, owners: np.ndarray, loads: np.ndarray, max_edges: int
) -> int:
    """Swap vertices of part `full` for ones with fewer in-edges of other parts, until the cap holds; how many.

    Vertices come once, most in-edges first. Every other part offers the vertex with the fewest in-edges that it has not
    given yet: none leaves more room.
    """
    offers, swapped = np.empty(loads.size, np.int64), 0
    for part in range(loads.size):
        offers[part] = _next_offer(falling, falling.size, owners, part)
    for vertex in falling:
        if loads[full] <= max_edges:
            break
        if owners[vertex] != full:
            continue
        degree = indptr[vertex + 1] - indptr[vertex]
        for part in range(loads.size):
            if part == full or offers[part] < 0:
                continue
            offer = falling[offers[part]]
            less = degree - (indptr[offer + 1] - indptr[offer])
            if less > 0 and loads[part] + less <= max_edges:
                owners[vertex], owners[offer] = part, full
                loads[part] += less
                loads[full] -= less
                offers[part] = _next_offer(falling, offers[part], owners, part)
                swapped += 1
                break
    return swapped


@compiled(nogil=True)
def unload(
    indptr: np.ndarray, falling: np.ndarray, owners: np.ndarray, sizes: np.ndarray, loads: np.ndarray,
    max_vertices: int, max_edges: int,
) -> int:
    """Vertices leave the parts that have too much, those with most in-edges first; in-edges that are still too many.

    What cannot move because there is no room for a vertex is exchanged for vertices with fewer in-edges. `max_vertices`
    holds afterwards. To tell whether `max_edges` can be held at all is bin packing: what is left need not be least.

    Args:
        indptr: `[V + 1]` int64.
        falling: `[V]` vertices, most in-edges first.
        owners: `[V]`, changed.
        sizes: `[p]` int64 vertices of every part, changed.
        loads: `[p]` int64 in-edges, changed.
        max_vertices: of a part; all parts together can take V.
        max_edges: of a part.
    """
    for vertex in falling:
        if loads[owners[vertex]] > max_edges or sizes[owners[vertex]] > max_vertices:
            _relieve(indptr, vertex, owners, sizes, loads, max_vertices, max_edges)
    for vertex in falling[::-1]:
        if sizes[owners[vertex]] > max_vertices:
            _relieve(indptr, vertex, owners, sizes, loads, max_vertices, _ANY)
    over = np.int64(0)
    for part in range(loads.size):
        while loads[part] > max_edges and _exchange(indptr, falling, part, owners, loads, max_edges) > 0:
            pass
        over = max(over, loads[part] - max_edges)
    return int(over)


def warm_up() -> None:
    """Compile them for common types."""
    indptr, ids, none = np.array([0, 1, 2]), np.zeros(2, np.int32), np.empty(0, np.int64)
    for owners in (np.zeros(2, np.int16), np.zeros(2, np.int32)):
        sizes, loads = np.zeros(1, np.int64), np.zeros(1, np.int64)
        stream_vertices(indptr, ids, none, none, none, ids, owners, sizes, loads, True, 1.0, 1.5, 2, 2)
        unload(indptr, ids, owners, sizes, loads, 2, 2)
