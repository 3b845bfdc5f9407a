"""Graphs in Matrix Market files (https://math.nist.gov/MatrixMarket/formats.html), with one class for each vertex."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from scipy.io import mmread

from gnnexp.datasets.base import Dataset, checked, class_count, data_folder, existing_files
from gnnexp.datasets.splits.split import check_fractions, random_split
from gnnexp.errors import DataError, Problem
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph


class MatrixMarket(Dataset):
    """Reads `NAME.mtx`, an entry (i, j) for each edge j -> i, and `NAME.labels`, a class per line.

    The features are one-hot ids.

    Args:
        name: file name without its ending.
        path: folder of the files; null: `$GNNEXP_DATA/matrix_market`.
        symmetrize: whether the reverse of every edge is added.
        train: share of training vertices, 0 to 1.
        val: share of validation vertices; the other vertices are for the test.
        seed: seed of the split.
    """

    def __init__(
        self,
        *,
        name: str,
        path: str | None = None,
        symmetrize: bool = True,
        train: float = 0.3,
        val: float = 0.3,
        seed: int = 0,
    ) -> None:
        check_fractions(train=train, val=val)
        self.name, self.path, self.symmetrize = name, path, symmetrize
        self.train, self.val, self.seed = train, val, seed

    def sources(self) -> list[Path]:
        """Both files. Their bytes are part of the content key of the prepared graph."""
        folder = data_folder(self.path, "matrix_market")
        return list(existing_files(folder, [f"{self.name}.mtx", f"{self.name}.labels"], "matrix_market").values())

    def load(self) -> Graph:
        """Read the graph and check it."""
        matrix_file, labels_file = self.sources()
        try:
            matrix = mmread(matrix_file).tocoo()
            labels = np.loadtxt(labels_file, dtype=np.int64, ndmin=1)
        except (ValueError, OSError) as error:
            raise DataError(
                Problem(
                    str(matrix_file.parent / self.name),
                    str(error),
                    "a .mtx file and a class per line",
                    "save the files again",
                )
            ) from None
        num_nodes = matrix.shape[0]
        edges = build_graph(
            matrix.col, matrix.row, num_nodes, symmetrize=self.symmetrize, self_loops="remove", key=str(matrix_file)
        )
        return checked(
            Graph(
                edges.indptr,
                edges.indices,
                features=torch.eye(num_nodes),
                labels=torch.from_numpy(labels),
                num_classes=class_count(labels, str(labels_file)),
                splits=random_split(num_nodes, self.train, self.val, seed=self.seed),
                name=self.name,
            )
        )
