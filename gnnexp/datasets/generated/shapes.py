"""Sizes of synthetic graphs: named shapes of well-known datasets, a scale, and explicit sizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from gnnexp.errors import ConfigError, Problem

ShapeName = Literal[
    "products_like",
    "papers_like",
    "friendster_like",
    "orkut_like",
    "reddit_like",
    "arxiv_like",
    "mag_like",
    "mag_lsc_like",
    "flickr_like",
    "yelp_like",
    "amazon_like",
    "it2004_like",
    "small",
]


@dataclass(frozen=True)
class Sizes:
    """Sizes of a graph.

    Attributes:
        num_nodes: V, number of vertices.
        num_edges: number of directed edges (two for each undirected edge).
        num_features: D, number of feature columns.
        num_classes: C, number of classes.
        train: share of training vertices.
        val: share of validation vertices.
        test: share of test vertices; None = the rest.
    """

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    train: float
    val: float
    test: float | None = None


# Sources of sizes and splits:
# - OGB (Hu et al. 2020, 2021) and Reddit (Hamilton et al. 2017).
# - Orkut and Friendster: GSplit, Table 2. They have no labels, so classes (64) and split are those of HongTu (7.1).
# - It-2004: HongTu, Table 4, rounded. HongTu generated its features, labels and split as for Friendster.
# - Flickr, Yelp and Amazon: SDT-GNN, Table III. There Yelp and Amazon have several labels per vertex, here one.
# - In ogbn-mag and MAG240M only papers have labels. Shares count vertices of all types. `relations` adds edge types.
_SHAPES: dict[str, Sizes] = {
    "small": Sizes(10_000, 200_000, 64, 8, 0.6, 0.2),
    "arxiv_like": Sizes(169_343, 2_315_598, 128, 40, 0.537, 0.176),
    "reddit_like": Sizes(232_965, 114_615_892, 602, 41, 0.66, 0.1),
    "products_like": Sizes(2_449_029, 123_718_280, 100, 47, 0.08, 0.016),
    "orkut_like": Sizes(3_072_441, 234_370_166, 512, 64, 0.25, 0.5),
    "friendster_like": Sizes(65_608_366, 3_612_134_270, 128, 64, 0.25, 0.5),
    "it2004_like": Sizes(41_000_000, 1_200_000_000, 256, 64, 0.25, 0.5),
    "mag_like": Sizes(1_939_743, 42_222_014, 128, 349, 0.3246, 0.0334, 0.0216),
    "mag_lsc_like": Sizes(244_160_499, 3_456_728_464, 768, 153, 0.0046, 0.0006, 0.0006),
    "flickr_like": Sizes(89_250, 899_756, 500, 7, 0.5, 0.25),
    "yelp_like": Sizes(716_847, 13_954_819, 300, 100, 0.75, 0.1),
    "amazon_like": Sizes(1_569_960, 264_339_468, 200, 107, 0.85, 0.05),
    "papers_like": Sizes(111_059_956, 1_615_685_872, 128, 172, 0.0109, 0.0011, 0.0019),
}


def sizes_of(shape: str) -> Sizes:
    """Sizes of the published graph that `shape` imitates."""
    return _SHAPES[shape]


@dataclass(kw_only=True, eq=False)
class ScaledSizes(ABC):
    """Sizes of a synthetic graph, as a user chooses them: those of a known graph, a scale, and explicit sizes.

    Attributes:
        least_features: fewest feature columns.
        scale: factor for the numbers of vertices and edges of the shape.
        num_nodes: V, number of vertices, instead of the shape's. It need not be a power of two.
        num_edges: number of directed edges, instead of the shape's. The graph has this number within about 1 %.
        num_features: D, number of feature columns, instead of the shape's.
        num_classes: C, number of classes, instead of the shape's.
        train: share of training vertices, instead of the shape's.
        val: share of validation vertices, instead of the shape's.
        test: share of test vertices; null = the rest, or the shape's.
    """

    least_features: ClassVar[int] = 1

    scale: float = 1.0
    num_nodes: int | None = None
    num_edges: int | None = None
    num_features: int | None = None
    num_classes: int | None = None
    train: float | None = None
    val: float | None = None
    test: float | None = None

    @abstractmethod
    def shape_sizes(self) -> Sizes:
        """The sizes of the known graph."""

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes of the shape, with vertices and edges times `scale`. Explicit sizes replace them.

        Raises:
            ConfigError: no simple graph can have these sizes.
        """
        if not 0 < self.scale < float("inf"):
            raise ConfigError(Problem("dataset.scale", self.scale, "must be above 0 and finite", "set dataset.scale=1"))
        base = self.shape_sizes()
        own_split = (self.train, self.val, self.test) != (None, None, None)
        sizes = Sizes(
            num_nodes=round(base.num_nodes * self.scale) if self.num_nodes is None else self.num_nodes,
            num_edges=round(base.num_edges * self.scale) if self.num_edges is None else self.num_edges,
            num_features=base.num_features if self.num_features is None else self.num_features,
            num_classes=base.num_classes if self.num_classes is None else self.num_classes,
            train=base.train if self.train is None else self.train,
            val=base.val if self.val is None else self.val,
            # The test share of the shape belongs to its own split, and does not fit another split.
            test=self.test if own_split else base.test,
        )
        ConfigError.raise_all(_problems(sizes, self.least_features))
        return sizes


@dataclass(kw_only=True, eq=False)
class SizeOptions(ScaledSizes):
    """Sizes of a synthetic graph by a shape of this module.

    Attributes:
        shape: known dataset whose sizes are used; null = `small`.
    """

    shape: ShapeName | None = None

    def shape_sizes(self) -> Sizes:
        """The sizes of the shape."""
        return sizes_of(self.shape or "small")


def _problems(sizes: Sizes, least_features: int) -> list[Problem]:
    rules = (
        ("num_nodes", sizes.num_nodes, 8, 2**31 - 1),
        ("num_edges", sizes.num_edges, 2, max(2, sizes.num_nodes * (sizes.num_nodes - 1) // 4)),
        ("num_features", sizes.num_features, least_features, 2**20),
        ("num_classes", sizes.num_classes, 1, max(1, sizes.num_nodes // 8)),
    )
    return [
        Problem(
            f"dataset.{name}",
            value,
            f"must be {low} to {high}" if low < high else f"can only be {low}",
            f"dataset.{name}={min(max(value, low), high)}, or another dataset.scale",
        )
        for name, value, low, high in rules
        if not low <= value <= high
    ]
