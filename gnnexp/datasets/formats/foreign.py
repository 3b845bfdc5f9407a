"""A graph as another library has it, in arrays by type of vertices and edges; and the `Graph` that it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import scipy.sparse

from gnnexp.errors import DataError, Problem

VERTEX = "vertex"  # the type of vertices of a graph with one type
EDGE = "edges"
Matrix = np.ndarray | scipy.sparse.csr_array


@dataclass(frozen=True, eq=False)
class ForeignVertices:
    """The vertices of one type.

    Attributes:
        count: n, their number.
        features: `[n, D]`, or None.
        labels: `[n]` integer classes (negative = no label), or `[n, C]` float of 0 and 1 (NaN = no label), or `[n]`
            float real numbers (NaN = no label), or None. One column `[n, 1]` of integers or of other numbers counts as
            `[n]`.
        splits: `train`, `val` and `test`, each as ids or as a mask `[n]` bool; empty if the file has no split.
        classes: names of the classes; empty: classes are numbers.
        ids: `[n]` the user's ids, integers or texts; None: 0 to n - 1.
    """

    count: int
    features: Matrix | None = None
    labels: np.ndarray | None = None
    splits: Mapping[str, np.ndarray] = field(default_factory=dict)
    classes: Sequence[str] = ()
    ids: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class ForeignEdges:
    """The edges of one type.

    Attributes:
        source: `[E]` number of each source among the vertices of its type.
        destination: `[E]` number of each destination.
        name: name of the type.
        types: types of the vertices at both ends.
        weight: `[E]` weights, or None.
        reverse: name of the type that has the reverses of these edges in the file, and is left out. Then
            `symmetrize` gives reverses a relation of their own, also if there is one type of edges only. None: no type
            has the reverses.
    """

    source: np.ndarray
    destination: np.ndarray
    name: str = EDGE
    types: tuple[str, str] = (VERTEX, VERTEX)
    weight: np.ndarray | None = None
    reverse: str | None = None


@dataclass(frozen=True, eq=False)
class ForeignGraph:
    """All vertices and edges.

    Attributes:
        vertices: by type, in order.
        edges: types of edges, in order.
        notes: what a user must know, such as what is left out.
        links: pairs `[n, 2]` of link prediction, or `[n, 3]` with the number of a type of edges, by name
            (`Graph.links`); vertices of all types are numbered through.
        keeps_known: whether edges stay that are held-out links or their reverses.
    """

    vertices: Mapping[str, ForeignVertices]
    edges: Sequence[ForeignEdges]
    notes: Sequence[str] = ()
    links: Mapping[str, np.ndarray] = field(default_factory=dict)
    keeps_known: bool = False

    @property
    def starts(self) -> dict[str, int]:
        """Number of the first vertex of each type in the graph."""
        return dict(
            zip(self.vertices, accumulate((one.count for one in self.vertices.values()), initial=0), strict=False)
        )

    @property
    def num_nodes(self) -> int:
        """V, of all types."""
        return sum(one.count for one in self.vertices.values())

    def target(self, asked: str | None) -> str | None:
        """The type whose vertices have the labels; None without labels.

        Raises:
            DataError: several types have labels and `asked` is None, or the type `asked` has none.
        """
        labelled = [kind for kind, vertices in self.vertices.items() if vertices.labels is not None]
        if asked is None and len(labelled) <= 1:
            return labelled[0] if labelled else None
        if asked not in labelled:
            raise DataError(
                Problem(
                    "dataset.target",
                    asked,
                    f"types with labels are {', '.join(labelled) or 'none'}",
                    f"set dataset.target={labelled[0] if labelled else 'null'}",
                )
            )
        return asked
