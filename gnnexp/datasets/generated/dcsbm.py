"""Degree-corrected stochastic block model (Karrer & Newman 2011) of any size, with planted classes and triangles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnexp.datasets.base import Dataset
from gnnexp.datasets.generated.shapes import SizeOptions
from gnnexp.datasets.generated.synthetic import DrawOptions, EdgeModel, Generator, local_window
from gnnexp.datasets.options import LinkOptions
from gnnexp.datasets.splits.split import check_fractions
from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.kernels.graph.generate import dcsbm_pairs

_NOTE = "synthetic: the label is the community that edges and features follow"


@dataclass(kw_only=True, eq=False)
class Dcsbm(SizeOptions, DrawOptions, LinkOptions, Dataset):
    """Communities with power-law degrees. The class of a vertex is its community modulo C.

    A share `locality` of the edges joins vertices that are near each other on a ring inside their community: these
    edges close triangles. Other edges join vertices by degree: inside one community with probability `homophily`, else
    anywhere. Features are class centroids plus noise: weak for one vertex, and strong for a neighbourhood.

    Attributes:
        name: name of the graph.
        locality: share of local edges, 0 to 1.
        communities: number of communities; null = one per class.
        homophily: share of the degree-driven edges that stay in their community.
        skew: degrees follow a power law with exponent 1 + skew / (skew - 1): 3.0 for 2, 2.5 for 3; 1 = no skew.
        max_degree_ratio: largest expected degree, divided by the mean degree.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null. With
            it, the graph is made in memory.
    """

    name: str = "dcsbm"
    communities: int | None = None
    homophily: float = 0.7
    locality: float = 0.3
    skew: int = 3
    max_degree_ratio: float = 300.0
    unkeyed: ClassVar[frozenset[str]] = frozenset({"buffer_bytes"})

    def __post_init__(self) -> None:
        check_fractions(train=self.train, val=self.val, test=self.test)
        self.check_links()
        most = self.sizes.num_nodes // 8
        rules = (
            ("communities", self._num_communities, self.sizes.num_classes, most),
            ("homophily", self.homophily, 0, 1),
            ("locality", self.locality, 0, 1),
            ("label_noise", self.label_noise, 0, 1),
            ("skew", self.skew, 1, 8),
            ("max_degree_ratio", self.max_degree_ratio, 1, math.inf),
        )
        ConfigError.raise_all(
            [
                Problem(f"dataset.{name}", value, f"must be {low} to {high}", f"set dataset.{name} within these bounds")
                for name, value, low, high in rules
                if not low <= value <= high
            ]
        )

    @property
    def at_hand(self) -> bool:
        """False: generating the graph may take long."""
        return False

    @property
    def _num_communities(self) -> int:
        return self.sizes.num_classes if self.communities is None else self.communities

    def load(self) -> Graph:
        """See `Generator.load`."""
        return self.with_links(self.generator().load(), symmetrize=True)

    def generate(self, folder: Path) -> Graph | None:
        """See `Generator.write`."""
        return self.generator().write(folder) if self.link_split is None else None

    def generator(self) -> Generator:
        """What makes the graph, with the tables of the block model."""
        sizes, count = self.sizes, self._num_communities
        ends, steps = _tables(sizes.num_nodes, count, self.skew, self.max_degree_ratio)
        window = local_window(sizes, self.locality)
        model = DcsbmModel(sizes.num_nodes, ends, steps, self.skew, self.locality, self.homophily, window)
        return Generator(self.name, sizes, model, self, _NOTE, count)


@dataclass(frozen=True)
class DcsbmModel(EdgeModel):
    """Tables of the block model: the arguments of `dcsbm_pairs`. Here C is the number of communities.

    Attributes:
        num_nodes: V, number of vertices.
        ends: `[C, 3]` low, high and shift of the inverse distribution function of each community (`_ends`).
        steps: `[C]` step that spreads degree ranks over the ring of each community.
        power: power of the inverse distribution function.
        locality: share of local edges.
        homophily: share of the other edges that stay in a community.
        window: reach of local edges.
    """

    num_nodes: int
    ends: np.ndarray
    steps: np.ndarray
    power: int
    locality: float
    homophily: float
    window: int

    def fill(self, key: int, first: int, order: np.ndarray, src: np.ndarray, dst: np.ndarray) -> None:
        """See `EdgeModel.fill`."""
        shares = np.array([self.locality, self.locality + (1 - self.locality) * self.homophily])
        tables = (self.num_nodes, self.ends, self.steps, self.power, shares, self.window)
        dcsbm_pairs(np.uint64(key), first, *tables, order, src, dst)

    def pair_rates(self, key: int, count: int) -> np.ndarray:
        """See `EdgeModel.pair_rates`."""
        p, q = np.empty(count, np.int32), np.empty(count, np.int32)
        self.fill(key, 0, np.empty(0, np.int32), p, q)
        (start, size, weight), (start_q, size_q, weight_q) = self._weights(p), self._weights(q)
        same, V = start == start_q, self.num_nodes
        inside = weight * weight_q * (self.homophily * same / np.minimum(size, size_q))
        rates = (1 - self.locality) * 2 / V * (inside + (1 - self.homophily) * weight * weight_q / V)
        around = np.abs(p.astype(np.int64) - q)
        reach = np.minimum(self.window, (size - 1) // 2)
        near = same & (np.minimum(around, size - around) <= reach)
        rates[near] += self.locality / (V * reach[near])
        return np.where(p == q, 0.0, rates)

    def _weights(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Start and size of each position's community, and the position's share of its edges, times size (mean 1)."""
        V, C = self.num_nodes, self.steps.size
        community = ((positions.astype(np.int64) + 1) * C - 1) // V
        start = community * V // C
        size = (community + 1) * V // C - start
        inverses = np.array([pow(int(step), -1, n) for step, n in zip(self.steps, _sizes(V, C), strict=True)])
        rank = (positions - start) * inverses[community] % size
        low, high, shift = self.ends[community].T
        mass = (rank + 1 + shift) ** (1 / self.power) - (rank + shift) ** (1 / self.power)
        return start, size, mass / (high - low) * size


