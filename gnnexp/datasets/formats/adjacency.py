"""Graphs without names: files of an adjacency matrix or of neighbours, with optional files of features and labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnexp.components.texts import hydra_text
from gnnexp.datasets.base import require
from gnnexp.datasets.formats.foreign import ForeignVertices, Matrix
from gnnexp.datasets.reading.content import endings, text_of
from gnnexp.datasets.reading.features import as_labels
from gnnexp.datasets.reading.npz import open_npy
from gnnexp.datasets.reading.tables import NumberTable
from gnnexp.datasets.tables.features import matrix_of_file
from gnnexp.datasets.tables.scaling import scaled_features
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file

_FIX = "correct the name, relative to the folder of the graph, or set it to null"
_BESIDE = {
    "features": ("features.npy", "features.npz", "features.csv", "features.txt"),
    "labels": ("labels.npy", "labels.csv", "labels.txt"),
}
USUAL = {name for names in _BESIDE.values() for name in names}  # of files next to a graph


@dataclass(kw_only=True, eq=False)
class VertexFiles:
    """Files with a row for each vertex, next to the file of the edges.

    Attributes:
        features: `.npy`, `.npz` (also sparse, by `scipy.sparse.save_npz`) or text, with a row for each vertex; or null.
        labels: `.npy` or text with a class for each vertex: names, or whole numbers (-1 = none); or null.
        standardize: give each column of features the mean 0 and the standard deviation 1, over all vertices.
    """

    features: str | None = None
    labels: str | None = None
    standardize: bool = False

    def with_files(self, edges: Path) -> list[Path]:
        """The file of the edges, and those of the vertices.

        Raises:
            DataError: one of the latter is missing.
        """
        others = [edges.parent / name for name in (self.features, self.labels) if name is not None]
        require(others, _FIX)
        return [edges, *others]

    def vertices(self, folder: Path, count: int) -> ForeignVertices:
        """`count` vertices, with the rows of both files in `folder`.

        Raises:
            DataError: a file is damaged, or has another number of rows.
        """
        features = None if self.features is None else _features(folder / self.features)
        if self.standardize and isinstance(features, np.ndarray):
            features = scaled_features(features, "error", standardize=True)
        elif self.standardize:
            raise DataError(
                Problem(
                    "dataset.standardize", True, "needs features that are not sparse", "set dataset.standardize=false"
                )
            )
        labels, classes = (None, []) if self.labels is None else _labels(folder / self.labels)
        sizes = {key: rows.shape[0] for key, rows in (("features", features), ("labels", labels)) if rows is not None}
        DataError.raise_all(
            [
                Problem(f"dataset.{key}", f"{size} rows", f"there are {count} vertices", "give one row for each vertex")
                for key, size in sizes.items()
                if size != count
            ]
        )
        return ForeignVertices(count, features, labels, classes=classes)


def files_next_to(file: Path) -> list[str]:
    """Overrides for files of features and labels that are next to `file` under their usual names."""
    found = {
        key: next((name for name in names if name != file.name and is_file(file.parent / name)), None)
        for key, names in _BESIDE.items()
    }
    return [f"dataset.{key}={hydra_text(name)}" for key, name in found.items() if name]


def _features(path: Path) -> Matrix:
    """`[V, D]` numbers."""
    if endings(path) in (".npy", ".npz"):
        matrix = matrix_of_file(path)
    else:
        matrix = NumberTable(path, "float32", "," if endings(path) == ".csv" else None).read()
    values = matrix if isinstance(matrix, np.ndarray) else matrix.data
    broken = int((~np.isfinite(values)).sum())
    if broken:
        raise DataError(Problem(str(path), f"{broken} values", "must be finite numbers", "replace them"))
    return matrix


def _labels(path: Path) -> tuple[np.ndarray, list[str]]:
    """`[V]` classes and, if the file has names, their names in ascending order; or `[V, C]` of 0 and 1.

    Raises:
        DataError: the file is damaged, or classes are no names and no whole numbers.
    """
    if endings(path) == ".npy":
        array = open_npy(path)
        labels = as_labels(array[:, None] if array.ndim == 1 else array, path)
        assert labels is not None
        return labels, []
    words = [line.strip() for line in text_of(path, 100).rstrip().splitlines()]
    try:
        numbers = np.array([float(word or "nan") for word in words])
    except ValueError:
        classes = sorted(set(words) - {""})
        number = {name: place for place, name in enumerate(classes)}
        return np.array([number.get(word, -1) for word in words], np.int64), classes
    labels = as_labels(numbers[:, None], path)
    assert labels is not None
    return labels, []
