"""Restreaming: vertices come one by one with all in-edges, and go to the part with the best score at that time.

Scores: LDG (Stanton & Kliot, KDD 2012) and Fennel (Tsourakakis et al., WSDM 2014). Passes: Nishimura & Ugander, KDD
2013. Every pass starts with empty parts, so a limit that holds in the first pass holds in all. Neighbours that have not
come in this pass count for their part of the last pass.
"""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.partitioners.clusters import ask_ahead

_ANY = np.iinfo(np.int64).max


@compiled(inline="always")
def _worth(count: int, mass: int, fennel: bool, penalty: float, most: int) -> float:
    """The score of a part with mass `mass` that has `count` in-neighbours of the vertex."""
    return count - penalty if fennel else count * (1.0 - mass / most)


@compiled(inline="always")
def _best_part(
    sums: np.ndarray,
    mass: int,
    load: int,
    part_masses: np.ndarray,
    part_loads: np.ndarray,
    penalties: np.ndarray,
    fennel: bool,
    max_mass: int,
    max_load: int,
) -> int:
    """The part of a vertex with `sums` `[p]` edges from each part, which become 0. See `stream_vertices`."""
    best, spare, lightest, most = -1, -1, 0, 0.0
    for part in range(part_masses.size):
        count, sums[part] = sums[part], 0
        if part_masses[part] < part_masses[lightest]:
            lightest = part
        if part_masses[part] + mass > max_mass:
            continue
        if spare < 0 or part_loads[part] < part_loads[spare]:
            spare = part
        if part_loads[part] + load > max_load:
            continue
        score = _worth(count, part_masses[part], fennel, penalties[part], max_mass)
        if best < 0 or score > most or (score == most and part_masses[part] < part_masses[best]):
            best, most = part, score
    return best if best >= 0 else (spare if spare >= 0 else lightest)


@compiled(nogil=True)
def stream_vertices(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray,
    masses: np.ndarray,
    loads: np.ndarray,
    order: np.ndarray,
    owners: np.ndarray,
    part_masses: np.ndarray,
    part_loads: np.ndarray,
    fennel: bool,
    alpha: float,
    gamma: float,
    max_mass: int,
    max_load: int,
) -> int:
    """Run one pass; returns the number of vertices that changed their part.

    A vertex goes to the part with the best score in which it fits, the lighter part on ties, then the lowest. If it
    fits in no part, it goes to the part with the least load that has room for its mass (see `unload`). If there is no
    such part, it goes to the lightest part.

    Args:
        indptr: `[n + 1]` int64, in-edges of each vertex.
        indices: `[m]` in-neighbours.
        weights: `[m]` weights of edges, empty for 1 each.
        masses: `[n]` int64 masses of vertices, empty for 1 each.
        loads: `[n]` int64 in-edges of vertices, empty if these are the lengths of the rows.
        order: `[n]` order in which vertices come.
        owners: `[n]` part of each vertex in the last pass, or -1; changed.
        part_masses: `[p]` int64, filled with the sum of masses of each part.
        part_loads: `[p]` int64, filled with the sum of loads of each part.
        fennel: whether to use Fennel's score; otherwise LDG's.
        alpha, gamma: Fennel's factor and exponent: a part of mass x costs alpha x^gamma.
        max_mass: largest mass of a part; all parts together must have room for all vertices.
        max_load: largest load of a part.
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
        part = _best_part(sums, mass, load, part_masses, part_loads, penalties, fennel, max_mass, max_load)
        moved += owners[vertex] != part
        owners[vertex] = part
        part_masses[part] += mass
        part_loads[part] += load
        if fennel:
            penalties[part] = alpha * gamma * np.float64(part_masses[part]) ** (gamma - 1.0)
    return moved


@compiled(nogil=True)
def _relieve(
    indptr: np.ndarray,
    vertex: int,
    owners: np.ndarray,
    sizes: np.ndarray,
    loads: np.ndarray,
    max_vertices: int,
    max_edges: int,
) -> bool:
    """Move a vertex to the part with the fewest in-edges in which it fits; returns whether there is such a part."""
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
    """The position in `falling` of the next vertex of `part` before `place`, or -1; in-edges increase on the way."""
    place -= 1
    while place >= 0 and owners[falling[place]] != part:
        place -= 1
    return place


@compiled(nogil=True)
def _exchange(
    indptr: np.ndarray, falling: np.ndarray, full: int, owners: np.ndarray, loads: np.ndarray, max_edges: int
) -> int:
    """Swap vertices of part `full` for vertices of other parts with fewer in-edges, until `max_edges` holds.

    Returns the number of swaps. Every vertex of the part is tried once, most in-edges first. Every other part offers
    its vertex with the fewest in-edges that is not yet given away, because that swap moves the most in-edges.
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
    indptr: np.ndarray,
    falling: np.ndarray,
    owners: np.ndarray,
    sizes: np.ndarray,
    loads: np.ndarray,
    max_vertices: int,
    max_edges: int,
) -> int:
    """Move vertices out of parts that exceed a limit, most in-edges first; returns the remaining excess of in-edges.

    If no part has room for a vertex, it is swapped for a vertex with fewer in-edges. `max_vertices` holds afterwards.
    The result is the largest number of in-edges by which a part still exceeds `max_edges`. It need not be the lowest
    possible, because that is a bin packing problem.

    Args:
        indptr: `[V + 1]` int64, in-edges of each vertex.
        falling: `[V]` vertices, most in-edges first.
        owners: `[V]` part of each vertex, changed.
        sizes: `[p]` int64 vertices of every part, changed.
        loads: `[p]` int64 in-edges of every part, changed.
        max_vertices: most vertices of a part; all parts together must have room for V.
        max_edges: most in-edges of a part.
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
    """Compile the kernels of this module for common types."""
    indptr, ids, none = np.array([0, 1, 2]), np.zeros(2, np.int32), np.empty(0, np.int64)
    for owners in (np.zeros(2, np.int16), np.zeros(2, np.int32)):
        sizes, loads = np.zeros(1, np.int64), np.zeros(1, np.int64)
        stream_vertices(indptr, ids, none, none, none, ids, owners, sizes, loads, True, 1.0, 1.5, 2, 2)
        unload(indptr, ids, owners, sizes, loads, 2, 2)
