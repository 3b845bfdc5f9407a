"""Synthetic graphs as pure functions of (key, counter): endpoints, vertex order, features.

Random words become draws by +, -, *, / and sqrt of IEEE doubles only (no libm), so the same key gives the same graph on
every machine.

Vertices are drawn in a *latent* order: communities are contiguous, and similar vertices are near each other.
`scrambled` maps this order to vertex ids. A candidate edge is *local* or *global*. A local edge joins two vertices near
each other on the ring of a community, which closes triangles. A global edge follows the model of the generator.
"""

from __future__ import annotations

import numba
import numpy as np

from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import absorb, draw

# 52 bits: with 53, unit * n could round up to n.
_UNIT = 2.0**-52
_S12, _S16, _S32, _S48 = (np.uint64(bits) for bits in (12, 16, 32, 48))
_ONE, _LOW16 = np.uint64(1), np.uint64(0xFFFF)
# Sum of four uniform 16-bit words: mean 2 * 65535, variance 4 * (2^32 - 1) / 12.
_SUM_MEAN = np.float32(2 * 65535)
_SUM_SCALE = np.float32(1 / np.sqrt((2.0**32 - 1) / 3))
# Draws reserved for each candidate: kind, position, rank, rank or block, block.
_DRAWS = np.uint64(8)


@compiled(inline="always")
def unit(word: np.uint64) -> float:
    """Convert a random word to a double in [0, 1)."""
    return np.float64(word >> _S12) * _UNIT


