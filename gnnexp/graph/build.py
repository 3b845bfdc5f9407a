"""Build CSC arrays in canonical order (destination, source, type, occurrence) from an edge list."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.kernels.graph.csc_build import (
    count_rows,
    merge_rows,
    row_ranges,
    scatter,
    sort_edge_rows,
    sort_rows,
)

SelfLoops = Literal["keep", "add", "remove"]
Duplicates = Literal["merge", "keep"]


class CscArrays(NamedTuple):
    """The arrays of a graph's edges: `indptr [V + 1]` int64, `indices [E]`, and types, features, weights `[E, ...]`."""

    indptr: Tensor
    indices: Tensor
    types: Tensor | None
    edge_features: Tensor | None
    weights: Tensor | None = None


def build_graph(
    src: np.ndarray,
    dst: np.ndarray,
    num_nodes: int,
    *,
    types: np.ndarray | None = None,
    symmetrize: bool = False,
    num_relations: int | None = None,
    self_loops: SelfLoops = "keep",
    duplicates: Duplicates = "merge",
    edge_features: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    key: str = "edges",
) -> CscArrays:
    """CSC arrays of the edges `src -> dst` in canonical order, by counting sort.

    Args:
        src: `[n]` source ids, any integer dtype.
        dst: `[n]` destination ids.
        num_nodes: V.
        types: `[n]` edge types >= 0, or None.
        symmetrize: whether to add the reverse of every edge, with its type and features.
        num_relations: R; with `symmetrize` the reverse of an edge of type r has type R + r. None: it has type r too.
        self_loops: `keep` self loops, `remove` them, or `add` them, so that each vertex has exactly one.
        duplicates: `merge` parallel edges of one type into their first occurrence, or `keep` them.
        edge_features: `[n, De]`, or None.
        weights: `[n]`, or None. A merged edge has the weight of its first occurrence, a reverse that of its edge.
        key: file or config key that errors name.

    Returns:
        The arrays; `indices` is int32 below 2^31 vertices. While they are built, memory also holds the input in the
        same dtype, and 8 bytes per edge with types, features or weights.

    Raises:
        DataError: lengths differ, an id is outside `0..V-1`, or a type is negative. With inverse relations also: a type
            is R or more, or 2R exceeds 2^31.
        ConfigError: `self_loops="add"` with types, features or weights, because new self loops would have none.
    """
    inverse = num_relations if symmetrize else None
    plain = types is None and edge_features is None and weights is None
    _check(src, dst, num_nodes, types, inverse, (edge_features, weights), key)
    if self_loops == "add" and not plain:
        fix = "use self_loops=keep (or remove); models add their own self term"
        allowed = "keep or remove on typed, featured or weighted edges"
        raise ConfigError(Problem("dataset.self_loops", "add", allowed, fix))
    # One dtype for all ids, so that kernels are compiled once.
    src, dst = (np.ascontiguousarray(ids, dtype=index_dtype(num_nodes)) for ids in (src, dst))
    if inverse is not None:
        assert types is not None, "inverse relations are of typed edges"
        types = types.astype(np.int32)  # r + R could overflow a narrower dtype; the check shows that it fits in int32
        src, dst, types = np.append(src, dst), np.append(dst, src), np.append(types, types + np.int32(inverse))
        edge_features, weights = (None if rows is None else np.concatenate([rows, rows])
                                  for rows in (edge_features, weights))
        symmetrize = False
    options = (symmetrize, self_loops != "keep")
    if plain:
        return _plain(src, dst, num_nodes, options, self_loops == "add", duplicates == "merge")
    return _with_edge_data(src, dst, num_nodes, options, duplicates == "merge", types, edge_features, weights)


def index_dtype(num_nodes: int) -> np.dtype:
    """int32 if every vertex id fits, else int64."""
    return np.dtype(np.int32 if num_nodes < 2**31 else np.int64)


def _plain(
    src: np.ndarray, dst: np.ndarray, num_nodes: int, options: tuple[bool, bool], add_loops: bool, merge: bool
) -> CscArrays:
    ranges = row_ranges(0, num_nodes)
    indptr, cursor = _row_pointers(src, dst, options, ranges, int(add_loops))
    indices = np.empty(int(indptr[-1]), index_dtype(num_nodes))
    if add_loops:
        indices[indptr[:-1]] = np.arange(num_nodes, dtype=indices.dtype)
        cursor += 1
    scatter(src, dst, *options, ranges, cursor, False, indices)
    sort_rows(indptr, indices)
    if merge:
        # The array shrinks in place, because a copy would hold the edges twice.
        indices.resize(merge_rows(indptr, indices), refcheck=False)
    return CscArrays(torch.from_numpy(indptr), torch.from_numpy(indices), None, None)


