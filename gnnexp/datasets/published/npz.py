"""Published data sets in `.npz` files, of GraphData, gnn-benchmark (Shchur 2018) and Platonov et al. (ICLR 2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse.csgraph
import torch

from gnnexp.datasets.base import Dataset, class_count, labelled_graph
from gnnexp.datasets.options import LinkOptions
from gnnexp.datasets.published.archives import ArchiveFile, Archives
from gnnexp.datasets.reading.features import Sparse, feature_rows
from gnnexp.datasets.reading.npz import NpzFile
from gnnexp.datasets.reading.unpickle import as_csr, csr_matrix
from gnnexp.datasets.splits.split import check_fractions, given_split, per_class_split, random_split
from gnnexp.errors import ConfigError, DataError, Findings, Problem
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.sparse import SparseRows

_MASKS = ("train_masks", "val_masks", "test_masks")
# The arrays that files of each form have.
_ARRAYS = {
    "GraphData": ("adj_matrix", "node_label"),
    "gnn-benchmark": ("adj_data", "adj_indices", "adj_indptr", "adj_shape", "labels"),
    "heterophilous": ("node_features", "node_labels", "edges", *_MASKS),
}
_FILES = {"amazon-computers": "amazon_cs.npz", "coauthor-physics": "coauthor_phy.npz"}
_FIX = "get the file again from its publisher"
# Shchur, Mumme, Bojchevski, Günnemann, "Pitfalls of GNN Evaluation", 2018, section 3: vertices per class.
_SHCHUR_TRAIN, _SHCHUR_VAL = 20, 30
Known = Literal["tolokers", "roman-empire", "amazon-ratings", "minesweeper", "questions"]


def _has(*forms: str) -> Callable[[Path], bool]:
    """Whether a file has the arrays of one of these forms."""

    def fits(path: Path) -> bool:
        file = NpzFile(path)
        return any(all(name in file for name in _ARRAYS[form]) for form in forms)

    return fits


@dataclass(kw_only=True, eq=False)
class GraphDataNpz(ArchiveFile, LinkOptions, Dataset):
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
        seed: seed of the split, and of held-out links.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
    """

    archives: ClassVar[Archives] = Archives(".npz", _has("GraphData", "gnn-benchmark"), "amazon-computers", _FILES)

    name: Literal["amazon-computers", "coauthor-physics"] | str = "amazon-computers"
    sparse: Sparse = "auto"
    normalize_features: bool = False
    split: Literal["random", "shchur"] = "random"
    train: float = 0.6
    val: float = 0.2

    def __post_init__(self) -> None:
        check_fractions(train=self.train, val=self.val)
        self.check_links(self.self_loops)
        super().__post_init__()

    def load(self) -> Graph:
        """The graph in memory."""
        path = self.sources()[0]
        file = NpzFile(path)
        adjacency, features, labels = _plain(file) if _ARRAYS["gnn-benchmark"][0] in file else _pickled(file)
        _check_rows(adjacency.shape, None if features is None else features.shape, labels, str(path))
        coo = adjacency.tocoo()
        num_classes = class_count(labels, f"{path}: node_label")
        labels = labels.astype(np.int64)
        notes = [f"no published split: {self.split} split drawn by gnnexp, seed {self.seed}"]
        if features is None:
            notes.append("the archive has no features of vertices")
        splits = self._splits(adjacency, labels)
        rows = self._rows(features)
        edges = build_graph(
            coo.row, coo.col, labels.size, symmetrize=self.symmetrize, self_loops=self.self_loops, key=str(path)
        )
        graph = labelled_graph(self, edges, labels, num_classes, splits, rows, notes)
        return self.with_links(graph, symmetrize=self.symmetrize)

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
    file.require(*_ARRAYS["GraphData"])
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
    file.require(*_ARRAYS["gnn-benchmark"])
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


