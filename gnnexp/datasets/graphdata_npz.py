"""Amazon Computers and Coauthor Physics (Shchur et al. 2018) in the `.npz` files of GraphData."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse.csgraph

from gnnexp.datasets.base import VertexDataset, class_count, single_file
from gnnexp.datasets.reading.features import Sparse, feature_rows
from gnnexp.datasets.reading.npz import NpzFile
from gnnexp.datasets.reading.unpickle import as_csr
from gnnexp.datasets.splits.split import check_fractions, per_class_split, random_split
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.graph.graph import Graph, Splits

_FILES = {"amazon-computers": "amazon_cs.npz", "coauthor-physics": "coauthor_phy.npz"}
# Shchur, Mumme, Bojchevski, Günnemann, "Pitfalls of GNN Evaluation", 2018, section 3: vertices per class.
_SHCHUR_TRAIN, _SHCHUR_VAL = 20, 30


@dataclass(kw_only=True, eq=False)
class GraphDataNpz(VertexDataset):
    """A GraphData archive: `adj_matrix`, `node_attr` (pickled CSR) and `node_label`.

    Attributes:
        name: name of the dataset.
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

    name: Literal["amazon-computers", "coauthor-physics"] = "amazon-computers"
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

    def sources(self) -> list[Path]:
        """The `.npz` file."""
        return [single_file(self.path, self.name, _FILES[self.name])]

    def load(self) -> Graph:
        """The graph in memory."""
        path = self.sources()[0]
        file = NpzFile(path)
        file.require("adj_matrix", "node_attr", "node_label")
        findings = Findings()
        adjacency, features = (findings.attempt(_csr, file, name) for name in ("adj_matrix", "node_attr"))
        labels = findings.attempt(file.array, "node_label")
        if adjacency is None or features is None or labels is None:
            findings.raise_all()
        assert adjacency is not None and features is not None and labels is not None
        _check(adjacency.shape, features.shape, labels, str(path))
        coo = adjacency.tocoo()
        num_classes = class_count(labels, f"{path}: node_label")
        labels = labels.astype(np.int64)
        notes = (f"no published split: {self.split} split drawn by gnnexp, seed {self.seed}",)
        rows = feature_rows(features, self.sparse, normalize=self.normalize_features)
        splits = self._splits(adjacency, labels)
        return self.graph_of(coo.row, coo.col, labels, num_classes, splits, rows, notes, str(path))

    def _splits(self, adjacency: scipy.sparse.csr_array, labels: np.ndarray) -> Splits:
        if self.split == "random":
            return random_split(labels.size, self.train, self.val, seed=self.seed, among=labels >= 0)
        _, component = scipy.sparse.csgraph.connected_components(adjacency, directed=False)
        among = component == np.bincount(component).argmax()
        return per_class_split(labels, _SHCHUR_TRAIN, _SHCHUR_VAL, seed=self.seed, among=among)


def _csr(file: NpzFile, name: str) -> scipy.sparse.csr_array:
    return as_csr(file.object(name), f"{file.path}: {name}")


def _check(adjacency: tuple[int, ...], features: tuple[int, ...], labels: np.ndarray, key: str) -> None:
    num_nodes = adjacency[0]
    if adjacency[1] != num_nodes or features[0] != num_nodes or labels.shape != (num_nodes,) or num_nodes == 0:
        found = f"adj_matrix {adjacency}, node_attr {features}, node_label {labels.shape}"
        fix = "get the file again from its publisher"
        raise DataError(Problem(key, found, "all three must have the same rows", fix))
    if labels.dtype.kind not in "iu":
        raise DataError(Problem(f"{key}: node_label", str(labels.dtype), "must be integers", "correct the labels"))