def _sizes(num_nodes: int, num_communities: int) -> list[int]:
    bounds = [c * num_nodes // num_communities for c in range(num_communities + 1)]
    return [high - low for low, high in pairwise(bounds)]


def _tables(num_nodes: int, num_communities: int, power: int, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Tables `ends` `[C, 3]` and `steps` `[C]` of all communities, see `DcsbmModel`."""
    sizes = _sizes(num_nodes, num_communities)
    rows = {size: (_ends(size, power, ratio), _step(size)) for size in set(sizes)}
    ends = np.array([rows[size][0] for size in sizes])
    steps = np.array([rows[size][1] for size in sizes], np.int64)
    return ends, steps


def _step(size: int) -> int:
    """The first step from the golden section of `size` on that is coprime to `size`."""
    step = max(1, int(size * 0.6180339887))
    while math.gcd(step, size) != 1:
        step += 1
    return step


def _ends(size: int, power: int, ratio: float) -> tuple[float, float, float]:
    """Low, high and shift s of `rank = (low + u (high - low))^power - s`, for a community of `size` and uniform u.

    The weight of rank r decreases as (r + s)^(1/power - 1). The shift s is the smallest with which the weight of the
    first rank is at most `ratio`.
    """
    low, high = 0.0, float(size)

    def heaviest(shift: float) -> float:
        start, end = _root(shift, power), _root(size + shift, power)
        return size * (_root(1 + shift, power) - start) / (end - start)

    if heaviest(0.0) <= ratio:
        high = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if heaviest(middle) <= ratio else (middle, high)
    return _root(high, power), _root(size + high, power), high


def _root(value: float, power: int) -> float:
    """The `power`-th root by Newton's method: only IEEE arithmetic, so it is equal on all machines (pow is not)."""
    if value == 0 or power == 1:
        return value
    root = max(value, 1.0)
    for _ in range(200):
        powered = root
        for _ in range(power - 2):
            powered *= root
        root -= (root - value / powered) / power
    return root
