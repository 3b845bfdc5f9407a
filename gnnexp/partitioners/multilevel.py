"""A partition by clusters: contract them until few are left, split these, and refine on the way back.

Size-constrained label propagation instead of matchings, so that the first contraction already leaves a small graph
(Meyerhenke, Sanders & Schulz, SEA 2014), and only that one is held in memory: the graph itself is read row by row, and
may be mapped (Akhremtsev, Sanders & Schulz, ALENEX 2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from gnnexp.kernels.counter import Purpose, permutation, stream
from gnnexp.kernels.partitioners import clusters, refine
from gnnexp.kernels.partitioners.restream import stream_vertices
from gnnexp.partitioners.metis_library import check_limits, index_dtype, part_graph

Coarsest = Literal["metis", "stream"]

# Of a part's cap, at most, in a cluster. Geometric mean of replication_full over seven real graphs, 4, 8 and 16 parts:
# 3.071, 3.078 and 3.077 with 1/8, 1/16 and 1/32.
_CLUSTER_SHARE = 16
# Passes of label propagation per level: 2.593, 2.582, 2.591 with 1, 2, 3 (the same mean, refined on).
_ROUNDS = 2
# Fewer clusters than this, and at most this many per part, are not contracted any more; 1000 and 5000 for the first:
# no worse than 0.3 %.
_FEW, _FEW_PER_PART = 2000, 30
# A level that leaves more than this of its vertices is the last one.
_STALLED = 0.9
# Passes of moves per level of clusters, stopped where less than 1 % of the vertices move. One more on the graph itself,
# before it is streamed, is not worth it: 2.582 instead of 2.584.
_MOVES, _SETTLED = 4, 0.01
# Streamed starts from which the one with the lowest cut is taken; 32: 0.4 % fewer copies, twice the time of all.
_TRIES, _TRY_PASSES = 8, 3


@dataclass(frozen=True)
class Caps:
    """What a part takes at most.

    Attributes:
        vertices: number of them.
        edges: in-edges of its vertices.
    """

    vertices: int
    edges: int


@dataclass(frozen=True, eq=False)
class CoarseGraph:
    """A graph, or the graph of its clusters.

    Attributes:
        indptr: `[n + 1]` int64.
        indices: `[m]` in-neighbours.
        weights: `[m]` int64 of edges, empty for 1 each.
        masses: `[n]` int64 vertices in each cluster, empty for 1 each.
        loads: `[n]` int64 their in-edges, empty where these are the rows' lengths.
    """

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray
    masses: np.ndarray
    loads: np.ndarray

    @classmethod
    def of_graph(cls, indptr: np.ndarray, indices: np.ndarray) -> CoarseGraph:
        """The finest level."""
        none = np.empty(0, np.int64)
        return cls(indptr, indices, none, none, none)

    @property
    def num_nodes(self) -> int:
        """n."""
        return int(self.indptr.size) - 1

    def all_masses(self) -> np.ndarray:
        """`[n]` int64."""
        return self.masses if self.masses.size else np.ones(self.num_nodes, np.int64)

    def all_loads(self) -> np.ndarray:
        """`[n]` int64."""
        return self.loads if self.loads.size else np.diff(self.indptr)

    def all_weights(self) -> np.ndarray:
        """`[m]` int64."""
        return self.weights if self.weights.size else np.ones(self.indices.size, np.int64)

    def order(self, *, falling: bool) -> np.ndarray:
        """`[n]` vertices by the lengths of their rows, in the type of ids."""
        order = np.empty(self.num_nodes, self.indices.dtype)
        clusters.order_by_degree(self.indptr, falling, order)
        return order

    def contracted(self, max_size: int) -> tuple[np.ndarray, CoarseGraph]:
        """`[n]` number of every vertex's cluster, and the level of these clusters, of `max_size` vertices at most."""
        indptr, indices, weights = self.indptr, self.indices, self.weights
        labels = np.arange(self.num_nodes, dtype=indices.dtype)
        sizes, sums = self.all_masses().astype(self._sum_dtype()), np.zeros(self.num_nodes, self._sum_dtype())
        touched = np.empty(int(np.diff(indptr).max(initial=1)), indices.dtype)
        order = self.order(falling=False)
        for _ in range(_ROUNDS):
            clusters.join_clusters(indptr, indices, weights, self.masses, order, labels, sizes, max_size, sums, touched)
        clusters.join_leftovers(indptr, indices, weights, self.masses, labels, sizes, max_size, sums, touched)
        del sizes, sums, touched, order
        count = clusters.number_labels(labels)
        pointers, ids, totals = clusters.contract(indptr, indices, weights, labels, count)
        masses = clusters.sum_by_label(self.all_masses(), labels, count)
        loads = clusters.sum_by_label(self.all_loads(), labels, count)
        return labels, CoarseGraph(pointers, ids, totals, masses, loads)

    def _sum_dtype(self) -> type[np.int32 | np.int64]:
        """Of any sum of masses or weights: half the bytes where they do, label propagation takes 3/4 of the time."""
        largest = max(self.all_masses().sum(), self.weights.sum() if self.weights.size else self.indices.size)
        return np.int32 if largest < 1 << 31 else np.int64

    def refine(self, owners: np.ndarray, num_parts: int, caps: Caps, passes: int) -> None:
        """Move vertices where that cuts fewer edges; `owners` `[n]` is changed."""
        masses, loads = self.totals(owners, num_parts)
        order = self.order(falling=False)
        for _ in range(passes):
            moved = refine.move_by_edges(
                self.indptr, self.indices, self.weights, self.masses, self.loads, order, owners, masses, loads,
                caps.vertices, caps.edges,
            )
            if moved < _SETTLED * self.num_nodes:
                break

    def totals(self, owners: np.ndarray, num_parts: int) -> tuple[np.ndarray, np.ndarray]:
        """`[p]` int64 vertices and in-edges of every part."""
        masses, loads = np.zeros(num_parts, np.int64), np.zeros(num_parts, np.int64)
        refine.count_masses(owners, self.all_masses(), masses)
        refine.count_masses(owners, self.all_loads(), loads)
        return masses, loads


