"""A partition by clusters: contract clusters until few are left, split these, and refine the result on each level.

Clusters come from size-constrained label propagation instead of matchings (Meyerhenke, Sanders & Schulz, SEA 2014). So
the first contraction already gives a small graph, and only small graphs are held in memory. The graph itself is read
row by row, and may be memory-mapped (Akhremtsev, Sanders & Schulz, ALENEX 2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from gnnexp.kernels.counter import Purpose, permutation, stream
from gnnexp.kernels.partitioners import clusters, refine
from gnnexp.kernels.partitioners.restream import stream_vertices
from gnnexp.partitioners.metis_library import check_limits, metis_dtype, part_graph

Coarsest = Literal["metis", "stream"]

# A cluster holds at most 1/16 of the vertices that a part may have. Geometric mean of replication_full over seven real
# graphs with 4, 8 and 16 parts: 3.071, 3.078 and 3.077 with 1/8, 1/16 and 1/32.
_CLUSTER_SHARE = 16
# Passes of label propagation per level. The same mean after refinement: 2.593, 2.582 and 2.591 with 1, 2 and 3 passes.
_ROUNDS = 2
# A level with at most max(_FEW, _FEW_PER_PART * p) vertices is not contracted any more. With 1000 or 5000 instead of
# 2000, the mean is at most 0.3 % worse.
_FEW, _FEW_PER_PART = 2000, 30
# Contraction ends if the next level would keep more than this share of the vertices.
_STALLED = 0.9
# Most passes of moves per level of clusters; they end when less than 1 % of the vertices move. One more pass on the
# graph itself, before it is streamed, gains too little: 2.582 instead of 2.584.
_MOVES, _SETTLED = 4, 0.01
# Number of streamed starts, of which the one with the lowest cut is taken, and passes of each. 32 starts give 0.4 %
# fewer copies but double the total time.
_TRIES, _TRY_PASSES = 8, 3


@dataclass(frozen=True)
class Caps:
    """The limits of a part.

    Attributes:
        vertices: most vertices.
        edges: most in-edges of its vertices.
    """

    vertices: int
    edges: int


@dataclass(frozen=True, eq=False)
class CoarseGraph:
    """A graph, or the graph of its clusters.

    Attributes:
        indptr: `[n + 1]` int64, in-edges of each vertex or cluster.
        indices: `[m]` in-neighbours.
        weights: `[m]` int64 weights of edges, empty for 1 each.
        masses: `[n]` int64 vertices in each cluster, empty for 1 each.
        loads: `[n]` int64 in-edges of the vertices in each cluster, empty if these are the lengths of the rows.
    """

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray
    masses: np.ndarray
    loads: np.ndarray

    @classmethod
    def of_graph(cls, indptr: np.ndarray, indices: np.ndarray) -> CoarseGraph:
        """The finest level: the graph itself."""
        none = np.empty(0, np.int64)
        return cls(indptr, indices, none, none, none)

    @property
    def num_nodes(self) -> int:
        """n, the number of vertices or clusters."""
        return int(self.indptr.size) - 1

    def all_masses(self) -> np.ndarray:
        """Masses `[n]` int64, with ones if `masses` is empty."""
        return self.masses if self.masses.size else np.ones(self.num_nodes, np.int64)

    def all_loads(self) -> np.ndarray:
        """Loads `[n]` int64, with the lengths of the rows if `loads` is empty."""
        return self.loads if self.loads.size else np.diff(self.indptr)

    def all_weights(self) -> np.ndarray:
        """Weights of edges `[m]` int64, with ones if `weights` is empty."""
        return self.weights if self.weights.size else np.ones(self.indices.size, np.int64)

    def order(self, *, falling: bool) -> np.ndarray:
        """Vertices `[n]` sorted by the lengths of their rows, in the dtype of `indices`."""
        order = np.empty(self.num_nodes, self.indices.dtype)
        clusters.order_by_degree(self.indptr, falling, order)
        return order

    def contracted(self, max_size: int) -> tuple[np.ndarray, CoarseGraph]:
        """The cluster `[n]` of every vertex, and the graph of clusters; a cluster has `max_size` vertices at most."""
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
        return labels, CoarseGraph(pointers, ids, totals, *self.totals(labels, count))

    def _sum_dtype(self) -> type[np.int32 | np.int64]:
        """The dtype for sums of masses or weights: int32 if possible, which saves 1/4 of label propagation's time."""
        largest = max(self.all_masses().sum(), self.weights.sum() if self.weights.size else self.indices.size)
        return np.int32 if largest < 1 << 31 else np.int64

    def refine(self, owners: np.ndarray, num_parts: int, caps: Caps, passes: int) -> None:
        """Move vertices between parts to cut fewer edges; `owners` `[n]` is changed."""
        masses, loads = self.totals(owners, num_parts)
        order = self.order(falling=False)
        for _ in range(passes):
            moved = refine.move_by_edges(
                self.indptr,
                self.indices,
                self.weights,
                self.masses,
                self.loads,
                order,
                owners,
                masses,
                loads,
                caps.vertices,
                caps.edges,
            )
            if moved < _SETTLED * self.num_nodes:
                break

    def totals(self, owners: np.ndarray, num_parts: int) -> tuple[np.ndarray, np.ndarray]:
        """Vertices and in-edges of every part or cluster, `[num_parts]` int64 each."""
        masses = clusters.sum_by_label(self.all_masses(), owners, num_parts)
        return masses, clusters.sum_by_label(self.all_loads(), owners, num_parts)


