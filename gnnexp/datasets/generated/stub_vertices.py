"""Vertices of the configuration model: ids, communities, labels, features, and training vertices in few communities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gnnexp.datasets.generated.shapes import Sizes
from gnnexp.datasets.splits.split import random_split, vertex_words
from gnnexp.graph.graph import Splits
from gnnexp.graph.storage.format import GraphWriter
from gnnexp.graph.storage.layout import SPLITS
from gnnexp.kernels.counter import Purpose, permutation, stream
from gnnexp.kernels.graph.generate import class_features, noisy_labels, unit_rows
from gnnexp.kernels.graph.stubs import places

# Numbers of the random streams of one seed.
_CENTROIDS, _NOISE, _LABELS, _COMMUNITIES = range(32, 36)
_FEATURE_BYTES = 64 << 20


@dataclass(frozen=True)
class Places:
    """Places of vertices: ids are places, or a keyed permutation of them; a community is a range of places.

    Attributes:
        num_nodes: V.
        community_size: number of vertices in a community; the last one may be smaller.
        id_key: key of the permutation, or None.
    """

    num_nodes: int
    community_size: int
    id_key: int | None

    @property
    def num_communities(self) -> int:
        """Number of communities."""
        return -(-self.num_nodes // self.community_size)

    def communities(self) -> np.ndarray:
        """`[V]` int32 community of each id."""
        found: np.ndarray = places(self.num_nodes, self.id_key is not None, np.uint64(self.id_key or 0))
        found //= self.community_size
        return found

    def chosen(self, share: float) -> int:
        """The number of communities that are this share of all, at least one; a smaller last one only with all."""
        return self.num_communities if share == 1 else max(1, round(share * (self.num_nodes // self.community_size)))

    def num_members(self, count: int) -> int:
        """The number of vertices of `count` communities; a smaller last one is chosen last."""
        return min(self.num_nodes, count * self.community_size)

    def order(self, key: int) -> np.ndarray:
        """All communities in the random order in which they are chosen, a smaller last one at the end."""
        whole = self.num_nodes // self.community_size
        return np.concatenate([permutation(key, whole), np.arange(whole, self.num_communities)])


@dataclass(frozen=True)
class VertexModel:
    """What is drawn for vertices; attributes are options of `Configuration` and `DrawOptions`."""

    sizes: Sizes
    places: Places
    seed: int
    signal: float
    label_noise: float
    train_in: float
    density_range: float
    train_power: float

    @property
    def is_uniform(self) -> bool:
        """Whether all vertices are equally likely to be training vertices."""
        return self.train_in == 1 and self.density_range == 1 and self.train_power == 0

    def key_of(self, word: int) -> int:
        """The key of a random stream."""
        return stream(self.seed, Purpose.GENERATE, word)


def targets(dataset: VertexModel, indptr: np.ndarray) -> Splits:
    """The splits. Training vertices are uniform, or lie in few communities; the others are uniform among the rest.

    Args:
        dataset: sizes and options.
        indptr: `[V + 1]` bounds of in-edges.
    """
    sizes, V = dataset.sizes, dataset.sizes.num_nodes
    if dataset.is_uniform:
        return random_split(V, sizes.train, sizes.val, seed=dataset.seed, test=sizes.test)
    chances = _chances(dataset, indptr)
    # The vertices with the earliest of exponential times, whose rates are the chances (Efraimidis & Spirakis 2006).
    # Times are rounded: the last bit of a machine's logarithm decides nothing.
    uniform = ((vertex_words(dataset.seed, V) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    times = np.full(V, np.inf, np.float32)
    possible = chances > 0
    times[possible] = -np.log(uniform[possible]) / chances[possible]
    train = np.zeros(V, bool)
    train[np.argsort(times, kind="stable")[: round(sizes.train * V)]] = True
    rest = random_split(
        V,
        0.0,
        min(1.0, sizes.val * V / max(1, V - train.sum())),
        seed=dataset.seed + 1,
        test=None if sizes.test is None else min(1.0, sizes.test * V / max(1, V - train.sum())),
        among=~train,
    )
    return Splits(torch.from_numpy(np.flatnonzero(train)), rest.val, rest.test)


def _chances(dataset: VertexModel, indptr: np.ndarray) -> np.ndarray:
    """`[V]` float32 relative chance of each vertex to be a training vertex; 0 outside of the chosen communities."""
    where, count = dataset.places, dataset.places.chosen(dataset.train_in)
    densities = np.zeros(where.num_communities)
    chosen = where.order(dataset.key_of(_COMMUNITIES))[:count]
    densities[chosen] = dataset.density_range ** -(np.arange(count) / max(1, count - 1))
    degrees = np.maximum(indptr[1:] - indptr[:-1], 1).astype(np.float64)
    chances: np.ndarray = densities[where.communities()] * degrees**dataset.train_power
    return chances.astype(np.float32)


def write_vertices(dataset: VertexModel, splits: Splits, writer: GraphWriter) -> None:
    """Write labels, splits and features."""
    sizes = dataset.sizes
    classes = dataset.places.communities()
    classes %= sizes.num_classes
    key = np.uint64(dataset.key_of(_LABELS))
    writer.put("labels", noisy_labels(key, classes, sizes.num_classes, dataset.label_noise))
    for split in SPLITS:
        writer.put(split, getattr(splits, split))
    if not sizes.num_features:
        return
    features = writer.array("features", (sizes.num_nodes, sizes.num_features), np.float32)
    key = np.uint64(dataset.key_of(_CENTROIDS))
    centroids = unit_rows(key, sizes.num_classes, sizes.num_features, dataset.signal)
    rows = max(1, _FEATURE_BYTES // (4 * sizes.num_features))
    for first in range(0, sizes.num_nodes, rows):
        key = np.uint64(dataset.key_of(_NOISE))
        class_features(key, first, classes, centroids, features[first : first + rows])
