"""The heterophilous benchmarks of Platonov et al. (ICLR 2023): `.npz` files with ten published splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from gnnexp.datasets.base import VertexDataset, class_count, single_file
from gnnexp.datasets.reading.npz import NpzFile
from gnnexp.datasets.splits.split import given_split
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.graph import Graph

_NUM_SPLITS = 10
_MASKS = ("train_masks", "val_masks", "test_masks")


@dataclass(kw_only=True, eq=False)
class HeterophilousNpz(VertexDataset):
    """A file with `node_features`, `node_labels`, `edges` (each undirected edge once) and masks of ten splits.

    Attributes:
        name: name of the dataset: tolokers, roman-empire, … The file is `<name>.npz`, with underscores for dashes.
        path: the file or its folder; null = `$GNNEXP_DATA/<name>`.
        split_index: index of the published split, 0 to 9.
        symmetrize: add the reverse of each edge.
        self_loops: `keep`, `add` or `remove`.
    """

    name: str = "tolokers"
    path: str | None = None
    split_index: int = 0
    symmetrize: bool = True
    self_loops: Literal["keep", "add", "remove"] = "remove"

    def __post_init__(self) -> None:
        if not 0 <= self.split_index < _NUM_SPLITS:
            allowed = f"0 to {_NUM_SPLITS - 1}"
            raise ConfigError(Problem("dataset.split_index", self.split_index, allowed, "set dataset.split_index=0"))

    def sources(self) -> list[Path]:
        """The `.npz` file."""
        return [single_file(self.path, self.name, f"{self.name.replace('-', '_')}.npz")]

    def load(self) -> Graph:
        """The graph in memory."""
        path = self.sources()[0]
        file = NpzFile(path)
        file.require("node_features", "node_labels", "edges", *_MASKS)
        features, labels, edges = (file.array(name) for name in ("node_features", "node_labels", "edges"))
        masks = [file.array(name) for name in _MASKS]
        _check(features, labels, edges, masks, str(path))
        num_classes = class_count(labels, f"{path}: node_labels")
        return self.graph_of(
            edges[:, 0], edges[:, 1], labels.astype(np.int64), num_classes,
            given_split(*(mask[self.split_index] for mask in masks)),
            torch.from_numpy(features.astype(np.float32, copy=False)),
            (f"published split {self.split_index} of {_NUM_SPLITS}",), f"{path}: edges")


def _check(features: np.ndarray, labels: np.ndarray, edges: np.ndarray, masks: list[np.ndarray], key: str) -> None:
    num_nodes = labels.size
    rules = (
        ("node_features", features, "f", (num_nodes, None)),
        ("node_labels", labels, "iu", (num_nodes,)),
        ("edges", edges, "iu", (None, 2)),
        *((name, mask, "b", (_NUM_SPLITS, num_nodes)) for name, mask in zip(_MASKS, masks, strict=True)),
    )
    problems = []
    for name, array, kinds, shape in rules:
        expected = tuple(size if want is None else want for want, size in zip(shape, array.shape, strict=False))
        if array.shape != expected or array.ndim != len(shape) or array.dtype.kind not in kinds or num_nodes == 0:
            allowed = f"shape {shape} of kind {kinds!r}"
            fix = "check that it is a file of the heterophilous-graphs repository"
            problems.append(Problem(f"{key}: {name}", f"{array.dtype} {array.shape}", allowed, fix))
    DataError.raise_all(problems)
