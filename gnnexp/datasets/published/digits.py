"""scikit-learn's handwritten digits as a nearest-neighbour graph: real data in every installation."""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from gnnexp.components.packages import missing_package
from gnnexp.datasets.base import Dataset, labelled_graph
from gnnexp.datasets.options import LinkOptions
from gnnexp.datasets.splits.split import check_fractions, random_split
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph

_NUM_IMAGES, _NUM_PIXELS, _NUM_CLASSES = 1797, 64, 10


@dataclass(kw_only=True, eq=False)
class Digits(LinkOptions, Dataset):
    """1,797 images of 8x8 pixels in 10 classes (Alpaydin & Kaynak, UCI 1998). Each is joined to its nearest images.

    Attributes:
        name: name of the graph.
        neighbors: number of nearest images, by Euclidean distance. If distances are equal, the lower index is nearer.
        symmetrize: add the reverse of each edge.
        self_loops: `remove` (an image is not its own neighbour) or `add`.
        train: share of training vertices.
        val: share of validation vertices; the rest is test.
        seed: seed of the split, and of held-out links.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
    """

    @property
    def at_hand(self) -> bool:
        """False: there are no files of the user that could be wrong."""
        return False

    name: str = "digits"
    neighbors: int = 10
    symmetrize: bool = True
    self_loops: Literal["remove", "add"] = "remove"
    train: float = 0.6
    val: float = 0.2

    def __post_init__(self) -> None:
        if not 1 <= self.neighbors < _NUM_IMAGES:
            allowed = f"1 to {_NUM_IMAGES - 1}"
            raise ConfigError(Problem("dataset.neighbors", self.neighbors, allowed, "set dataset.neighbors=10"))
        check_fractions(train=self.train, val=self.val)
        self.check_links(self.self_loops)

    def sources(self) -> list[Path]:
        """The CSV file inside scikit-learn. The library is not imported, which would take a second."""
        package = importlib.util.find_spec("sklearn")
        folders = [] if package is None else list(package.submodule_search_locations or [])
        paths = [Path(folder) / "datasets" / "data" / "digits.csv.gz" for folder in folders]
        found = [path for path in paths if path.is_file()]
        if not found:
            raise DataError(missing_package("dataset", "digits", "sklearn", "choose another dataset"))
        return found[:1]

    def load(self) -> Graph:
        """The k-nearest-neighbour graph. Features are pixels, scaled to [0, 1]."""
        pixels, labels = self._read(self.sources()[0])
        src = nearest_neighbors(pixels, self.neighbors).ravel()
        dst = np.repeat(np.arange(_NUM_IMAGES), self.neighbors)
        features = torch.from_numpy((pixels / 16).astype(np.float32))
        splits = random_split(_NUM_IMAGES, self.train, self.val, seed=self.seed)
        edges = build_graph(src, dst, _NUM_IMAGES, symmetrize=self.symmetrize, self_loops=self.self_loops)
        notes = [f"split drawn by gnnexp, seed {self.seed}"]
        graph = labelled_graph(self, edges, labels, _NUM_CLASSES, splits, features, notes)
        return self.with_links(graph, symmetrize=self.symmetrize)

    @staticmethod
    def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
        try:
            with gzip.open(path, "rt", encoding="ascii") as file:
                rows = np.loadtxt(file, delimiter=",", dtype=np.float64)
        except (OSError, EOFError, ValueError) as error:
            raise DataError(Problem(str(path), str(error), "a gzipped table", "reinstall scikit-learn")) from None
        if rows.shape != (_NUM_IMAGES, _NUM_PIXELS + 1):
            allowed = f"({_NUM_IMAGES}, {_NUM_PIXELS + 1})"
            raise DataError(Problem(str(path), rows.shape, f"must be of shape {allowed}", "reinstall scikit-learn"))
        return rows[:, :-1], rows[:, -1].astype(np.int64)


def nearest_neighbors(points: np.ndarray, count: int) -> np.ndarray:
    """`[N, count]` nearest other points of integer `points` `[N, D]`. Exact; ties go to the lower index."""
    num_points = points.shape[0]
    squares = (points**2).sum(axis=1)
    distances = (squares[:, None] + squares[None, :] - 2 * points @ points.T).astype(np.int64)
    np.fill_diagonal(distances, distances.max() + 1)
    order = np.argsort(distances * num_points + np.arange(num_points), axis=1)
    nearest: np.ndarray = order[:, :count]
    return nearest
