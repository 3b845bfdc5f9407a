"""Parallel edges become one edge, whose weight follows a rule and not the order of the edges.

If a graph is symmetrized and has both directions of an edge, each direction has its own weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np

from gnnexp.errors import DataError, Problem
from gnnexp.kernels.graph import merging as kernels

MergeWeights = Literal["error", "sum", "mean", "max", "min"]
_NUMBERS: dict[MergeWeights, int] = {
    "error": kernels.ERROR,
    "sum": kernels.SUM,
    "mean": kernels.MEAN,
    "max": kernels.MAX,
    "min": kernels.MIN,
}
assert tuple(_NUMBERS) == get_args(MergeWeights), "each rule has a number"
MOST_SHOWN = 3


class Parallel(NamedTuple):
    """Edges from one vertex to another that have different weights.

    Attributes:
        source: number of the vertex.
        destination: number of the vertex.
        low: smallest weight.
        high: largest weight.
    """

    source: int
    destination: int
    low: float
    high: float


@dataclass(frozen=True)
class MergedEdges:
    """What was merged.

    Attributes:
        different: merged edges that stand for edges with different weights; a reverse that was added does not count.
        first: some of these.
    """

    different: int = 0
    first: tuple[Parallel, ...] = ()

    def __add__(self, other: MergedEdges) -> MergedEdges:
        """Of two parts of the edges."""
        return MergedEdges(self.different + other.different, (*self.first, *other.first)[:MOST_SHOWN])

    def shifted(self, first: int) -> MergedEdges:
        """The same, where the vertices that edges lead to are numbered from `first` on."""
        return replace(self, first=tuple(one._replace(destination=one.destination + first) for one in self.first))

    def check(self, rule: MergeWeights) -> None:
        """Refuse different weights if there is no rule for them.

        Raises:
            DifferentWeightsError: there are some.
        """
        if rule == "error" and self.different:
            raise DifferentWeightsError(self)

    def notes(self, rule: MergeWeights) -> list[str]:
        """What a run says: how many weights are no longer those of a row."""
        if not self.different:
            return []
        return [f"{self.different} edges are there more than once with different weights: dataset.merge_weights={rule}"]


class DifferentWeightsError(DataError):
    """Parallel edges have different weights, and no rule says what becomes of them.

    Attributes:
        merged: how many, and some of them.
    """

    def __init__(self, merged: MergedEdges) -> None:
        self.merged = merged
        super().__init__(_problem(merged, {}))

    def named(self, names: dict[int, str]) -> DataError:
        """The same error with the user's ids of vertices, by their numbers."""
        return DataError(_problem(self.merged, names))

    @property
    def vertices(self) -> list[int]:
        """Numbers of the vertices that the error shows."""
        return sorted({end for one in self.merged.first for end in one[:2]})

    def __reduce__(self) -> tuple[type[DifferentWeightsError], tuple[MergedEdges]]:  # type: ignore[override]
        return type(self), (self.merged,)


def _problem(merged: MergedEdges, names: dict[int, str]) -> Problem:
    shown = ", ".join(
        f"{names.get(parallel.source, parallel.source)} -> {names.get(parallel.destination, parallel.destination)}: "
        f"{parallel.low:.9g} to {parallel.high:.9g}"
        for parallel in merged.first
    )
    edges = "1 edge is" if merged.different == 1 else f"{merged.different} edges are"
    return Problem(
        "dataset.merge_weights",
        "error",
        f"{edges} there more than once with different weights ({shown})",
        "set dataset.merge_weights=sum, mean, max or min, or dataset.duplicates=keep",
    )


def merged_weights(
    starts: np.ndarray, from_user: np.ndarray, weights: np.ndarray, rule: MergeWeights
) -> tuple[np.ndarray, np.ndarray]:
    """Weights of merged edges.

    Args:
        starts: `[G + 1]` int64 bounds of groups of parallel edges.
        from_user: `[n]` bool, False for edges that were added as reverses; `[0]` if all edges are given.
        weights: `[n]` weight of each edge.
        rule: what the weight of a group is.

    Returns:
        `[G]` float32 weights, and the numbers of the groups whose given edges have different ones.

    Raises:
        DataError: a weight is too large for float32.
    """
    merged, different = np.empty(starts.size - 1, np.float32), np.empty(starts.size - 1, np.bool_)
    kernels.merge_values(starts, from_user, weights.astype(np.float64), _NUMBERS[rule], merged, different)
    large = int((~np.isfinite(merged)).sum())
    if large and np.isfinite(weights).all():
        raise DataError(
            Problem(
                "dataset.merge_weights",
                rule,
                f"the weights of {large} merged edges are too large for float32",
                "set dataset.merge_weights=mean or max, or give weights in a larger unit",
            )
        )
    return merged, np.flatnonzero(different)


def in_order(starts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """`[n]` float32 weights of parallel edges that stay: ascending in each group, whatever the order of rows."""
    found = weights.astype(np.float32)
    kernels.sort_values(starts, found)
    return found
