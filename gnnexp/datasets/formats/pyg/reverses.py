"""Reverse edges that a graph has already: gnnexp must not add them a second time."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from gnnexp.datasets.formats.foreign import ForeignEdges, ForeignGraph

_PREFIX = "rev_"  # the names that PyG's ToUndirected gives


def without_reverses(foreign: ForeignGraph, *, keeps_duplicates: bool) -> ForeignGraph:
    """The graph without the edges that `symmetrize` makes again.

    A type of edges, such as `rev_writes`, is left out if it has exactly the reverses of another, such as `writes`.
    Then `ForeignEdges.reverse` has its name, and `symmetrize` makes its edges. So both directions of a link stay one
    link, which is held out as a whole.

    A graph with one type of edges may have both directions of each. Then one of them is left out if parallel edges are
    kept, because there would be two of each.

    Args:
        foreign: the graph as PyG has it.
        keeps_duplicates: whether parallel edges are kept.
    """
    symmetric = {position for position, edges in enumerate(foreign.edges) if _is_symmetric(edges)}
    pairs = _pairs(foreign, symmetric)
    left_out = set(pairs.values())
    kept = [
        replace(edges, reverse=foreign.edges[pairs[position]].name) if position in pairs else edges
        for position, edges in enumerate(foreign.edges)
        if position not in left_out
    ]
    notes = [
        f"{foreign.edges[other].name} has the reverses of {foreign.edges[position].name}: dataset.symmetrize adds them"
        for position, other in pairs.items()
    ]
    if len(kept) > 1:
        notes += [
            f"{foreign.edges[position].name} has both directions of each edge: if dataset.symmetrize gives reverses a "
            "relation of their own, it repeats them"
            for position in sorted(symmetric)
        ]
    elif symmetric and keeps_duplicates:
        kept = [_half(edges) for edges in kept]
    return replace(foreign, edges=kept, notes=(*foreign.notes, *notes))


def _pairs(foreign: ForeignGraph, symmetric: set[int]) -> dict[int, int]:
    """Positions of types of edges, and of those that have exactly their reverses, with the same weights."""
    by_digest: dict[tuple[str, str, str], int] = {}
    pairs: dict[int, int] = {}
    for position, edges in enumerate(foreign.edges):
        if position in symmetric:
            continue
        other = by_digest.pop((*edges.types[::-1], _digest(edges.destination, edges.source, edges.weight)), None)
        if other is None:
            by_digest[(*edges.types, _digest(edges.source, edges.destination, edges.weight))] = position
        elif foreign.edges[other].name.startswith(_PREFIX):
            pairs[position] = other
        else:
            pairs[other] = position
    return pairs


def _is_symmetric(one: ForeignEdges) -> bool:
    """Whether the edges between vertices of one type have both directions each."""
    return one.types[0] == one.types[1] and (
        _digest(one.source, one.destination, one.weight) == _digest(one.destination, one.source, one.weight)
    )


def _half(one: ForeignEdges) -> ForeignEdges:
    rows = one.source <= one.destination
    return replace(
        one,
        source=one.source[rows],
        destination=one.destination[rows],
        weight=None if one.weight is None else one.weight[rows],
    )


def _digest(source: np.ndarray, destination: np.ndarray, weight: np.ndarray | None) -> str:
    """SHA-256 of the edges in the order of source, destination and weight."""
    columns = [source, destination] if weight is None else [source, destination, weight]
    order = np.lexsort(columns[::-1])
    digest = hashlib.sha256()
    for column in columns:
        digest.update(column[order].data)
    return digest.hexdigest()