def cluster_owners(
    finest: CoarseGraph, num_parts: int, caps: Caps, coarsest: Coarsest, seed: int, dtype: np.dtype[np.int32 | np.int64]
) -> tuple[np.ndarray, dict[str, float]]:
    """Owners `[V]` in `dtype`, and facts: the number of levels, and of vertices in the coarsest level.

    Only whole clusters were moved, not yet vertices of the graph. Parts may exceed `caps` a little.

    Args:
        finest: the graph.
        num_parts: number of parts, at least 2.
        caps: limits of a part.
        coarsest: method that splits the last level: METIS, or the best of a few streams.
        seed: seed of METIS or of the streams.
        dtype: data type of the owners.
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
    """Split a level by METIS, without directions of edges; in-edges are balanced too if `caps` limits them."""
    dtype = metis_dtype()
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
    parts, _ = part_graph(
        starts,
        neighbours,
        weights,
        totals,
        num_parts,
        recursive=False,
        imbalance=max(room - 1, 0.001),
        seed=seed % ((1 << 31) - 1),
    )
    return parts


def fitting(values: np.ndarray, dtype: np.dtype[np.signedinteger], least: int) -> np.ndarray:
    """`values` divided so that their sum fits in METIS's integer type, but at least `least` each.

    With int32, weights of billions of edges would overflow.
    """
    share = -(-int(values.sum()) // (int(np.iinfo(dtype).max) // 2))
    return np.maximum(values // share, least) if share > 1 else values


def _split_by_streams(level: CoarseGraph, num_parts: int, caps: Caps, seed: int) -> np.ndarray:
    """The best of a few orders, restreamed and refined: first the order by load, heaviest first, then random orders."""
    heavy = np.argsort(-level.all_loads(), kind="stable")
    best, lowest = np.empty(0, np.int32), np.inf
    for attempt in range(_TRIES):
        drawn = heavy if not attempt else permutation(stream(seed, Purpose.PARTITION, attempt), level.num_nodes)
        order, owners = drawn.astype(level.indices.dtype), np.full(level.num_nodes, -1, np.int32)
        masses, loads = np.zeros(num_parts, np.int64), np.zeros(num_parts, np.int64)
        for _ in range(_TRY_PASSES):
            stream_vertices(
                level.indptr,
                level.indices,
                level.weights,
                level.masses,
                level.loads,
                order,
                owners,
                masses,
                loads,
                False,
                0.0,
                1.0,
                caps.vertices,
                caps.edges,
            )
        level.refine(owners, num_parts, caps, _MOVES)
        masses, loads = level.totals(owners, num_parts)
        fits = masses.max() <= caps.vertices and loads.max() <= caps.edges
        cut = refine.cut_weight(level.indptr, level.indices, level.weights, owners)
        # Owners that exceed the limits are worse than any owners within the limits.
        cost = cut if fits else cut + 1 + int(level.all_weights().sum())
        if cost < lowest:
            best, lowest = owners, cost
    return best
