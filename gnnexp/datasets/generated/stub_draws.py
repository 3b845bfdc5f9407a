"""Draw the stubs of a configuration model: degrees, their division among levels, and out-weights.

Every draw is a pure function of (key, vertex), and no machine's mathematical library decides it. A random word chooses
an entry of a table, by its bits alone. Entries come from `exp` and the inverse of the normal distribution, and are
rounded to 16 significant bits (the location of the degrees to 2^-30). So other last bits of a library change no
entry, except with a probability below 1e-4 for a whole table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from gnnexp.datasets.generated.degrees import DegreeModel, location
from gnnexp.graph.stubs import StubEdges
from gnnexp.kernels.graph.lognormal import CELLS, EXPONENTS, draw_degrees, draw_weights, split_degrees

_CHUNK = 1 << 22
_BITS = 16
# Mean of the integer weights. Rounding to an integer then changes a weight of 1/1000 of the mean by 0.1 % at most.
_MEAN_WEIGHT = 1 << 20


@dataclass(frozen=True)
class WeightModel:
    """Out-weights exp(sigma (correlation z + sqrt(1 - correlation^2) z')), where z is that of the vertex's degree.

    Attributes:
        sigma: standard deviation of the logarithm.
        correlation: correlation with the logarithm of the degree.
    """

    sigma: float
    correlation: float


def degrees(model: DegreeModel, key: int, num_nodes: int) -> np.ndarray:
    """The degree `[V]` int32 of each vertex: its expected degree, rounded up or down at random."""
    drawn = np.empty(num_nodes, np.int32)
    table = _degree_table(model)
    for first in range(0, num_nodes, _CHUNK):
        draw_degrees(np.uint64(key), first, table, model.zeros, drawn[first : first + _CHUNK])
    return drawn


def stub_edges(
    model: DegreeModel,
    weight_model: WeightModel | None,
    block_sizes: tuple[int, ...],
    shares: tuple[float, ...],
    num_nodes: int,
    key: int,
    level_keys: tuple[int, ...],
    id_key: int | None,
) -> StubEdges:
    """The edges of a graph. Takes 8 bytes per vertex and level, and 8 more with out-weights.

    Args:
        model: degrees, or in-degrees of a directed graph.
        weight_model: out-weights; None: the graph is undirected.
        block_sizes: `[L]` vertices in a block, by level; the last is `num_nodes`.
        shares: `[L]` share of every degree, by level.
        num_nodes: V.
        key: key of the draws of vertices.
        level_keys: `[L]` keys of the matchings.
        id_key: key of the permutation of ids, or None.
    """
    bounds = np.zeros((len(shares), num_nodes + 1), np.int64)
    table, cumulated = _degree_table(model), np.cumsum(shares)
    drawn = np.empty(min(_CHUNK, num_nodes), np.int32)
    for first in range(0, num_nodes, _CHUNK):
        here = drawn[: num_nodes - first]
        draw_degrees(np.uint64(key), first, table, model.zeros, here)
        counts = bounds[:, first + 1 : first + 1 + here.size]
        split_degrees(np.uint64(key), first, here, cumulated, counts)
        counts[:, 0] += bounds[:, first]
        np.cumsum(counts, axis=1, out=counts)
    weights = None if weight_model is None else _cumulated_weights(weight_model, key, num_nodes)
    return StubEdges(bounds, weights, block_sizes, level_keys, id_key)


def _cumulated_weights(model: WeightModel, key: int, num_nodes: int) -> np.ndarray:
    """`[V + 1]` int64 cumulated out-weights."""
    ends, tables = np.zeros(num_nodes + 1, np.int64), _weight_tables(model)
    for first in range(0, num_nodes, _CHUNK):
        here = ends[first + 1 : first + 1 + _CHUNK]
        draw_weights(np.uint64(key), first, tables, here)
    np.cumsum(ends, out=ends)
    return ends


def _normal_cells() -> np.ndarray:
    """`[2 * EXPONENTS * CELLS]` normal deviate of the middle of each cell: those below the median first."""
    within = 1 + (np.arange(CELLS) + 0.5) / CELLS
    tails = (2.0 ** -(np.arange(EXPONENTS) + 2)[:, None] * within).ravel()
    below = ndtri(tails)
    return np.concatenate([below, -below])


def _rounded(values: np.ndarray) -> np.ndarray:
    """Values with 16 significant bits."""
    mantissas, exponents = np.frexp(values)
    rounded: np.ndarray = np.ldexp(np.rint(np.ldexp(mantissas, _BITS)), exponents - _BITS)
    return rounded


def _degree_table(model: DegreeModel) -> np.ndarray:
    """Expected degree in each cell."""
    mu = round(math.ldexp(location(model), 30)) / 2**30
    logarithms = np.clip(mu + model.sigma * _normal_cells(), 0.0, math.log(model.largest) + 1)
    expected: np.ndarray = np.clip(_rounded(np.exp(logarithms)), 1.0, float(model.largest))
    return expected


def _weight_tables(model: WeightModel) -> np.ndarray:
    """`[2, cells]` factors of the weights in each cell."""
    normal, rho = _normal_cells(), model.correlation
    own = model.sigma * math.sqrt(1 - rho * rho)
    # exp(sigma^2 / 2) is the mean of the weights.
    scale = _MEAN_WEIGHT * math.exp(-(model.sigma**2) / 2)
    return np.stack([_rounded(scale * np.exp(model.sigma * rho * normal)), _rounded(np.exp(own * normal))])
