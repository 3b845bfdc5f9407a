"""Synthetic graphs: a generator makes features, labels and splits, and edges of the candidates that a model draws.

A candidate depends only on its index, so any chunk can be drawn at any time. Candidates therefore are a stream
(`gnnexp.graph.storage.external`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.generated.shapes import Sizes
from gnnexp.datasets.splits.split import random_split
from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.storage.external import Chunks, EdgeRules, csc_buckets, write_csc
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.storage.layout import SPLITS
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
class DrawOptions:
    """What is drawn for the vertices of a synthetic graph.

    Attributes:
        ids: `scrambled`, or `latent`. With `latent`, vertices with near ids are near in the graph, like pages of a
            crawl that are sorted by address. Ranges of ids then have locality.
        signal: length of the class centroids, in standard deviations of the noise.
        label_noise: share of labels that are random.
        seed: seed of all random draws.
        buffer_bytes: memory for edges while the graph is written to disk. It never changes the graph.
    """

    ids: Ids = "scrambled"
    signal: float = 1.0
    label_noise: float = 0.05
    seed: int = 0
    buffer_bytes: int = 2 << 30


@dataclass(frozen=True, eq=False)
class Generator:
    """Makes a graph of the edges that a model draws.

    Attributes:
        name: name of the graph.
        sizes: its sizes.
        model: the model of its edges.
        options: what is drawn for its vertices.
        note: a remark about the generator, for reports.
        num_communities: number of blocks of latent positions. The class of a vertex is its block modulo C.
        types: number of edge types (0 for none), and whether reverses have their own types. Types are drawn per pair.
    """

    name: str
    sizes: Sizes
    model: EdgeModel
    options: DrawOptions
    note: str
    num_communities: int
    types: tuple[int, bool] = (0, False)

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
        indptr, buckets = csc_buckets(self.passes(order), sizes.num_nodes, RULES, 2**62)
        indices = next(buckets).indices
        types = self._relations(indptr, indices, np.empty(indices.shape, np.int32)) if self.types[0] else None
        classes, labels, splits = self._vertices(order)
        features = np.empty((sizes.num_nodes, sizes.num_features), np.float32)
        self._fill_features(classes, features)
        return Graph(
            torch.from_numpy(indptr),
            torch.from_numpy(indices),
            features=torch.from_numpy(features),
            labels=torch.from_numpy(labels),
            num_classes=sizes.num_classes,
            splits=splits,
            edge_types=types,
            name=self.name,
            notes=(self.note,),
        )

    def write(self, folder: Path) -> Graph:
        """Write the same graph to `folder` piece by piece, and open it as memory maps.

        Raises:
            DataError: the disk has no room for the graph.
            ConfigError: the vertices cannot have so many distinct edges.
        """
        sizes, buffer_bytes = self.sizes, self.options.buffer_bytes
        check_memory(24 * sizes.num_nodes + buffer_bytes, f"dataset={self.name}")
        order = self.order()
        with GraphWriter(folder) as writer:
            indptr, indices = write_csc(self.passes(order), sizes.num_nodes, RULES, buffer_bytes, writer)
            if self.types[0]:
                self._relations(indptr, indices, writer.array("edge_types", indices.shape, np.int32))
            classes, labels, splits = self._vertices(order)
            writer.put("labels", labels)
            for split in SPLITS:
                writer.put(split, getattr(splits, split))
            features = writer.array("features", (sizes.num_nodes, sizes.num_features), np.float32)
            self._fill_features(classes, features)
            writer.finish_graph(name=self.name, num_classes=sizes.num_classes, notes=(self.note,))
        return open_graph(folder)

    def order(self) -> np.ndarray:
        """`[V]` int32 vertex id of each latent position."""
        if self.options.ids == "latent":
            return np.arange(self.sizes.num_nodes, dtype=np.int32)
        mixed: np.ndarray = scrambled(np.uint64(self._key(_ORDER)), self.sizes.num_nodes)
        return mixed

    def passes(self, order: np.ndarray) -> Chunks:
        """A function that begins a pass over all candidates."""
        total = self.num_candidates()
        return lambda: self._chunks(order, total)

    def num_candidates(self) -> int:
        """The number of candidates that gives about `num_edges / 2` distinct pairs.

        M candidates with pair probabilities r give M * E[(1 - exp(-M r)) / (M r)] distinct pairs, where E is the mean
        over candidates. The mean is estimated on a pilot of candidates, and the equation is solved for M.

        Raises:
            ConfigError: this number of pairs is not possible with this skew and locality.
        """
        rates = self.model.pair_rates(self._key(_PILOT), _PILOT_PAIRS)
        target = self.sizes.num_edges / 2
        rates = rates[rates > 0]

        def distinct(candidates: float) -> float:
            return float(-np.expm1(-candidates * rates).dot(1 / rates)) / _PILOT_PAIRS

        low, high = target, 16 * target
        if distinct(high) < target:
            num_edges, most = self.sizes.num_edges, int(2 * distinct(high))
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

    def _key(self, word: int) -> int:
        """The key of the random stream `word`."""
        return stream(self.options.seed, Purpose.GENERATE, word)

    def _chunks(self, order: np.ndarray, total: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All candidates as vertex ids, chunk by chunk. Each chunk reuses the same two arrays."""
        src, dst = np.empty(min(_CHUNK, total), np.int32), np.empty(min(_CHUNK, total), np.int32)
        key = self._key(_PAIRS)
        for first in range(0, total, _CHUNK):
            size = min(_CHUNK, total - first)
            self.model.fill(key, first, order, src[:size], dst[:size])
            yield src[:size], dst[:size]

    def _vertices(self, order: np.ndarray) -> tuple[np.ndarray, np.ndarray, Splits]:
        """`[V]` classes (on which features and edges depend), `[V]` labels, and the splits."""
        sizes, options = self.sizes, self.options
        classes = latent_classes(order, self.num_communities, sizes.num_classes)
        labels = noisy_labels(np.uint64(self._key(_LABELS)), classes, sizes.num_classes, options.label_noise)
        splits = random_split(sizes.num_nodes, sizes.train, sizes.val, seed=options.seed, test=sizes.test)
        return classes, labels, splits

    def _relations(self, indptr: np.ndarray, indices: np.ndarray, types: np.ndarray) -> torch.Tensor:
        """Fill `types` `[E]` int32, and return them as a tensor."""
        edge_relations(np.uint64(self._key(_RELATIONS)), indptr, indices, *self.types, types)
        return torch.from_numpy(types)

    def _fill_features(self, classes: np.ndarray, features: np.ndarray) -> None:
        num_nodes, num_features = features.shape
        key = np.uint64(self._key(_CENTROIDS))
        centroids = unit_rows(key, self.sizes.num_classes, num_features, self.options.signal)
        key = np.uint64(self._key(_NOISE))
        rows = max(1, _FEATURE_BYTES // (4 * num_features))
        for first in range(0, num_nodes, rows):
            class_features(key, first, classes, centroids, features[first : first + rows])


def local_window(sizes: Sizes, locality: float) -> int:
    """Reach of local edges in each direction: the mean number of local edges of a vertex.

    About 4 in 10 pairs within this reach are then joined. The clustering coefficient of local edges is near 0.3, as in
    a ring lattice with this share of its edges.
    """
    return max(1, round(locality * sizes.num_edges / sizes.num_nodes))
