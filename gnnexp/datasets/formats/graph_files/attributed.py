"""A graph as a file has it: names, and attributes of vertices and edges. Nothing has a meaning yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnexp.datasets.formats.graph_files.growing import check_rows
from gnnexp.errors import DataError, Problem

Row = dict[str, Any]
_SHOWN = 20


@dataclass(frozen=True, eq=False)
class AttributedGraph:
    """Vertices and edges with their attributes, in the order of the file.

    Attributes:
        kind: format and directions, for notes.
        names: `[n]` the user's ids.
        vertices: `[n]` attributes of each vertex.
        ends: `[E, 2]` int64, the numbers of the source and the destination of each edge.
        directed: `[E]` bool, False for an edge in both directions.
        edges: `[E]` attributes of each edge.
        display: attributes of vertices that say how to draw them, such as names and positions. They have no meaning
            unless the user gives them one.
        notes: what a user must know.
    """

    kind: str
    names: Sequence[Any]
    vertices: Sequence[Row]
    ends: np.ndarray
    directed: np.ndarray
    edges: Sequence[Row]
    display: frozenset[str] = frozenset()
    notes: Sequence[str] = ()


class GraphCollector:
    """Vertices and edges while a file is read. Edges may come before their vertices.

    Args:
        path: the file, for messages.
        kind: name of the format.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind
        self.numbers: dict[Any, int] = {}
        self.vertices: list[Row] = []
        self.edges: list[Row] = []
        self._pairs: list[tuple[Any, Any]] = []
        self._directed: list[bool] = []

    def vertex(self, name: Any) -> Row:  # noqa: ANN401
        """The attributes of a new vertex, still empty.

        Raises:
            DataError: it has no name, its name is that of an earlier vertex, or more do not fit in memory.
        """
        if name is None:
            raise self.wrong("node", f"node {len(self.vertices) + 1}", "has no id", "give each node an id")
        if name in self.numbers:
            raise self.wrong("node", name, "is the id of two nodes", "give each node an id of its own")
        check_rows(len(self.vertices), f"{self.path}, nodes")
        self.numbers[name] = len(self.vertices)
        self.vertices.append({})
        return self.vertices[-1]

    def edge(self, source: Any, destination: Any, *, directed: bool) -> Row:  # noqa: ANN401
        """The attributes of a new edge, still empty.

        Raises:
            DataError: an end is missing, or more do not fit in memory.
        """
        if source is None or destination is None:
            raise self.wrong("edge", f"edge {len(self.edges) + 1}", "has no source or no target", "give both ends")
        check_rows(len(self.edges), f"{self.path}, edges")
        self._pairs.append((source, destination))
        self._directed.append(directed)
        self.edges.append({})
        return self.edges[-1]

    def wrong(self, construct: str, value: object, said: str, fix: str) -> DataError:
        """An error that names a construct of the file."""
        return DataError(Problem(f"{self.path}, {construct}", str(value)[:60], said, fix))

    def graph(
        self, *, display: frozenset[str] = frozenset(), notes: Sequence[str] = (), names: Sequence[Any] | None = None
    ) -> AttributedGraph:
        """The whole graph; `names` replace the ids of the file.

        Raises:
            DataError: an end of an edge is no vertex.
        """
        ends = np.array([[self.numbers.get(name, -1) for name in pair] for pair in self._pairs], np.int64).reshape(
            -1, 2
        )
        wrong = np.argwhere(ends < 0)
        lost = {self._pairs[row][side] for row, side in wrong.tolist()}
        DataError.raise_all(
            [
                Problem(
                    f"{self.path}, edge {row + 1}",
                    str(self._pairs[row][side])[:60],
                    f"is no node of the file; {len(lost)} such ends, {len(self.vertices)} nodes are listed",
                    "list each end as a node",
                )
                for row, side in wrong[:_SHOWN].tolist()
            ]
        )
        directed = np.array(self._directed, np.bool_)
        return AttributedGraph(
            f"{self.kind} {directions(directed)}",
            list(self.numbers) if names is None else names,
            self.vertices,
            ends,
            directed,
            self.edges,
            display,
            notes,
        )


def directions(directed: np.ndarray) -> str:
    """The kind of a graph by the directions `[E]` of its edges, in words."""
    if directed.all() == directed.any():
        return "directed graph" if directed.any() else "undirected graph"
    return f"graph with directed ({int(directed.sum())}) and undirected ({int((~directed).sum())}) edges"


def fill_missing(rows: Sequence[Row], name: str, value: object) -> int:
    """Give `value` to all rows without the attribute `name`. Returns their number."""
    without = [row for row in rows if name not in row]
    for row in without:
        row[name] = value
    return len(without)
