"""Fits of `dataset=configuration` to published graphs: sizes, degrees and blocks, by name.

Sizes are those of `gnnexp.datasets.generated.shapes`, without `_like` in the name. Largest degrees are not checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnexp.datasets.generated.shapes import Sizes, sizes_of

FitName = Literal["small", "orkut", "friendster", "papers100m", "papers100m_symmetric", "ogbn_products", "reddit"]


@dataclass(frozen=True)
class FittedShape:
    """A published graph, and the parameters with which the configuration model imitates it.

    Attributes:
        sizes: numbers of vertices, edges, columns and classes, and shares of the splits.
        sigma: standard deviation of the logarithm of degrees.
        max_degree: largest degree.
        block_sizes: vertices of a block, by level; the whole graph is one more level.
        shares: share of the degrees, by level, the whole graph last.
        directed: whether edges have one direction.
        zeros: share of vertices without in-edges.
        sigma_out: standard deviation of the logarithm of out-weights, for directed edges.
        correlation: correlation of the logarithms of in-degree and out-weight.
        train_in: share of the communities that have training vertices.
        train_power: power of the degree that the chance of being a training vertex follows.
    """

    sizes: Sizes
    sigma: float
    max_degree: int
    block_sizes: tuple[int, ...] = ()
    shares: tuple[float, ...] = (1.0,)
    directed: bool = False
    zeros: float = 0.0
    sigma_out: float = 1.0
    correlation: float = 0.0
    train_in: float = 1.0
    train_power: float = 0.0


_PAPERS = sizes_of("papers_like")
_SYMMETRIC = Sizes(_PAPERS.num_nodes, 3_228_124_712, 128, 172, _PAPERS.train, _PAPERS.val, _PAPERS.test)

# Orkut, Friendster and papers100M (directed) are fitted to the counts that GSplit prints (docs/fits.md has what is left
# over). All others are guesses: sigma, blocks and shares, and the edges of `papers100m_symmetric`.
FITS: dict[str, FittedShape] = {
    "small": FittedShape(sizes_of("small"), 1.0, 1000, (125, 1250), (0.2, 0.5, 0.3)),
    "orkut": FittedShape(sizes_of("orkut_like"), 1.124, 33_313, (128,), (0.341, 0.659)),
    "friendster": FittedShape(sizes_of("friendster_like"), 1.265, 5214, zeros=0.431),
    "papers100m": FittedShape(
        _PAPERS,
        1.363,
        251_471,
        (128, 1_500_000),
        (0.6, 0.36, 0.04),
        directed=True,
        sigma_out=1.698,
        train_in=1 / 75,
    ),
    "papers100m_symmetric": FittedShape(_SYMMETRIC, 1.4, 251_471, (256, 1_500_000), (0.1, 0.8, 0.1), train_in=1 / 75),
    "ogbn_products": FittedShape(sizes_of("products_like"), 1.2, 17_481, (128, 52_000), (0.2, 0.6, 0.2)),
    "reddit": FittedShape(sizes_of("reddit_like"), 1.3, 21_657, (128, 5_700), (0.1, 0.6, 0.3)),
}


def fit_of(shape: str | None) -> FittedShape:
    """The fit of a name; None is `small`."""
    return FITS[shape or "small"]
