"""The base of synthetic datasets: makes a graph with features, labels and splits from candidate edges.

A candidate depends only on its index, so any chunk can be drawn at any time. Candidates therefore are a stream
(`gnnexp.graph.storage.external`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from gnnexp.datasets.base import Dataset, check_memory
from gnnexp.datasets.generated.shapes import ShapeName, Sizes, resolve_sizes
from gnnexp.datasets.splits.split import random_split
from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.storage.external import Chunks, EdgeRules, csc_buckets, write_csc
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.graph.generate import (
    class_features,
    edge_relations,
    latent_classes,
    noisy_labels,
    scrambled,
    unit_rows,
)

# Numbers of the random streams of one seed.
_PAIRS, _PILOT, _ORDER, _CENTROIDS, _NOISE, _LABELS, _RELATIONS = range(7)
_CHUNK = 1 << 22
RULES = EdgeRules(symmetrize=True, drop_loops=True, merge=True)
# With this number of pairs, the standard error of the estimated number of distinct edges is below 0.3 %.
_PILOT_PAIRS = 1 << 16
_FEATURE_BYTES = 64 << 20
Ids = Literal["scrambled", "latent"]


class EdgeModel(ABC):
    """Draws undirected candidate edges by index."""

    @abstractmethod
    def fill(self, key: int, first: int, order: np.ndarray, src: np.ndarray, dst: np.ndarray) -> None:
        """Write candidates `first, first + 1, …` as vertex ids to `src` and `dst` `[n]` int32; see `dcsbm_pairs`."""

    @abstractmethod
    def pair_rates(self, key: int, count: int) -> np.ndarray:
        """`[count]`: probability that a candidate is the same pair as candidate i; 0 for self loops."""


@dataclass(kw_only=True, eq=False)
class Synthetic(Dataset):
    """A random graph with given sizes and parameters, and a model of its edges.

    Attributes:
        name: name of the graph.
        shape: known dataset whose sizes are used; null = `small`.
        scale: factor for the numbers of vertices and edges of the shape.
        num_nodes: V, number of vertices, instead of the shape's. It need not be a power of two.
        num_edges: number of directed edges, instead of the shape's. The graph has this number within about 1 %.
        num_features: D, number of feature columns, instead of the shape's.
        num_classes: C, number of classes, instead of the shape's.
        locality: share of local edges, 0 to 1.
        ids: `scrambled`, or `latent`. With `latent`, vertices with near ids are near in the graph, like pages of a
            crawl that are sorted by address. Ranges of ids then have locality.
        signal: length of the class centroids, in standard deviations of the noise.
        label_noise: share of labels that are random.
        train: share of training vertices, instead of the shape's.
        val: share of validation vertices, instead of the shape's.
        test: share of test vertices; null = the rest, or the shape's.
        seed: seed of all random draws.
        buffer_bytes: memory for edges while the graph is written to disk. It never changes the graph.
        notes: remarks about the generator, for reports.
    """

    name: str
    shape: ShapeName | None = None
    scale: float = 1.0
    num_nodes: int | None = None
    num_edges: int | None = None
    num_features: int | None = None
    num_classes: int | None = None
    locality: float
    ids: Ids = "scrambled"
    signal: float = 1.0
    label_noise: float = 0.05
    train: float | None = None
    val: float | None = None
    test: float | None = None
    seed: int = 0
    buffer_bytes: int = 2 << 30
    unkeyed: ClassVar[frozenset[str]] = frozenset({"buffer_bytes"})
    notes: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of the shape, with the given sizes in place of some."""
        return resolve_sizes(
            self.shape,
            self.scale,
            num_nodes=self.num_nodes,
            num_edges=self.num_edges,
            num_features=self.num_features,
            num_classes=self.num_classes,
            train=self.train,
            val=self.val,
            test=self.test,
        )

    @property
    def at_hand(self) -> bool:
        """False: generating the graph may take long."""
        return False

    @property
    def num_communities(self) -> int:
        """Number of blocks of latent positions. The class of a vertex is its block modulo C."""
        return self.sizes.num_classes

    @property
    def types(self) -> tuple[int, bool]:
        """Number of edge types (0 for none), and whether reverses have their own types. Types are drawn per pair."""
        return 0, False

    def stream_key(self, word: int) -> int:
        """The key of the random stream `word`."""
        return stream(self.seed, Purpose.GENERATE, word)

    def order(self) -> np.ndarray:
        """`[V]` int32 vertex id of each latent position."""
        if self.ids == "latent":
            return np.arange(self.sizes.num_nodes, dtype=np.int32)
        mixed: np.ndarray = scrambled(np.uint64(self.stream_key(_ORDER)), self.sizes.num_nodes)
        return mixed

    @abstractmethod
    def model(self) -> EdgeModel:
        """The model that draws candidate edges."""

    def load(self) -> Graph:
        """The graph in memory.

        Raises:
            DataError: the graph does not fit in memory.
            ConfigError: the vertices cannot have so many distinct edges.
        """
        sizes = self.sizes
        needed = (16 if self.types[0] else 12) * sizes.num_edges + sizes.num_nodes * (4 * sizes.num_features + 64)
        check_memory(needed, f"dataset={self.name}")
        order = self.order()
        indptr, buckets = csc_buckets(passes_of(self, self.model(), order), sizes.num_nodes, RULES, 2**62)
        indices = next(buckets).indices
        types = _relations(self, indptr, indices, np.empty(indices.shape, np.int32)) if self.types[0] else None
        classes, labels, splits = _vertices(self, order)
        features = np.empty((sizes.num_nodes, sizes.num_features), np.float32)
        _fill_features(self, classes, features)
        return Graph(
            torch.from_numpy(indptr),
            torch.from_numpy(indices),
            features=torch.from_numpy(features),
            labels=torch.from_numpy(labels),
            num_classes=sizes.num_classes,
            splits=splits,
            edge_types=types,
            name=self.name,
            notes=self.notes,
        )

    def generate(self, folder: Path) -> Graph | None:
        """Write the same graph to `folder` piece by piece, and open it as memory maps.

        Raises:
            DataError: the disk has no room for the graph.
            ConfigError: the vertices cannot have so many distinct edges.
        """
        sizes = self.sizes
        check_memory(24 * sizes.num_nodes + self.buffer_bytes, f"dataset={self.name}")
        order = self.order()
        with GraphWriter(folder) as writer:
            indptr, indices = write_csc(
                passes_of(self, self.model(), order), sizes.num_nodes, RULES, self.buffer_bytes, writer
            )
            if self.types[0]:
                _relations(self, indptr, indices, writer.array("edge_types", indices.shape, np.int32))
            classes, labels, splits = _vertices(self, order)
            writer.put("labels", labels)
            for split in ("train", "val", "test"):
                writer.put(split, getattr(splits, split))
            features = writer.array("features", (sizes.num_nodes, sizes.num_features), np.float32)
            _fill_features(self, classes, features)
            writer.finish_graph(name=self.name, num_classes=sizes.num_classes, notes=self.notes)
        return open_graph(folder)


