"""Relations that are each other's reverses, such as `buys` and `rev_buys`: they tell each other's links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph
from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.counter import mix64

# Whether edges have reverses: no (-1); yes, of the same type (0); or yes, of type R + r for type r (R > 0).
NO_REVERSES, SAME_TYPE = -1, 0
_ROOM = 1 << 10  # pairs of relations that fit into the table at first
_MOST_NAMED = 5


@dataclass(frozen=True, eq=False)
class Opposites:
    """Relations that belong together.

    Attributes:
        groups: `[R]` int64, the smallest relation of the group of each relation; -1: the relation belongs to none.
        pairs: `[p, 4]` int64: two relations, the number of edges of the one whose reverses the other has, and the
            number of edges of the smaller relation. The two are the same for a relation with both directions.
    """

    groups: np.ndarray
    pairs: np.ndarray

    def named(self, names: Sequence[str]) -> str:
        """The pairs for a note. Without names, relations have their numbers."""
        said = []
        for first, second, count, size in self.pairs[:_MOST_NAMED].tolist():
            one, other = (names[kind] if kind < len(names) else f"relation {kind}" for kind in (first, second))
            said.append(f"{one} and {'itself' if first == second else other} ({count} of {size} edges)")
        more = len(self.pairs) - len(said)
        return ", ".join(said) + (f", and {more} more pairs" if more else "")


def find_opposites(graph: Graph, reverses: int, links: np.ndarray | None = None) -> Opposites:
    """The pairs of relations of which most edges are each other's reverses.

    Two relations are a pair if more than half of the edges of the smaller one have their reverse in the other one. A
    relation is a pair with itself if more than half of its edges have their reverse in it. Pairs with a common
    relation are one group. Parallel edges count once, and self loops do not count. Reverses that gnnexp has added do
    not count, either.

    Args:
        graph: a graph with types of edges.
        reverses: which edges gnnexp has added (`hold_out`).
        links: `[n, 3]` links that count as edges, too; None: no others.
    """
    types = _types(graph)
    num_stored = int(types.max(initial=-1)) + 1 if reverses <= 0 else reverses
    num_relations = max(num_stored, 0 if links is None or not links.size else int(links[:, 1].max()) + 1)
    counted = [_counted(graph, num_stored, num_relations, 1)]
    if links is not None:
        counted += _with_links(graph, num_stored, num_relations, links, symmetrize=reverses == SAME_TYPE)
    sizes = np.sum([array for array, _, _ in counted], axis=0)
    codes, places = np.unique(np.concatenate([array for _, array, _ in counted]), return_inverse=True)
    counts = np.zeros(codes.size, np.int64)
    np.add.at(counts, places, np.concatenate([array for _, _, array in counted]))
    first, second = codes // num_relations, codes % num_relations
    counts[first == second] *= 2  # an edge and its reverse
    smaller = np.minimum(sizes[first], sizes[second])
    # With reverses of the same type, each relation has both directions: then it is one link in any case.
    chosen = (2 * counts > smaller) & ((reverses != SAME_TYPE) | (first != second))
    pairs = np.stack([first, second, counts, smaller], axis=1)[chosen]
    pairs[:, 2:] //= 1 + (reverses == SAME_TYPE)  # edges without those that gnnexp has added
    return Opposites(_groups(pairs[:, :2], num_relations), pairs)


def units(links: np.ndarray, reverses: int, opposites: Opposites | None) -> np.ndarray:
    """`[n, 3]` what is held out as one: links `[n, 3]` that tell each other have the same row.

    Args:
        links: heads, relations and tails, also those of edges that gnnexp has added; without relations: `[n, 2]`.
        reverses: which edges gnnexp has added.
        opposites: relations that belong together; None: relations do not count.
    """
    head, tail = links[:, 0], links[:, -1]
    if opposites is None:
        return np.stack([np.minimum(head, tail), np.zeros_like(head), np.maximum(head, tail)], axis=1)
    kind, added = links[:, 1], (links[:, 1] >= reverses) & (reverses > 0)
    head, tail, kind = np.where(added, tail, head), np.where(added, head, tail), kind - reverses * added
    groups = opposites.groups
    group = np.where(kind < groups.size, groups[np.minimum(kind, groups.size - 1)], -1)
    turned = (head > tail) & ((group >= 0) | (reverses == SAME_TYPE))
    return np.stack(
        [np.where(turned, tail, head), np.where(group < 0, kind, group), np.where(turned, head, tail)], axis=1
    )


def edges_between(graph: Graph, heads: np.ndarray, tails: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges from `heads` to `tails` `[n]`: `[m]` numbers of pairs, ascending, and `[m]` numbers of edges."""
    heads, tails = np.ascontiguousarray(heads), np.ascontiguousarray(tails)  # so that the kernel is compiled once
    starts, counts = _ranges(graph.indptr.numpy(), graph.indices.numpy(), heads, tails)
    pairs = np.repeat(np.arange(heads.size), counts)
    within = np.arange(pairs.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return pairs, np.repeat(starts, counts) + within


def _with_links(
    graph: Graph, num_stored: int, num_relations: int, links: np.ndarray, *, symmetrize: bool
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """What `links` add: the edges between their ends are subtracted, and counted again together with the links."""
    both = np.concatenate([links[:, ::2], links[:, ::-2]])
    edges = np.unique(edges_between(graph, both[:, 0], both[:, 1])[1])
    edges = edges[_types(graph)[edges] < num_stored]
    ends = np.stack([graph.indices.numpy()[edges], _types(graph)[edges], graph.destinations().numpy()[edges]], axis=1)
    counted = []
    for rows, sign in ((ends.astype(np.int64), -1), (np.concatenate([ends, links]), 1)):
        part = build_graph(rows[:, 0], rows[:, 2], graph.num_nodes, types=rows[:, 1], symmetrize=symmetrize)
        counted.append(
            _counted(Graph(part.indptr, part.indices, edge_types=part.types), num_relations, num_relations, sign)
        )
    return counted


def _groups(pairs: np.ndarray, num_relations: int) -> np.ndarray:
    """`[R]` smallest relation of each group of `pairs` `[p, 2]`, -1 for relations in no pair."""
    joined = csr_array((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), (num_relations, num_relations))
    _, labels = connected_components(joined, directed=False)
    smallest = np.full(num_relations, num_relations, np.int64)
    np.minimum.at(smallest, labels, np.arange(num_relations))
    groups = np.full(num_relations, -1, np.int64)
    groups[pairs] = smallest[labels[pairs]]
    return groups


def _types(graph: Graph) -> np.ndarray:
    return np.empty(0, np.int32) if graph.edge_types is None else graph.edge_types.numpy()


def _counted(graph: Graph, num_stored: int, num_relations: int, sign: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`[R]` edges of each relation below `num_stored`; and the pairs of relations r <= s as r R + s, with numbers.

    The number is that of the edges of r whose reverse is an edge of s; for r = s it is half of that. Memory grows with
    the number of pairs of relations only.
    """
    sizes = np.zeros(num_relations, np.int64)
    keys, counts = np.full(_ROOM, -1, np.int64), np.zeros(_ROOM, np.int64)
    row = edge = used = 0
    while True:
        row, edge, used = _count(
            graph.indptr.numpy(), graph.indices.numpy(), _types(graph), num_stored, row, edge, used, sizes, keys, counts
        )
        if row == graph.num_nodes:
            return sign * sizes, keys[keys >= 0], sign * counts[keys >= 0]
        old, numbers = keys[keys >= 0], counts[keys >= 0]
        keys, counts = np.full(2 * keys.size, -1, np.int64), np.zeros(2 * keys.size, np.int64)
        _put(old, numbers, keys, counts)


@compiled(inline="always")
def _first(indices: np.ndarray, start: int, stop: int, source: int) -> int:
    """The first place from `start` to `stop` whose source is not below `source`."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < source:
            low = middle + 1
        else:
            high = middle
    return low


@compiled(inline="always")
def _spot(keys: np.ndarray, key: int) -> np.int64:
    """The place of `key` in the table `keys`, whose size is a power of two, or the place where it belongs."""
    place = np.int64(mix64(np.uint64(key)) & np.uint64(keys.size - 1))
    while keys[place] != -1 and keys[place] != key:
        place = (place + 1) & (keys.size - 1)
    return place


@compiled(nogil=True)
def _put(old: np.ndarray, numbers: np.ndarray, keys: np.ndarray, counts: np.ndarray) -> None:
    for place in range(old.size):
        spot = _spot(keys, old[place])
        keys[spot], counts[spot] = old[place], numbers[place]


@compiled(nogil=True)
def _count(
    indptr: np.ndarray,
    indices: np.ndarray,
    types: np.ndarray,
    num_stored: int,
    row: int,
    edge: int,
    used: int,
    sizes: np.ndarray,
    keys: np.ndarray,
    counts: np.ndarray,
) -> tuple[int, int, int]:
    """Count from an edge of a row on, until the table is half full. Returns where to go on, and its used places."""
    for dst in range(row, indptr.size - 1):
        for position in range(max(indptr[dst], edge), indptr[dst + 1]):
            src, kind = indices[position], types[position]
            again = position > indptr[dst] and indices[position - 1] == src and types[position - 1] == kind
            if src == dst or kind >= num_stored or again:
                continue
            low = high = 0
            if src < dst:  # of both directions, one counts
                low = _first(indices, indptr[src], indptr[src + 1], dst)
                high = _first(indices, low, indptr[src + 1], dst + 1)
            if 2 * (used + high - low) > keys.size:
                return dst, position, used
            sizes[kind] += 1
            for back in range(low, high):
                other = types[back]
                if other >= num_stored or (back > low and types[back - 1] == other):
                    continue
                code = np.int64(min(kind, other)) * sizes.size + max(kind, other)
                spot = _spot(keys, code)
                used += keys[spot] == -1
                keys[spot] = code
                counts[spot] += 1
    return indptr.size - 1, 0, used


@compiled(nogil=True)
def _ranges(
    indptr: np.ndarray, indices: np.ndarray, heads: np.ndarray, tails: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`[n]` first edge from each head to each tail, and `[n]` their number."""
    starts, counts = np.empty(heads.size, np.int64), np.empty(heads.size, np.int64)
    for place in range(heads.size):
        stop = indptr[tails[place] + 1]
        starts[place] = _first(indices, indptr[tails[place]], stop, heads[place])
        counts[place] = _first(indices, starts[place], stop, heads[place] + 1) - starts[place]
    return starts, counts