def rows_with_data(
    src: np.ndarray, dst: np.ndarray, num_rows: int, *, merge: bool, types: np.ndarray | None,
    weights: np.ndarray | None,
) -> CscArrays:
    """CSC arrays of `num_rows` destinations of a graph. Sources `src` `[n]` are vertices of the whole graph.

    Args:
        src: `[n]` sources, with the data type of the graph's ids.
        dst: `[n]` destinations, numbered from 0 to `num_rows` - 1, with the same data type.
        num_rows: number of destinations.
        merge: whether only the first of parallel edges is kept.
        types: `[n]` int32 types, or None.
        weights: `[n]` weights, or None.
    """
    return _with_edge_data(src, dst, num_rows, (False, False), merge, types, None, weights)


def _with_edge_data(
    src: np.ndarray,
    dst: np.ndarray,
    num_nodes: int,
    options: tuple[bool, bool],
    merge: bool,
    types: np.ndarray | None,
    edge_features: np.ndarray | None,
    weights: np.ndarray | None,
) -> CscArrays:
    ranges = row_ranges(0, num_nodes)
    indptr, cursor = _row_pointers(src, dst, options, ranges, 0)
    edges = np.empty(int(indptr[-1]), np.int64)
    scatter(src, dst, *options, ranges, cursor, True, edges)
    kinds = np.empty(0, np.int32) if types is None else types.astype(np.int32, copy=False)
    sort_edge_rows(indptr, edges, src, dst, kinds)
    reverse = edges >= src.size
    edges[reverse] -= src.size
    indices = np.where(reverse, dst[edges], src[edges])
    del reverse
    if merge:
        first = np.ones(edges.size, np.bool_)
        first[1:] = np.diff(indices) != 0
        if types is not None:
            first[1:] |= np.diff(kinds[edges]) != 0
        first[indptr[:-1][indptr[:-1] < edges.size]] = True
        edges = edges[first]
        indices = indices[first]
        indptr -= np.searchsorted(np.flatnonzero(~first), indptr)
    return CscArrays(
        torch.from_numpy(indptr),
        torch.from_numpy(indices),
        None if types is None else torch.from_numpy(kinds[edges]),
        *(None if rows is None else torch.from_numpy(rows[edges].astype(np.float32, copy=False))
          for rows in (edge_features, weights)),
    )


def _row_pointers(
    src: np.ndarray, dst: np.ndarray, options: tuple[bool, bool], ranges: np.ndarray, initial: int
) -> tuple[np.ndarray, np.ndarray]:
    """`indptr` `[V + 1]` with room for every edge, and a copy of the starts, which `scatter` advances."""
    num_nodes = int(ranges[-1])
    indptr = np.zeros(num_nodes + 1, np.int64)
    counts = indptr[1:]
    counts += initial
    count_rows(src, dst, *options, ranges, counts)
    np.cumsum(counts, out=counts)
    return indptr, indptr[:-1].copy()


def _check(
    src: np.ndarray,
    dst: np.ndarray,
    num_nodes: int,
    types: np.ndarray | None,
    inverse: int | None,
    data: tuple[np.ndarray | None, ...],
    key: str,
) -> None:
    problems = []
    lengths = {a.shape[0] for a in (src, dst, types, *data) if a is not None}
    if len(lengths) > 1 or src.ndim != 1 or dst.ndim != 1:
        fix = "give one source, destination, type, weight and feature row per edge"
        problems.append(Problem(key, sorted(lengths), "arrays of one length", fix))
    for what, ids in (("source", src), ("destination", dst)):
        if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= num_nodes):
            first = int(np.flatnonzero((ids < 0) | (ids >= num_nodes))[0])
            found = f"{what} ids {int(ids.min())}..{int(ids.max())}, the first wrong one in row {first} (from 0)"
            fix = "correct the edges, or the number of vertices: rows of features and labels, or dataset.num_nodes"
            problems.append(Problem(key, found, f"ids in 0..{num_nodes - 1}", fix))
    most = 2**31 if inverse is None else inverse
    if types is not None and types.size and not 0 <= int(types.min()) <= int(types.max()) < most:
        found, last = f"types {types.min()}..{types.max()}", "2^31-1" if inverse is None else inverse - 1
        problems.append(Problem(key, found, f"edge types in 0..{last}", "renumber the types"))
    if inverse is not None and 2 * inverse > 2**31:
        problems.append(Problem(key, f"{inverse} types", "at most 2^30 types where reverses have types of their own",
                                "renumber the types"))
    DataError.raise_all(problems)
