"""Splits by time: the oldest vertices or links are for training, the newest for the test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnnexp.errors import DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.kernels.compiled import compiled

_MIDNIGHT = "T00:00:00.000000"


@dataclass(frozen=True, eq=False)
class Times:
    """The times of vertices or links.

    Attributes:
        values: `[n]` int64 or float64; a larger one is later.
        column: name of the column that has them.
        dated: whether values are microseconds since 1970 in UTC. Otherwise they are the numbers of the column.
    """

    values: np.ndarray
    column: str
    dated: bool

    def shown(self, value: np.number) -> str:
        """A time for messages."""
        if not self.dated:
            return f"{value.item()}"
        return str(np.datetime64(int(value), "us")).removesuffix(_MIDNIGHT).removesuffix(".000000")


@dataclass(frozen=True, eq=False)
class TimeParts:
    """Who is in which part.

    Attributes:
        parts: `[n]` int8: 0 for training, 1 for validation, 2 for the test.
        note: the times at which parts begin.
    """

    parts: np.ndarray
    note: str


def parts_by_time(times: Times, sizes: tuple[int, int, int], what: Literal["vertices", "links"]) -> TimeParts:
    """Divide by time into parts for training, validation and test, in this order.

    Equal times are never in different parts. So a part begins at a time: the one with the number of earlier ones that
    is nearest to the wanted number. Of two times that are as near, it is the earlier one. A part with a wanted size
    above 0 is never empty.

    Args:
        times: the times of all.
        sizes: wanted sizes of the parts, which add up to n.
        what: what is divided, for messages.

    Raises:
        DataError: there are fewer different times than parts.
    """
    different, counts = np.unique(times.values, return_counts=True)
    wanted = [size > 0 for size in sizes]
    if different.size < sum(wanted):
        raise DataError(
            Problem(
                "dataset.time",
                times.column,
                f"the {what} have {different.size} different times, and {sum(wanted)} parts need one each",
                "set dataset.split=random, or another column",
            )
        )
    earlier = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    first = _nearest(earlier, sizes[0], int(wanted[0]), different.size - wanted[1] - wanted[2])
    second = _nearest(earlier, sizes[0] + sizes[1], first + wanted[1], different.size - wanted[2])
    places = np.searchsorted(different, times.values)
    parts = (places >= first).astype(np.int8) + (places >= second).astype(np.int8)
    begins = [
        f"{name} from {times.shown(different[place])} on"
        for name, place, is_wanted in (("val", first, wanted[1]), ("test", second, wanted[2]))
        if is_wanted
    ]
    sizes_of_parts = np.bincount(parts, minlength=3).tolist()
    return TimeParts(
        parts,
        f"{what} split by {times.column}: {'; '.join(begins) or 'all for training'} "
        f"(train {sizes_of_parts[0]:,}, val {sizes_of_parts[1]:,}, test {sizes_of_parts[2]:,})",
    )


def _nearest(earlier: np.ndarray, wanted: int, low: int, high: int) -> int:
    """The place from `low` to `high` at which `earlier` is nearest to `wanted`, the first of equal ones."""
    return low + int(np.argmin(np.abs(earlier[low : high + 1] - wanted)))


class LinkTimes:
    """Collects the time of each edge of a graph: the earliest of all rows of tables that name its link.

    Args:
        graph: the graph, whose edges are in canonical order.
        dtype: int64 or float64.
    """

    def __init__(self, graph: Graph, dtype: np.dtype) -> None:
        self._graph = graph
        latest = np.inf if dtype.kind == "f" else np.iinfo(np.int64).max
        self.values = np.full(graph.num_edges, latest, dtype)

    def add(self, source: np.ndarray, destination: np.ndarray, kind: np.ndarray, times: np.ndarray) -> None:
        """Take the times of rows: `[n]` ends, types and times. Rows that are no edges of the graph are ignored."""
        graph = self._graph
        types = np.empty(0, np.int32) if graph.edge_types is None else graph.edge_types.numpy()
        rows = map(np.asarray, (source, destination, kind, times))
        _lower(graph.indptr.numpy(), graph.indices.numpy(), types, *rows, self.values)


@compiled(nogil=True)
def _lower(
    indptr: np.ndarray,
    indices: np.ndarray,
    types: np.ndarray,
    source: np.ndarray,
    destination: np.ndarray,
    kind: np.ndarray,
    times: np.ndarray,
    values: np.ndarray,
) -> None:
    """Lower `values` `[E]` of the edges (source, kind, destination), and of their parallel edges, to `times`."""
    typed = types.size > 0
    for row in range(source.size):
        low, end = indptr[destination[row]], indptr[destination[row] + 1]
        high = end
        while low < high:  # the first in-edge that is not before (source, kind)
            middle = (low + high) // 2
            before = indices[middle] < source[row] or (
                typed and indices[middle] == source[row] and types[middle] < kind[row]
            )
            if before:
                low = middle + 1
            else:
                high = middle
        while low < end and indices[low] == source[row] and (not typed or types[low] == kind[row]):
            values[low] = min(values[low], times[row])
            low += 1
