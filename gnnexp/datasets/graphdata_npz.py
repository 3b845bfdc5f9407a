"""Amazon Computers, Coauthor Physics (Shchur et al. 2018) and others, in `.npz` files of GraphData or gnn-benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse.csgraph
import torch

from gnnexp.datasets.base import VertexDataset, class_count
from gnnexp.datasets.published.archives import Archives
from gnnexp.datasets.reading.features import Sparse, feature_rows
from gnnexp.datasets.reading.npz import NpzFile
from gnnexp.datasets.reading.unpickle import as_csr, csr_matrix
from gnnexp.datasets.splits.split import check_fractions, per_class_split, random_split
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.sparse import SparseRows

_FILES = {"amazon-computers": "amazon_cs.npz", "coauthor-physics": "coauthor_phy.npz"}
_PICKLED = ("adj_matrix", "node_label")
_FIX = "get the file again from its publisher"
_PLAIN = ("adj_data", "adj_indices", "adj_indptr", "adj_shape", "labels")
# Shchur, Mumme, Bojchevski, Günnemann, "Pitfalls of GNN Evaluation", 2018, section 3: vertices per class.
_SHCHUR_TRAIN, _SHCHUR_VAL = 20, 30


def _is_archive(path: Path) -> bool:
    file = NpzFile(path)
    return any(all(name in file for name in names) for names in (_PICKLED, _PLAIN))


_ARCHIVES = Archives(".npz", _is_archive, "amazon-computers", _FILES)


@dataclass(kw_only=True, eq=False)
class GraphDataNpz(VertexDataset):
    """A GraphData archive: `adj_matrix`, `node_attr` (pickled CSR) and `node_label`.

    Archives of gnn-benchmark have the same in plain arrays: `adj_data`, `adj_indices`, `adj_indptr`, `adj_shape`, the
    same of `attr`, and `labels`. PyTorch Geometric downloads these for CitationFull, Amazon and Coauthor.

    Attributes:
        name: name of the dataset; the file is `<name>.npz`, with underscores for dashes. With a path, the default gives
            way to the name of the only archive there.
        path: the file or its folder; null = `$GNNEXP_DATA/<name>`.
        sparse: features as sparse rows (true), dense (false), or by their size (auto).
        normalize_features: divide each row by its sum.
        symmetrize: add the reverse of each edge (amazon-computers is stored as crawled, directed).
        self_loops: `keep`, `add` or `remove`.
        split: `random` draws the shares `train` and `val` of all vertices. `shchur` draws 20 training and 30 validation
            vertices per class from the largest component; its other vertices are test. Other components stay in the
            graph, in no split.
        train: share of training vertices (`split=random`).
        val: share of validation vertices (`split=random`); the rest is test.
        seed: seed of the split.
    """

    is_published: ClassVar[bool] = True

    name: Literal["amazon-computers", "coauthor-physics"] | str = "amazon-computers"
    path: str | None = None
    sparse: Sparse = "auto"
    normalize_features: bool = False
    symmetrize: bool = True
    self_loops: Literal["keep", "add", "remove"] = "remove"
    split: Literal["random", "shchur"] = "random"
    train: float = 0.6
    val: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        check_fractions(train=self.train, val=self.val)
        self.name = _ARCHIVES.name(self.path, self.name)

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """An `.npz` file with the arrays of either form, or a folder with one."""
        return _ARCHIVES.recognised(place)

    def sources(self) -> list[Path]:
        """The `.npz` file."""
        return [_ARCHIVES.file(self.path, self.name)]

    def load(self) -> Graph:
        """The graph in memory."""
        path = self.sources()[0]
        file = NpzFile(path)
        adjacency, features, labels = _plain(file) if _PLAIN[0] in file else _pickled(file)
        _check(adjacency.shape, None if features is None else features.shape, labels, str(path))
        coo = adjacency.tocoo()
        num_classes = class_count(labels, f"{path}: node_label")
        labels = labels.astype(np.int64)
        notes = [f"no published split: {self.split} split drawn by gnnexp, seed {self.seed}"]
        if features is None:
            notes.append("the archive has no features of vertices")
        splits = self._splits(adjacency, labels)
        return self.graph_of(
            coo.row, coo.col, labels, num_classes, splits, self._rows(features), tuple(notes), str(path)
        )

    def _rows(self, features: scipy.sparse.csr_array | None) -> torch.Tensor | SparseRows | None:
        return None if features is None else feature_rows(features, self.sparse, normalize=self.normalize_features)

    def _splits(self, adjacency: scipy.sparse.csr_array, labels: np.ndarray) -> Splits:
        if self.split == "random":
            return random_split(labels.size, self.train, self.val, seed=self.seed, among=labels >= 0)
        _, component = scipy.sparse.csgraph.connected_components(adjacency, directed=False)
        among = component == np.bincount(component).argmax()
        return per_class_split(labels, _SHCHUR_TRAIN, _SHCHUR_VAL, seed=self.seed, among=among)


def _pickled(file: NpzFile) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array | None, np.ndarray]:
    """Adjacency, features (None without) and labels of a GraphData archive."""
    file.require(*_PICKLED)
    findings = Findings()
    adjacency = findings.attempt(_csr, file, "adj_matrix")
    features = findings.attempt(_csr, file, "node_attr") if "node_attr" in file else None
    labels = findings.attempt(file.array, "node_label")
    findings.raise_all()
    assert adjacency is not None and labels is not None
    return adjacency, features, labels


def _csr(file: NpzFile, name: str) -> scipy.sparse.csr_array:
    if file.holds_numbers(name):
        return _dense(file.array(name), f"{file.path}: {name}")
    return as_csr(file.object(name), f"{file.path}: {name}")


def _dense(array: np.ndarray, key: str) -> scipy.sparse.csr_array:
    if array.ndim != 2:
        raise DataError(Problem(key, f"shape {array.shape}", "must be a matrix", _FIX))
    return scipy.sparse.csr_array(array)


def _plain(file: NpzFile) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array | None, np.ndarray]:
    """Adjacency, features (None without) and labels of an archive of gnn-benchmark."""
    file.require(*_PLAIN)
    features = None
    if "attr_data" in file:
        features = _in_parts(file, "attr")
    elif "attr_matrix" in file:
        features = _dense(file.array("attr_matrix"), f"{file.path}: attr_matrix")
    return _in_parts(file, "adj"), features, file.array("labels")


def _in_parts(file: NpzFile, name: str) -> scipy.sparse.csr_array:
    file.require(*(f"{name}_{part}" for part in ("data", "indices", "indptr", "shape")))
    data, columns, starts, shape = (file.array(f"{name}_{part}") for part in ("data", "indices", "indptr", "shape"))
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or not (0 <= int(shape.min()) <= int(shape.max()) < 1 << 31):
        raise DataError(Problem(f"{file.path}: {name}_shape", str(shape)[:80], "must be two sizes below 2^31", _FIX))
    return csr_matrix(data, columns, starts, (int(shape[0]), int(shape[1])), f"{file.path}: {name}")


def _check(adjacency: tuple[int, ...], features: tuple[int, ...] | None, labels: np.ndarray, key: str) -> None:
    num_nodes = adjacency[0]
    rows = num_nodes if features is None else features[0]
    if adjacency[1] != num_nodes or rows != num_nodes or labels.shape != (num_nodes,) or num_nodes == 0:
        found = f"adj_matrix {adjacency}, node_attr {features}, node_label {labels.shape}"
        raise DataError(Problem(key, found, "all three must have the same rows", _FIX))
    if labels.dtype.kind not in "iu":
        raise DataError(Problem(f"{key}: node_label", str(labels.dtype), "must be integers", "correct the labels"))