def passes_of(data: Synthetic, model: EdgeModel, order: np.ndarray) -> Chunks:
    """A function that begins a pass over all candidates."""
    total = num_candidates(data, model)
    return lambda: _chunks(data, model, order, total)


def _chunks(
    data: Synthetic, model: EdgeModel, order: np.ndarray, total: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All candidates as vertex ids, chunk by chunk. Each chunk reuses the same two arrays."""
    src, dst = np.empty(min(_CHUNK, total), np.int32), np.empty(min(_CHUNK, total), np.int32)
    key = data.stream_key(_PAIRS)
    for first in range(0, total, _CHUNK):
        size = min(_CHUNK, total - first)
        model.fill(key, first, order, src[:size], dst[:size])
        yield src[:size], dst[:size]


def num_candidates(data: Synthetic, model: EdgeModel) -> int:
    """The number of candidates that gives about `num_edges / 2` distinct pairs.

    M candidates with pair probabilities r give M * E[(1 - exp(-M r)) / (M r)] distinct pairs, where E is the mean over
    candidates. The mean is estimated on a pilot of candidates, and the equation is solved for M.

    Raises:
        ConfigError: this number of pairs is not possible with this skew and locality.
    """
    rates = model.pair_rates(data.stream_key(_PILOT), _PILOT_PAIRS)
    target = data.sizes.num_edges / 2
    rates = rates[rates > 0]

    def distinct(candidates: float) -> float:
        return float(-np.expm1(-candidates * rates).dot(1 / rates)) / _PILOT_PAIRS

    low, high = target, 16 * target
    if distinct(high) < target:
        num_edges, most = data.sizes.num_edges, int(2 * distinct(high))
        fix = "lower dataset.num_edges, dataset.skew or dataset.locality, or raise dataset.num_nodes"
        raise ConfigError(
            Problem("dataset.num_edges", num_edges, f"at most about {most} at this skew and locality", fix)
        )
    while high - low > 1e-4 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if distinct(middle) >= target else (middle, high)
    # Rounded, so that the last bit of a machine's expm1 does not change the number of edges.
    step = max(1, round(high) >> 11)
    return -(-round(high) // step) * step


def _vertices(data: Synthetic, order: np.ndarray) -> tuple[np.ndarray, np.ndarray, Splits]:
    """`[V]` classes (on which features and edges depend), `[V]` labels, and the splits."""
    sizes = data.sizes
    classes = latent_classes(order, data.num_communities, sizes.num_classes)
    labels = noisy_labels(np.uint64(data.stream_key(_LABELS)), classes, sizes.num_classes, data.label_noise)
    return classes, labels, random_split(sizes.num_nodes, sizes.train, sizes.val, seed=data.seed, test=sizes.test)


def _relations(data: Synthetic, indptr: np.ndarray, indices: np.ndarray, types: np.ndarray) -> torch.Tensor:
    """Fill `types` `[E]` int32, and return them as a tensor."""
    edge_relations(np.uint64(data.stream_key(_RELATIONS)), indptr, indices, *data.types, types)
    return torch.from_numpy(types)


def _fill_features(data: Synthetic, classes: np.ndarray, features: np.ndarray) -> None:
    num_nodes, num_features = features.shape
    centroids = unit_rows(np.uint64(data.stream_key(_CENTROIDS)), data.sizes.num_classes, num_features, data.signal)
    key = np.uint64(data.stream_key(_NOISE))
    rows = max(1, _FEATURE_BYTES // (4 * num_features))
    for first in range(0, num_nodes, rows):
        class_features(key, first, classes, centroids, features[first : first + rows])


def local_window(sizes: Sizes, locality: float) -> int:
    """Reach of local edges in each direction: the mean number of local edges of a vertex.

    About 4 in 10 pairs within this reach are then joined. The clustering coefficient of local edges is near 0.3, as in
    a ring lattice with this share of its edges.
    """
    return max(1, round(locality * sizes.num_edges / sizes.num_nodes))