def cluster_owners(
    finest: CoarseGraph, num_parts: int, caps: Caps, coarsest: Coarsest, seed: int, dtype: np.dtype[np.int32 | np.int64]
) -> tuple[np.ndarray, dict[str, float]]:
    """`[V]` owners in `dtype`, which may exceed `caps` a little, and facts: levels, and vertices of the coarsest one.

    Whole clusters have been moved, not yet vertices of the graph.

    Args:
        finest: the graph.
        num_parts: from 2 on.
        caps: of a part.
        coarsest: what splits the last level: METIS, or the best of a few streams.
        seed: of either.
        dtype: of owners.
    """
    levels, labels = [finest], []
    few = max(_FEW, _FEW_PER_PART * num_parts)
    while levels[-1].num_nodes > few or len(levels) == 1:
        numbers, level = levels[-1].contracted(max(1, caps.vertices // _CLUSTER_SHARE))
        if level.num_nodes > _STALLED * levels[-1].num_nodes:
            break
        levels.append(level)
        labels.append(numbers)
    facts = {"levels": float(len(levels)), "coarsest_vertices": float(levels[-1].num_nodes)}
    split = _split_by_metis if coarsest == "metis" else _split_by_streams
    owners = split(levels[-1], num_parts, caps, seed).astype(dtype)
    while len(levels) > 1:
        levels.pop().refine(owners, num_parts, caps, _MOVES)
        owners = owners[labels.pop()]
    return owners, facts


def _split_by_metis(level: CoarseGraph, num_parts: int, caps: Caps, seed: int) -> np.ndarray:
    """METIS on a level, both directions of an edge taken together; in-edges are balanced too if they are bounded."""
    dtype = index_dtype()
    directed = csr_array((level.all_weights(), level.indices, level.indptr), (level.num_nodes,) * 2)
    both = (directed + directed.T).tocsr()
    both.setdiag(0)
    both.eliminate_zeros()
    masses, loads = level.all_masses(), level.all_loads()
    columns, room = [masses], caps.vertices * num_parts / max(1, masses.sum())
    if caps.edges < loads.sum():
        columns.append(loads)
        room = min(room, caps.edges * num_parts / loads.sum())
    weights = np.stack([fitting(column, dtype, 0) for column in columns], axis=1)
    both.data = fitting(both.data, dtype, 1)
    check_limits(level.num_nodes, both.nnz, weights, dtype, int(both.sum()))
    starts, neighbours, totals, weights = (
        np.ascontiguousarray(values, dtype) for values in (both.indptr, both.indices, both.data, weights)
    )
    parts, _ = part_graph(starts, neighbours, weights, totals, num_parts, recursive=False,
                          imbalance=max(room - 1, 0.001), seed=seed % ((1 << 31) - 1))
    return parts


def fitting(values: np.ndarray, dtype: np.dtype[np.signedinteger], least: int) -> np.ndarray:
    """`values` in shares, none below `least`, that METIS can add up: those of billions of edges do not fit in int32."""
    share = -(-int(values.sum()) // (int(np.iinfo(dtype).max) // 2))
    return np.maximum(values // share, least) if share > 1 else values


def _split_by_streams(level: CoarseGraph, num_parts: int, caps: Caps, seed: int) -> np.ndarray:
    """The best of a few orders, restreamed and refined: the heaviest vertices first, then at random."""
    heavy = np.argsort(-level.all_loads(), kind="stable")
    best, lowest = np.empty(0, np.int32), np.inf
    for attempt in range(_TRIES):
        drawn = heavy if not attempt else permutation(stream(seed, Purpose.PARTITION, attempt), level.num_nodes)
        order, owners = drawn.astype(level.indices.dtype), np.full(level.num_nodes, -1, np.int32)
        masses, loads = np.zeros(num_parts, np.int64), np.zeros(num_parts, np.int64)
        for _ in range(_TRY_PASSES):
            stream_vertices(
                level.indptr, level.indices, level.weights, level.masses, level.loads, order, owners, masses, loads,
                False, 0.0, 1.0, caps.vertices, caps.edges,
            )
        level.refine(owners, num_parts, caps, _MOVES)
        masses, loads = level.totals(owners, num_parts)
        fits = masses.max() <= caps.vertices and loads.max() <= caps.edges
        cut = refine.cut_weight(level.indptr, level.indices, level.weights, owners)
        # What does not fit is worse than any cut that does.
        cost = cut if fits else cut + 1 + int(level.all_weights().sum())
        if cost < lowest:
            best, lowest = owners, cost
    return best