def _check_rows(adjacency: tuple[int, ...], features: tuple[int, ...] | None, labels: np.ndarray, key: str) -> None:
    num_nodes = adjacency[0]
    rows = num_nodes if features is None else features[0]
    if adjacency[1] != num_nodes or rows != num_nodes or labels.shape != (num_nodes,) or num_nodes == 0:
        found = f"adj_matrix {adjacency}, node_attr {features}, node_label {labels.shape}"
        raise DataError(Problem(key, found, "all three must have the same rows", _FIX))
    if labels.dtype.kind not in "iu":
        raise DataError(Problem(f"{key}: node_label", str(labels.dtype), "must be integers", "correct the labels"))


@dataclass(kw_only=True, eq=False)
class HeterophilousNpz(ArchiveFile, LinkOptions, Dataset):
    """A file with `node_features`, `node_labels`, `edges` (each undirected edge once) and masks of several splits.

    Attributes:
        name: name of the dataset: tolokers, roman-empire, … or any other. The file is `<name>.npz`, with underscores
            for dashes. With a path, the default gives way to the name of the only such file there.
        path: the file or its folder; null = `$GNNEXP_DATA/<name>`.
        split_index: index of the published split, 0 to 9 in the published files.
        symmetrize: add the reverse of each edge.
        self_loops: `keep`, `add` or `remove`.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
        seed: seed of the draw of these links.
    """

    archives: ClassVar[Archives] = Archives(".npz", _has("heterophilous"), "tolokers")

    name: Known | str = "tolokers"
    split_index: int = 0

    def __post_init__(self) -> None:
        if self.split_index < 0:
            raise ConfigError(
                Problem("dataset.split_index", self.split_index, "must be 0 or more", "set dataset.split_index=0")
            )
        self.check_links(self.self_loops)
        super().__post_init__()

    def load(self) -> Graph:
        """The graph in memory."""
        path = self.sources()[0]
        file = NpzFile(path)
        file.require(*_ARRAYS["heterophilous"])
        features, labels, edges = (file.array(name) for name in ("node_features", "node_labels", "edges"))
        masks = [file.array(name) for name in _MASKS]
        masks = [mask[None] if mask.ndim == 1 else mask for mask in masks]
        _check_arrays(features, labels, edges, masks, str(path))
        count = masks[0].shape[0]
        if self.split_index >= count:
            raise DataError(
                Problem(
                    "dataset.split_index",
                    self.split_index,
                    f"{path} has the splits 0 to {count - 1}",
                    "set dataset.split_index=0",
                )
            )
        num_classes = class_count(labels, f"{path}: node_labels")
        splits = given_split(*(mask[self.split_index] for mask in masks))
        arrays = build_graph(
            edges[:, 0],
            edges[:, 1],
            labels.size,
            symmetrize=self.symmetrize,
            self_loops=self.self_loops,
            key=f"{path}: edges",
        )
        rows = torch.from_numpy(features.astype(np.float32, copy=False))
        notes = [f"published split {self.split_index} of {count}"]
        graph = labelled_graph(self, arrays, labels.astype(np.int64), num_classes, splits, rows, notes)
        return self.with_links(graph, symmetrize=self.symmetrize)


def _check_arrays(
    features: np.ndarray, labels: np.ndarray, edges: np.ndarray, masks: list[np.ndarray], key: str
) -> None:
    num_nodes, count = labels.size, len(np.atleast_1d(masks[0]))
    rules = (
        ("node_features", features, "fiu", (num_nodes, None)),
        ("node_labels", labels, "iu", (num_nodes,)),
        ("edges", edges, "iu", (None, 2)),
        *((name, mask, "b", (count, num_nodes)) for name, mask in zip(_MASKS, masks, strict=True)),
    )
    problems = []
    for name, array, kinds, shape in rules:
        expected = tuple(size if want is None else want for want, size in zip(shape, array.shape, strict=False))
        if (
            array.shape != expected
            or array.ndim != len(shape)
            or array.dtype.kind not in kinds
            or 0 in (num_nodes, count)
        ):
            allowed = f"shape {shape} of kind {kinds!r}"
            fix = "check that it is a file of the heterophilous-graphs repository"
            problems.append(Problem(f"{key}: {name}", f"{array.dtype} {array.shape}", allowed, fix))
    DataError.raise_all(problems)
