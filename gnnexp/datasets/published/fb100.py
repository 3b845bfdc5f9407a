"""Facebook100 friendship graphs (Traud et al. 2012) as MATLAB files, with the task of Lim et al. (NeurIPS 2021)."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import scipy.sparse

from gnnexp.datasets.base import Dataset, labelled_graph
from gnnexp.datasets.options import LinkOptions
from gnnexp.datasets.published.archives import ArchiveFile, Archives
from gnnexp.datasets.reading.features import Sparse, feature_rows, one_hot_columns
from gnnexp.datasets.reading.matlab import SparseColumns, names_in_matlab, read_matlab
from gnnexp.datasets.reading.unpickle import csr_matrix
from gnnexp.datasets.splits.split import check_fractions, random_split
from gnnexp.errors import DataError, Problem
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph

_NUM_COLUMNS, _GENDER = 7, 1
_VARIABLES = ("A", "local_info")


@dataclass(kw_only=True, eq=False)
class Fb100(ArchiveFile, LinkOptions, Dataset):
    """One school. The label is gender - 1 (-1 = missing, 0 in the file). Features: one-hot codes of six other columns.

    Attributes:
        name: name of the school, as in its file `<name>.mat`. With a path, the default gives way to the name of the
            only such file there.
        path: the file or its folder; null = `$GNNEXP_DATA/fb100-<name in lower case>`.
        sparse: features as sparse rows (true), dense (false), or by their size (auto).
        symmetrize: add the reverse of each edge (the published files already have both).
        self_loops: `keep`, `add` or `remove`.
        train: share of training vertices among labelled vertices.
        val: share of validation vertices; the rest is test.
        seed: seed of the split, and of held-out links.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
    """

    archives: ClassVar[Archives] = Archives(
        ".mat", lambda path: {*_VARIABLES} <= {*names_in_matlab(path)}, "Cornell5", prefix="fb100-", dashes=False
    )

    name: str = "Cornell5"
    sparse: Sparse = "auto"
    train: float = 0.5
    val: float = 0.25

    def __post_init__(self) -> None:
        check_fractions(train=self.train, val=self.val)
        self.check_links(self.self_loops)
        super().__post_init__()

    def load(self) -> Graph:
        """The graph in memory."""
        path = self.sources()[0]
        adjacency, info = _read(path)
        coo = adjacency.tocoo()
        labels = info[:, _GENDER].astype(np.int64) - 1
        splits = random_split(labels.size, self.train, self.val, seed=self.seed, among=labels >= 0)
        others = np.delete(info, _GENDER, axis=1)
        notes = (
            f"{int((labels < 0).sum())} vertices without a label are in no split",
            f"no published split: drawn by gnnexp, seed {self.seed}",
            "describes real, anonymised people: use it in aggregate only",
        )
        features = feature_rows(one_hot_columns(others), self.sparse, normalize=False)
        edges = build_graph(
            coo.col, coo.row, labels.size, symmetrize=self.symmetrize, self_loops=self.self_loops, key=str(path)
        )
        graph = labelled_graph(self, edges, labels, 2, splits, features, notes)
        return self.with_links(graph, symmetrize=self.symmetrize)


def _read(path: Path) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """The adjacency matrix and `local_info`."""
    fix = "get the file again from its publisher (MATLAB v5, not v7.3)"
    try:
        content = read_matlab(path, _VARIABLES)
    except (ValueError, IndexError, OSError, StopIteration, MemoryError, struct.error, zlib.error) as error:
        raise DataError(Problem(str(path), str(error)[:200], "a whole MATLAB v5 file", fix)) from None
    matrix, info = content.get("A"), content.get("local_info")
    if isinstance(info, np.ndarray) and info.dtype.kind == "f" and _are_whole(info):
        info = info.astype(np.int64)
    if not isinstance(matrix, SparseColumns) or not isinstance(info, np.ndarray) or info.dtype.kind not in "iu":
        shown = f"{', '.join(content) or 'neither'}"
        raise DataError(Problem(str(path), shown, "A must be sparse and local_info integers", fix))
    if len(matrix.shape) != 2 or info.shape != (matrix.shape[0], _NUM_COLUMNS) or matrix.shape[0] != matrix.shape[1]:
        shown = f"A {matrix.shape}, local_info {info.shape}"
        raise DataError(Problem(str(path), shown, f"A [V, V] and local_info [V, {_NUM_COLUMNS}]", fix))
    # The arrays of a matrix in CSC form are those of its transpose in CSR form.
    shape = (matrix.shape[0], matrix.shape[0])
    adjacency = csr_matrix(matrix.data, matrix.rows, matrix.starts, shape, f"{path}: A")
    gender = info[:, _GENDER]
    if gender.size and (int(gender.min()) < 0 or int(gender.max()) > 2):
        raise DataError(Problem(f"{path}: local_info", f"{gender.min()}..{gender.max()}", "gender 0, 1 or 2", fix))
    return adjacency, info


def _are_whole(values: np.ndarray) -> bool:
    return bool(((np.abs(values) < 1 << 31) & (values == np.floor(values))).all())
