"""Edges that are computed from the stubs of vertices, see `gnnexp.kernels.graph.stubs`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnexp.kernels.graph import stubs as kernels

# Places that share an entry of the index: at 16, the index takes 1/4 byte per vertex, and a search reads one line.
_PLACES_PER_ENTRY = 16
_CHUNK = 1 << 22


@dataclass(frozen=True, eq=False)
class StubEdges:
    """The edges of a nested configuration model. Memory is O(V).

    Attributes:
        bounds: `[L, V + 1]` int64 bounds of the stubs of each place, by level.
        weights: `[V + 1]` int64 cumulated out-weights of places, each at least 1; None: the graph is undirected.
        sizes: number of places in a block, by level.
        keys: key of the random matching, by level.
        id_key: key of the permutation of ids; None: ids are places.
    """

    bounds: np.ndarray
    weights: np.ndarray | None
    sizes: tuple[int, ...]
    keys: tuple[int, ...]
    id_key: int | None = None

    @property
    def num_nodes(self) -> int:
        """V, the number of vertices."""
        return int(self.bounds.shape[1]) - 1

    @property
    def num_edges(self) -> int:
        """The number of directed edges: of all stubs."""
        return int(self.bounds[:, -1].sum())

    @cached_property
    def arguments(self) -> kernels.Stubs:
        """The tuple that kernels take."""
        num_levels, width = self.bounds.shape
        flat = self.bounds.reshape(-1)
        ends = [self.bounds[level] for level in range(num_levels)] if self.weights is None else [self.weights]
        tables = [_index(values) for values in ends]
        starts = np.cumsum([0, *(index.size for _, index in tables[:-1])])
        shifts = np.array([shift for shift, _ in tables])
        directed = self.weights is not None
        spread = np.zeros(num_levels, np.int64) if directed else np.arange(num_levels)
        return (
            flat,
            flat if self.weights is None else self.weights,
            spread * width,
            np.concatenate([index for _, index in tables]),
            starts[spread],
            shifts[spread],
            np.array(self.sizes, np.int64),
            np.array(self.keys, np.uint64),
            self.num_nodes,
            directed,
            self.id_key is not None,
            np.uint64(self.id_key or 0),
        )

    def indptr(self) -> np.ndarray:
        """`[V + 1]` int64 bounds of the in-edges of each id."""
        if self.id_key is None:
            return np.asarray(self.bounds[0] if len(self.bounds) == 1 else self.bounds.sum(0))
        places = self.places()
        indptr = np.zeros(self.num_nodes + 1, np.int64)
        for first in range(0, self.num_nodes, _CHUNK):
            here = places[first : first + _CHUNK]
            for level in self.bounds:
                indptr[first + 1 : first + 1 + here.size] += level[here + 1] - level[here]
        np.cumsum(indptr, out=indptr)
        return indptr

    def places(self) -> np.ndarray:
        """`[V]` int32 place of each id."""
        found: np.ndarray = kernels.places(self.num_nodes, self.id_key is not None, np.uint64(self.id_key or 0))
        return found

    def rows(self, indptr: np.ndarray, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """The in-edges of the ids `first` to `last - 1`: their bounds `[n + 1]`, and their sources in stub order.

        `indptr` is that of the whole graph.
        """
        bounds = indptr[first : last + 1] - indptr[first]
        sources = np.empty(int(bounds[-1]), np.int32)
        kernels.fill_rows(first, bounds, self.arguments, sources)
        return bounds, sources


def _index(ends: np.ndarray) -> tuple[int, np.ndarray]:
    """A shift, and the place that holds every multiple of its power of two: see `kernels.Stubs`."""
    per_entry = _PLACES_PER_ENTRY * int(ends[-1]) // (ends.size - 1)
    shift = max(0, per_entry.bit_length() - 1)
    index = np.empty((int(ends[-1]) >> shift) + 2, np.int32)
    kernels.fill_index(ends, shift, index)
    return shift, index
