"""Values of parallel edges: what a merged edge has, and in which order edges that stay have theirs."""

from __future__ import annotations

import numpy as np

from gnnexp.kernels.compiled import compiled

# Numbers of the rules (`gnnexp.graph.merging.MergeWeights`).
ERROR, SUM, MEAN, MAX, MIN = range(5)


@compiled(nogil=True)
def merge_values(
    starts: np.ndarray, from_user: np.ndarray, values: np.ndarray, rule: int, merged: np.ndarray, different: np.ndarray
) -> None:
    """The value of each group of parallel edges.

    If a group has edges of the user, those that were added as reverses do not count. Values are added in float64 and in
    ascending order, so that the order of edges does not matter.

    Args:
        starts: `[G + 1]` bounds of the groups.
        from_user: `[n]` whether an edge is the user's, or `[0]` if all are.
        values: `[n]` float64 value of each edge.
        rule: number of the rule.
        merged: `[G]` float32, gets the value of each group.
        different: `[G]` bool, gets whether edges that count have different values (as float32).
    """
    for group in range(starts.size - 1):
        start, stop = starts[group], starts[group + 1]
        if stop - start == 1:
            merged[group], different[group] = values[start], False
            continue
        own, added = values[start:stop].copy(), False
        if from_user.size:
            chosen = from_user[start:stop]
            added = not chosen.any()  # reverses only: the edges that they are reverses of have the same values
            if not added:
                own = own[chosen]
        own.sort()
        merged[group] = _value(own, rule)
        different[group] = not added and np.float32(own[0]) < np.float32(own[-1])


@compiled(nogil=True)
def _value(values: np.ndarray, rule: int) -> float:
    """What the rule makes of ascending values."""
    if rule == MAX:
        return values[-1]
    if rule in (ERROR, MIN):
        return values[0]
    total = 0.0
    for value in values:
        total += value
    return total / values.size if rule == MEAN else total


@compiled(nogil=True)
def sort_values(starts: np.ndarray, values: np.ndarray) -> None:
    """Sort the values `[n]` of each group, in place."""
    for group in range(starts.size - 1):
        start, stop = starts[group], starts[group + 1]
        if stop - start > 1:
            values[start:stop].sort()