@compiled(nogil=True, parallel=True)
def scrambled(key: np.uint64, count: int) -> np.ndarray:
    """A pseudo-random permutation of `0..count-1`, `[count]` int32, computed element by element.

    Four rounds of odd multiplication and xor-shift are a bijection on the next power of two. A value outside the range
    goes through the rounds again (Black & Rogaway, "Ciphers with arbitrary finite domains", 2002).
    """
    bits = 1
    while (1 << bits) < count:
        bits += 1
    mask, shift = np.uint64((1 << bits) - 1), np.uint64((bits + 1) // 2)
    factors, terms = np.empty(4, np.uint64), np.empty(4, np.uint64)
    for turn in range(4):
        factors[turn], terms[turn] = draw(key, np.uint64(turn)) | _ONE, draw(key, np.uint64(turn + 4))
    order = np.empty(count, np.int32)
    for i in numba.prange(count):
        x = np.uint64(i)
        while True:
            for turn in range(4):
                x = (x * factors[turn] + terms[turn]) & mask
                x ^= x >> shift
            if x < np.uint64(count):
                break
        order[i] = x
    return order


@compiled(inline="always")
def _near(position: int, start: int, size: int, window: int, word: np.uint64) -> np.int64:
    """Another position on the ring `start..start+size-1`, uniform within `window` steps in either direction."""
    steps = np.int64(unit(word) * (2 * window))
    offset = steps - window if steps < window else steps - window + 1
    return start + (position - start + offset + size) % size


@compiled(inline="always")
def _community(position: int, num_nodes: int, num_communities: int) -> int:
    """The community of a latent position; community c begins at position floor(c V / C)."""
    return ((position + 1) * num_communities - 1) // num_nodes


@compiled(inline="always")
def _ranked(word: np.uint64, ends: np.ndarray, power: int, size: int, step: int) -> np.int64:
    """A member of a community by a power law: rank (low + u (high - low))^power - shift; `step` maps it to the ring."""
    root = ends[0] + unit(word) * (ends[1] - ends[0])
    value = root
    for _ in range(power - 1):
        value *= root
    rank = min(max(np.int64(value - ends[2]), 0), size - 1)
    return np.int64((rank * step) % size)


@compiled(inline="always")
def _dcsbm_pair(
    key: np.uint64,
    candidate: int,
    num_nodes: int,
    ends: np.ndarray,
    steps: np.ndarray,
    power: int,
    shares: np.ndarray,
    window: int,
) -> tuple[np.int64, np.int64]:
    num_communities = steps.size
    base = np.uint64(candidate) * _DRAWS
    kind = unit(draw(key, base))
    p = np.int64(unit(draw(key, base + np.uint64(1))) * num_nodes)
    c = _community(p, num_nodes, num_communities)
    start = c * num_nodes // num_communities
    size = (c + 1) * num_nodes // num_communities - start
    if kind < shares[0]:
        reach = min(window, (size - 1) // 2)
        return p, _near(p, start, size, reach, draw(key, base + np.uint64(2)))
    p = start + _ranked(draw(key, base + np.uint64(2)), ends[c], power, size, steps[c])
    if kind >= shares[1]:
        q = np.int64(unit(draw(key, base + np.uint64(4))) * num_nodes)
        c = _community(q, num_nodes, num_communities)
        start = c * num_nodes // num_communities
        size = (c + 1) * num_nodes // num_communities - start
    return p, start + _ranked(draw(key, base + np.uint64(3)), ends[c], power, size, steps[c])


@compiled(nogil=True, parallel=True)
def dcsbm_pairs(
    key: np.uint64,
    first: int,
    num_nodes: int,
    ends: np.ndarray,
    steps: np.ndarray,
    power: int,
    shares: np.ndarray,
    window: int,
    order: np.ndarray,
    src: np.ndarray,
    dst: np.ndarray,
) -> None:
    """Write candidates `first, first + 1, ...` of a degree-corrected block model (Karrer & Newman 2011).

    Args:
        key: key of the random stream.
        first: number of the first candidate.
        num_nodes: V.
        ends: `[C, 3]` low, high, shift of the power law in each community, see `_ranked`.
        steps: `[C]` step that spreads ranks over the ring, coprime to the size of the community.
        power: exponent of the inverse distribution function.
        shares: `[2]` cumulative probabilities of local and of community edges; other edges join any two communities.
        window: longest distance between the ends of a local edge, in positions.
        order: `[V]` vertex id of each latent position; empty: the position itself is the id.
        src: `[n]` int32, filled with sources.
        dst: `[n]` int32, filled with destinations.
    """
    for i in numba.prange(src.size):
        p, q = _dcsbm_pair(key, first + i, num_nodes, ends, steps, power, shares, window)
        src[i] = order[p] if order.size > 0 else p
        dst[i] = order[q] if order.size > 0 else q


@compiled(inline="always")
def _rmat_pair(
    key: np.uint64, candidate: int, num_nodes: int, levels: int, quadrants: np.ndarray, local: float, window: int
) -> tuple[np.int64, np.int64, int]:
    state = absorb(key, np.uint64(candidate))
    if unit(draw(state, np.uint64(0))) < local:
        p = np.int64(unit(draw(state, np.uint64(1))) * num_nodes)
        return p, _near(p, 0, num_nodes, window, draw(state, np.uint64(2))), 0
    counter, attempts = np.uint64(3), 0
    while True:
        p, q, word = np.int64(0), np.int64(0), np.uint64(0)
        attempts += 1
        for level in range(levels):
            if level % 4 == 0:
                word = draw(state, counter)
                counter += _ONE
            cell = np.int64(word & _LOW16)
            word >>= _S16
            # No branches here: they would be mispredicted at every level.
            lower = np.int64(cell >= quadrants[1])
            right = np.int64(cell >= quadrants[0]) - lower + np.int64(cell >= quadrants[2])
            p, q = 2 * p + lower, 2 * q + right
        if p < num_nodes and q < num_nodes:
            return p, q, attempts


@compiled(nogil=True, parallel=True)
def rmat_pairs(
    key: np.uint64,
    first: int,
    num_nodes: int,
    levels: int,
    quadrants: np.ndarray,
    local: float,
    window: int,
    order: np.ndarray,
    src: np.ndarray,
    dst: np.ndarray,
    attempts: np.ndarray,
) -> None:
    """Write candidates `first, first + 1, ...` of R-MAT (Chakrabarti, Zhan, Faloutsos, SDM 2004).

    Args:
        key: key of the random stream.
        first: number of the first candidate.
        num_nodes: V; pairs with an end outside of it are drawn again.
        levels: ceil(log2 V).
        quadrants: `[3]` cumulative probabilities a, a + b, a + b + c in units of 1/65536.
        local: probability of a local edge.
        window: longest distance between the ends of a local edge, in positions.
        order: `[V]` vertex id of each latent position; empty: the position itself is the id.
        src: `[n]` int32, filled with sources.
        dst: `[n]` int32, filled with destinations.
        attempts: `[n]` filled with the number of attempts for each global candidate (0 for a local one), or empty.
    """
    for i in numba.prange(src.size):
        p, q, tries = _rmat_pair(key, first + i, num_nodes, levels, quadrants, local, window)
        src[i] = order[p] if order.size > 0 else p
        dst[i] = order[q] if order.size > 0 else q
        if attempts.size > 0:
            attempts[i] = tries


@compiled(nogil=True, parallel=True)
def edge_relations(
    key: np.uint64, indptr: np.ndarray, indices: np.ndarray, num_relations: int, inverses: bool, types: np.ndarray
) -> None:
    """Draw the types `[E]` of a CSC graph that has every edge in both directions: r = floor(R u^2), one u per pair.

    So 1 / sqrt(R) of the edges have relation 0, and each further relation has fewer edges. With `inverses`, an edge
    from the higher vertex id to the lower one has type R + r.
    """
    for dst in numba.prange(indptr.size - 1):
        for edge in range(indptr[dst], indptr[dst + 1]):
            src = np.int64(indices[edge])
            u = unit(draw(absorb(key, np.uint64(min(src, dst))), np.uint64(max(src, dst))))
            types[edge] = np.int64(u * u * num_relations) + (num_relations if inverses and src > dst else 0)


@compiled(inline="always")
def _normal(word: np.uint64) -> np.float32:
    """A draw close to N(0, 1): the scaled sum of four uniform 16-bit words, which is exact in float32."""
    total = (word & _LOW16) + ((word >> _S16) & _LOW16) + ((word >> _S32) & _LOW16) + (word >> _S48)
    return (np.float32(total) - _SUM_MEAN) * _SUM_SCALE


@compiled(nogil=True, parallel=True)
def class_features(key: np.uint64, first: int, classes: np.ndarray, centroids: np.ndarray, rows: np.ndarray) -> None:
    """Write `rows[i] = centroids[classes[first + i]] + noise` for vertex `first + i`; noise is close to N(0, 1)."""
    for i in numba.prange(rows.shape[0]):
        vertex = first + i
        state = absorb(key, np.uint64(vertex))
        for column in range(rows.shape[1]):
            rows[i, column] = centroids[classes[vertex], column] + _normal(draw(state, np.uint64(column)))


@compiled(nogil=True)
def unit_rows(key: np.uint64, num_rows: int, num_columns: int, length: float) -> np.ndarray:
    """Random vectors of the given length, `[num_rows, num_columns]` float32."""
    rows = np.empty((num_rows, num_columns), np.float32)
    for row in range(num_rows):
        state = absorb(key, np.uint64(row))
        squares = 0.0
        for column in range(num_columns):
            rows[row, column] = _normal(draw(state, np.uint64(column)))
            value = np.float64(rows[row, column])
            squares += value * value
        scale = np.float32(length / np.sqrt(squares)) if squares > 0 else np.float32(0)
        for column in range(num_columns):
            rows[row, column] *= scale
    return rows


@compiled(nogil=True, parallel=True)
def latent_classes(order: np.ndarray, num_communities: int, num_classes: int) -> np.ndarray:
    """The class `[V]` int32 of each vertex id: its community modulo the number of classes."""
    classes = np.empty(order.size, np.int32)
    for position in numba.prange(order.size):
        classes[order[position]] = _community(position, order.size, num_communities) % num_classes
    return classes


@compiled(nogil=True, parallel=True)
def noisy_labels(key: np.uint64, classes: np.ndarray, num_classes: int, noise: float) -> np.ndarray:
    """Labels `[V]` int64: the class of the vertex, or with probability `noise` a uniformly drawn class."""
    labels = np.empty(classes.size, np.int64)
    for vertex in numba.prange(classes.size):
        state = absorb(key, np.uint64(vertex))
        other = unit(draw(state, np.uint64(0))) < noise
        labels[vertex] = np.int64(unit(draw(state, np.uint64(1))) * num_classes) if other else classes[vertex]
    return labels
