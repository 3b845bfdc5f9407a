"""The heterophilous benchmarks of Platonov et al. (ICLR 2023): `.npz` files with ten published splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from gnnexp.datasets.base import VertexDataset, class_count
from gnnexp.datasets.published.archives import Archives
from gnnexp.datasets.reading.npz import NpzFile
from gnnexp.datasets.splits.split import given_split
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.graph import Graph

_MASKS = ("train_masks", "val_masks", "test_masks")
_ARRAYS = ("node_features", "node_labels", "edges", *_MASKS)
_ARCHIVES = Archives(".npz", lambda path: all(name in NpzFile(path) for name in _ARRAYS), "tolokers")
Known = Literal["tolokers", "roman-empire", "amazon-ratings", "minesweeper", "questions"]


@dataclass(kw_only=True, eq=False)
class HeterophilousNpz(VertexDataset):
    """A file with `node_features`, `node_labels`, `edges` (each undirected edge once) and masks of several splits.

    Attributes:
        name: name of the dataset: tolokers, roman-empire, … or any other. The file is `<name>.npz`, with underscores
            for dashes. With a path, the default gives way to the name of the only such file there.
        path: the file or its folder; null = `$GNNEXP_DATA/<name>`.
        split_index: index of the published split, 0 to 9 in the published files.
        symmetrize: add the reverse of each edge.
        self_loops: `keep`, `add` or `remove`.
    """

    is_published: ClassVar[bool] = True

    name: Known | str = "tolokers"
    path: str | None = None
    split_index: int = 0
    symmetrize: bool = True
    self_loops: Literal["keep", "add", "remove"] = "remove"

    def __post_init__(self) -> None:
        if self.split_index < 0:
            raise ConfigError(
                Problem("dataset.split_index", self.split_index, "must be 0 or more", "set dataset.split_index=0")
            )
        self.name = _ARCHIVES.name(self.path, self.name)

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """An `.npz` file with these arrays, or a folder with one."""
        return _ARCHIVES.recognised(place)

    def sources(self) -> list[Path]:
        """The `.npz` file."""
        return [_ARCHIVES.file(self.path, self.name)]

    def load(self) -> Graph:
        """The graph in memory."""
        path = self.sources()[0]
        file = NpzFile(path)
        file.require(*_ARRAYS)
        features, labels, edges = (file.array(name) for name in ("node_features", "node_labels", "edges"))
        masks = [file.array(name) for name in _MASKS]
        masks = [mask[None] if mask.ndim == 1 else mask for mask in masks]
        _check(features, labels, edges, masks, str(path))
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
        return self.graph_of(
            edges[:, 0],
            edges[:, 1],
            labels.astype(np.int64),
            num_classes,
            given_split(*(mask[self.split_index] for mask in masks)),
            torch.from_numpy(features.astype(np.float32, copy=False)),
            (f"published split {self.split_index} of {count}",),
            f"{path}: edges",
        )


def _check(features: np.ndarray, labels: np.ndarray, edges: np.ndarray, masks: list[np.ndarray], key: str) -> None:
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
