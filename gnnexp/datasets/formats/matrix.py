"""Sparse adjacency matrices: SciPy's `.npz` (`scipy.sparse.save_npz`) and Matrix Market (`.mtx`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from gnnexp.datasets.base import WrittenDataset, check_memory
from gnnexp.datasets.formats.adjacency import USUAL, VertexFiles, files_next_to
from gnnexp.datasets.formats.dataset import ForeignOptions, write_foreign
from gnnexp.datasets.formats.foreign import EDGE, VERTEX, ForeignEdges, ForeignGraph, ForeignVertices
from gnnexp.datasets.reading.content import endings, one_file, visible_files
from gnnexp.datasets.reading.sparse import Entries, is_sparse_npz, read_matrix_market, read_sparse_npz
from gnnexp.errors import DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.merging import MergeWeights

ROW, COLUMN = "row", "column"


@dataclass(kw_only=True, eq=False)
class AdjacencyMatrix(ForeignOptions, VertexFiles, WrittenDataset):
    """A square matrix with an entry for each edge, or a matrix of two types of vertices: rows and columns.

    A matrix that is not square has an edge between a row and a column for each entry; labels and features are of rows.

    Attributes:
        name: name of the graph.
        path: the file, `.npz` or `.mtx` (also `.mtx.gz`), or a folder with one; null = `$GNNEXP_DATA/matrix`.
        source: `row`: an entry (i, j) is an edge from i to j, as in SciPy and NetworkX. `column`: from j to i.
        weights: whether values are weights of edges; `auto` = unless all of them are 1.
        merge_weights: what several entries of one place are: their `sum`, as in SciPy, or another rule.
    """

    name: str = "matrix"
    path: str | None = None
    source: Literal["row", "column"] = "row"
    weights: Literal["auto", True, False] = "auto"
    merge_weights: MergeWeights = "sum"

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A file of a matrix; or a folder with one, and with features and labels under their usual names."""
        files = visible_files(place)
        graphs = [one for one in files if not place.is_dir() or one.name not in USUAL]
        if len(graphs) != 1 or not _is_matrix(graphs[0]):
            return None
        return files_next_to(graphs[0]) if place.is_dir() else []

    def sources(self) -> list[Path]:
        """The file of the matrix first."""
        others = (self.features, self.labels)
        return self.with_files(
            one_file(
                self.path, "matrix", lambda one: _is_matrix(one) and one.name not in others, ".npz, .mtx or .mtx.gz"
            )
        )

    def generate(self, folder: Path) -> Graph:
        """See `WrittenDataset.generate`."""
        return write_foreign(self.read(), self, self.name, folder)

    def read(self) -> ForeignGraph:
        """All entries as edges."""
        path = self.sources()[0]
        if endings(path) not in (".npz", ".mtx"):
            raise DataError(Problem(str(path), endings(path), "endings are .npz, .mtx and .mtx.gz", "rename the file"))
        entries = read_sparse_npz(path) if endings(path) == ".npz" else read_matrix_market(path)
        count, columns = entries.shape
        check_memory(24 * (count + columns), f"{count} x {columns} vertices")
        weight, notes = self._weight(str(path), entries)
        if count == columns:
            source, destination = (
                (entries.rows, entries.columns) if self.source == "row" else (entries.columns, entries.rows)
            )
            return ForeignGraph(
                {VERTEX: self.vertices(path.parent, count)}, [ForeignEdges(source, destination, weight=weight)], notes
            )
        kinds = {ROW: self.vertices(path.parent, count), COLUMN: ForeignVertices(columns)}
        edges = (
            ForeignEdges(entries.rows, entries.columns, EDGE, (ROW, COLUMN), weight)
            if self.source == "row"
            else ForeignEdges(entries.columns, entries.rows, EDGE, (COLUMN, ROW), weight)
        )
        return ForeignGraph(
            kinds, [edges], [f"{count} x {columns}: rows and columns are two types of vertices", *notes]
        )

    def _weight(self, key: str, entries: Entries) -> tuple[np.ndarray | None, list[str]]:
        """Weights of the edges, and notes."""
        values = entries.values
        asked = bool((values != 1).any()) if self.weights == "auto" else self.weights
        if not asked:
            return None, []
        broken = np.flatnonzero(~np.isfinite(values.astype(np.float32)))
        if broken.size:
            raise DataError(
                Problem(
                    f"{key}, entry {broken[0]}",
                    float(values[broken[0]]),
                    f"weights must be finite; {broken.size} are not",
                    "correct the file, or set dataset.weights=false",
                )
            )
        zeros = int((values == 0).sum())
        return values, [
            "weight=values of the matrix"
            + (f"; {zeros} entries are 0, and are edges with the weight 0" if zeros else "")
        ]


def _is_matrix(path: Path) -> bool:
    kind = endings(path)
    return kind == ".mtx" or (kind == ".npz" and not path.name.endswith(".gz") and is_sparse_npz(path))
