"""Build CSC arrays in canonical order (destination, source, type, occurrence) from an edge list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.merging import MOST_SHOWN, MergedEdges, MergeWeights, Parallel, in_order, merged_weights
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
EdgeData = Sequence[np.ndarray | None]  # features and weights of edges


class CscArrays(NamedTuple):
    """The arrays of a graph's edges: `indptr [V + 1]` int64, `indices [E]`, and types, features, weights `[E, ...]`.

    `merged` says which edges stand for several edges with weights or features.
    """

    indptr: Tensor
    indices: Tensor
    types: Tensor | None
    edge_features: Tensor | None
    weights: Tensor | None = None
    merged: MergedEdges = MergedEdges()


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
    merge_weights: MergeWeights = "error",
    by_weight: bool = False,
    key: str = "edges",
) -> CscArrays:
    """CSC arrays of the edges `src -> dst` in canonical order, by counting sort.

    Args:
        src, dst: `[n]` ids of sources and destinations, any integer dtype.
        num_nodes: V.
        types: `[n]` edge types >= 0, or None.
        symmetrize: whether to add every edge's reverse with its data; if edges are merged, given reverses keep theirs.
        num_relations: R; with `symmetrize` the reverse of an edge of type r has type R + r. None: it has type r too.
        self_loops: `keep` self loops, `remove` them, or `add` them, so that each vertex has exactly one.
        duplicates: `merge` parallel edges of one type into one, or `keep` them.
        edge_features, weights: `[n, De]` and `[n]`, or None.
        merge_weights: what the weight, and each feature, of a merged edge is; `error` refuses different ones.
        by_weight: whether parallel edges that are kept are in the order of their weights, and not of their rows.
        key: file or config key that errors name.

    Returns:
        The arrays; `indices` is int32 below 2^31 vertices. While they are built, memory also holds the input in the
        same dtype, and 8 bytes per edge with types, features or weights.

    Raises:
        DataError: lengths differ, an id is outside `0..V-1`, or a type is negative. With inverse relations also: a type
            is R or more, or 2R exceeds 2^31. With `merge_weights="error"`: parallel edges have different weights or
            features (`DifferentWeightsError`).
        ConfigError: `self_loops="add"` with types, features or weights, because new self loops would have none.
    """
    inverse = num_relations if symmetrize else None
    plain = types is None and edge_features is None and weights is None
    data: EdgeData = (edge_features, weights)
    _check(src, dst, num_nodes, types, inverse, data, key)
    _check_loops(self_loops, plain=plain)
    # One dtype for all ids, so that kernels are compiled once.
    src, dst = (np.ascontiguousarray(ids, dtype=index_dtype(num_nodes)) for ids in (src, dst))
    if inverse is not None:
        src, dst, types = np.append(src, dst), np.append(dst, src), _with_inverses(types, inverse)
        data = [None if rows is None else np.concatenate([rows, rows]) for rows in data]
    options = (symmetrize and inverse is None, self_loops != "keep")
    if plain:
        return _plain(src, dst, num_nodes, options, self_loops == "add", duplicates == "merge")
    rule = merge_weights if duplicates == "merge" else None
    built = _with_edge_data(
        (src, dst), num_nodes, options, rule, types, data, from_user=np.empty(0, np.bool_), by_weight=by_weight
    )
    built.merged.check(merge_weights)
    return built


def _with_inverses(types: np.ndarray | None, count: int) -> np.ndarray:
    """`[2n]` int32 types of edges and of their reverses. The check has shown that r + R fits in int32."""
    assert types is not None, "inverse relations are of typed edges"
    wide = types.astype(np.int32)
    return np.append(wide, wide + np.int32(count))


def _check_loops(self_loops: SelfLoops, *, plain: bool) -> None:
    if self_loops == "add" and not plain:
        fix = "use self_loops=keep (or remove); models add their own self term"
        allowed = "keep or remove on typed, featured or weighted edges"
        raise ConfigError(Problem("dataset.self_loops", "add", allowed, fix))


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
    src: np.ndarray,
    dst: np.ndarray,
    num_rows: int,
    *,
    rule: MergeWeights | None,
    types: np.ndarray | None,
    weights: np.ndarray | None,
    from_user: np.ndarray,
) -> CscArrays:
    """CSC arrays of `num_rows` destinations of a graph. Sources `src` `[n]` are vertices of the whole graph.

    Args:
        src: `[n]` sources, with the data type of the graph's ids.
        dst: `[n]` destinations, numbered from 0 to `num_rows` - 1, with the same data type.
        num_rows: number of destinations.
        rule: what the weight of merged parallel edges is; None: they are kept, in the order of their weights.
        types: `[n]` int32 types, or None.
        weights: `[n]` weights, or None.
        from_user: `[n]` bool, False for edges that were added as reverses.
    """
    return _with_edge_data(
        (src, dst), num_rows, (False, False), rule, types, (None, weights), from_user=from_user, by_weight=True
    )


def _with_edge_data(
    ends: tuple[np.ndarray, np.ndarray],
    num_nodes: int,
    options: tuple[bool, bool],
    rule: MergeWeights | None,
    types: np.ndarray | None,
    edge_data: EdgeData,
    *,
    from_user: np.ndarray,
    by_weight: bool,
) -> CscArrays:
    """See `build_graph` and `rows_with_data`; `from_user` is empty if all edges are."""
    (src, dst), ranges = ends, row_ranges(0, num_nodes)
    indptr, cursor = _row_pointers(src, dst, options, ranges, 0)
    edges = np.empty(int(indptr[-1]), np.int64)
    scatter(src, dst, *options, ranges, cursor, True, edges)
    kinds = np.empty(0, np.int32) if types is None else types.astype(np.int32, copy=False)
    sort_edge_rows(indptr, edges, src, dst, kinds)
    reverse = edges >= src.size
    edges[reverse] -= src.size
    indices = np.where(reverse, dst[edges], src[edges])
    from_user = from_user[edges] if from_user.size else ~reverse if options[0] else from_user
    del reverse
    first = _first(indptr, indices, None if types is None else kinds[edges])
    starts = np.append(np.flatnonzero(first), edges.size)
    data = [None if rows is None else rows[edges] for rows in edge_data]
    merged = MergedEdges()
    if rule is not None:
        indptr -= np.searchsorted(np.flatnonzero(~first), indptr)
        data, merged = _merge(starts, from_user, data, rule, (indptr, indices[first]))
        edges, indices = edges[first], indices[first]
    elif by_weight and data[1] is not None and data[0] is None:
        data[1] = in_order(starts, data[1])
    features, values = (
        None if rows is None else torch.from_numpy(rows.astype(np.float32, copy=False)) for rows in data
    )
    return CscArrays(
        torch.from_numpy(indptr),
        torch.from_numpy(indices),
        None if types is None else torch.from_numpy(kinds[edges]),
        features,
        values,
        merged,
    )


def _first(indptr: np.ndarray, indices: np.ndarray, types: np.ndarray | None) -> np.ndarray:
    """`[E]` bool: the first edge of each group of parallel edges."""
    first = np.ones(indices.size, np.bool_)
    first[1:] = np.diff(indices) != 0
    if types is not None:
        first[1:] |= np.diff(types) != 0
    first[indptr[:-1][indptr[:-1] < indices.size]] = True
    return first


def _merge(
    starts: np.ndarray,
    from_user: np.ndarray,
    data: list[np.ndarray | None],
    rule: MergeWeights,
    merged_ends: tuple[np.ndarray, np.ndarray],
) -> tuple[list[np.ndarray | None], MergedEdges]:
    """Features and weights of merged edges; `merged_ends` are `indptr` and the sources of these."""
    merged_data: list[np.ndarray | None] = [None, None]
    different = np.empty(0, np.int64)
    for place, rows in enumerate(data):
        if rows is not None:
            columns = [merged_weights(starts, from_user, column, rule) for column in np.atleast_2d(rows.T)]
            merged_data[place] = np.stack([column for column, _ in columns], 1).reshape(-1, *rows.shape[1:])
            different = np.unique(np.concatenate([different, *(groups for _, groups in columns)]))
    return merged_data, MergedEdges(
        different.size,
        tuple(_parallel(group, starts, from_user, data, merged_ends) for group in different[:MOST_SHOWN].tolist()),
    )


def _parallel(
    group: int,
    starts: np.ndarray,
    from_user: np.ndarray,
    data: list[np.ndarray | None],
    merged_ends: tuple[np.ndarray, np.ndarray],
) -> Parallel:
    """One merged edge whose edges have different weights (or features)."""
    indptr, sources = merged_ends
    rows = slice(starts[group], starts[group + 1])
    own = from_user[rows] if from_user.size and from_user[rows].any() else slice(None)
    column = next(
        values[rows][own][:, None] if values.ndim == 1 else values[rows][own]
        for values in data[::-1]
        if values is not None
    )
    widest = column[:, int(np.argmax(np.ptp(column, 0)))]
    destination = int(np.searchsorted(indptr, group, side="right")) - 1
    return Parallel(int(sources[group]), destination, float(widest.min()), float(widest.max()))


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
    data: EdgeData,
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
            shown = f"{what} ids {int(ids.min())}..{int(ids.max())}, the first wrong one in row {first} (from 0)"
            fix = "correct the edges, or the number of vertices: rows of features and labels, or dataset.num_nodes"
            problems.append(Problem(key, shown, f"ids in 0..{num_nodes - 1}", fix))
    most = 2**31 if inverse is None else inverse
    if types is not None and types.size and not 0 <= int(types.min()) <= int(types.max()) < most:
        shown, last = f"types {types.min()}..{types.max()}", "2^31-1" if inverse is None else inverse - 1
        problems.append(Problem(key, shown, f"edge types in 0..{last}", "renumber the types"))
    if inverse is not None and 2 * inverse > 2**31:
        problems.append(
            Problem(
                key,
                f"{inverse} types",
                "at most 2^30 types where reverses have types of their own",
                "renumber the types",
            )
        )
    DataError.raise_all(problems)
