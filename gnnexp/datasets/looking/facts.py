"""What a graph is like: sizes, degrees, components, classes, and what may surprise in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch

from gnnexp.datasets.base import check_memory
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows

_TOP = 0.01
_BLOCK = 1 << 20  # edges that are looked up at once
_EDGE, _VERTEX, _CLASS = 48, 64, 48  # bytes of memory for each of them


@dataclass(frozen=True)
class Facts:
    """Facts of a graph as its tables have it: no reverse added, no duplicate merged, no self loop removed.

    Attributes:
        vertices, edges: numbers.
        types: number of vertices of each type, by number of the type; empty for one type.
        relations: R.
        features: D.
        sparse_features: whether features are sparse rows.
        classes: number of labelled vertices of each class.
        label_values: smallest, mean and largest label if labels are real numbers; else empty.
        unlabelled: vertices without a label.
        splits: sizes of the splits.
        duplicates: edges that are there again, with the same ends and type.
        different_weights: edges that are there several times, with different weights.
        opposite_weights: pairs of vertices with one edge in each direction, of the same type and different weights.
        self_loops: edges from a vertex to itself.
        reciprocal: share of the edges (without self loops) whose reverse is there, too.
        isolated: vertices without edges.
        degree: smallest, median, mean and largest number of edges of a vertex.
        skew: share of all ends that the 1 % of vertices with most edges have.
        components: number of weakly connected components.
        largest_component: its share of the vertices.
    """

    vertices: int
    edges: int
    types: list[int]
    relations: int
    features: int
    sparse_features: bool
    classes: list[int]
    label_values: Mapping[str, float]
    unlabelled: int
    splits: Mapping[str, int]
    duplicates: int
    different_weights: int
    opposite_weights: int
    self_loops: int
    reciprocal: float
    isolated: int
    degree: Mapping[str, float]
    skew: float
    components: int
    largest_component: float


def facts_of_graph(graph: Graph) -> Facts:
    """The facts of a graph.

    Raises:
        DataError: they need more memory than there is.
    """
    check_memory(_EDGE * graph.num_edges + _VERTEX * graph.num_nodes, f"facts of {graph.num_edges} edges")
    check_memory(_CLASS * graph.num_classes, f"{graph.num_classes} classes")
    indptr, sources = graph.indptr.numpy(), graph.indices.numpy()
    destinations = graph.destinations().numpy()
    degree = graph.in_degree.numpy() + graph.out_degree.numpy()
    loops = int((sources == destinations).sum())
    pattern = scipy.sparse.csr_array(
        (np.ones(sources.size, np.bool_), sources, indptr), shape=(graph.num_nodes, graph.num_nodes)
    )
    count, of_vertex = scipy.sparse.csgraph.connected_components(pattern, directed=True, connection="weak")
    classes, values, unlabelled = _labels(graph)
    parts = graph.splits
    return Facts(
        vertices=graph.num_nodes,
        edges=graph.num_edges,
        types=[] if graph.node_types is None else torch.bincount(graph.node_types).tolist(),
        relations=graph.num_relations,
        features=graph.num_features,
        sparse_features=isinstance(graph.features, SparseRows),
        classes=classes,
        label_values=values,
        unlabelled=unlabelled,
        splits={"train": parts.train.numel(), "val": parts.val.numel(), "test": parts.test.numel()},
        duplicates=0 if graph.occurrence is None else int((graph.occurrence > 0).sum()),
        different_weights=_different_weights(graph),
        opposite_weights=_opposite_weights(graph, destinations),
        self_loops=loops,
        reciprocal=_reciprocal(sources, destinations, graph.num_nodes),
        isolated=int((degree == 0).sum()),
        degree={
            "min": float(degree.min()),
            "median": float(np.median(degree)),
            "mean": float(degree.mean()),
            "max": float(degree.max()),
        },
        skew=_skew(degree),
        components=int(count),
        largest_component=float(np.bincount(of_vertex).max() / graph.num_nodes),
    )


def _different_weights(graph: Graph) -> int:
    """Number of groups of parallel edges of which weights differ. Parallel edges follow each other."""
    if graph.edge_weights is None or graph.occurrence is None:
        return 0
    starts = np.flatnonzero(graph.occurrence.numpy() == 0)
    weights = graph.edge_weights.numpy()
    return int((np.maximum.reduceat(weights, starts) > np.minimum.reduceat(weights, starts)).sum())


def _opposite_weights(graph: Graph, destinations: np.ndarray) -> int:
    """Pairs of vertices with one edge of a type in each direction, and different weights."""
    if graph.edge_weights is None:
        return 0
    sources, weights = graph.indices.numpy().astype(np.int64), graph.edge_weights.numpy()
    types = np.zeros(sources.size, np.int32) if graph.edge_types is None else graph.edge_types.numpy()
    count = 0
    for kind in np.unique(types):
        rows = np.flatnonzero((types == kind) & (sources != destinations))
        keys, first, times = np.unique(
            sources[rows] * graph.num_nodes + destinations[rows], return_index=True, return_counts=True
        )
        once, rows = keys[times == 1], rows[first[times == 1]]
        back = destinations[rows] * graph.num_nodes + sources[rows]
        place = np.minimum(np.searchsorted(once, back), max(0, once.size - 1))
        count += int(((once[place] == back) & (weights[rows] != weights[rows[place]])).sum())
    return count // 2


def _labels(graph: Graph) -> tuple[list[int], dict[str, float], int]:
    """Vertices of each class; smallest, mean and largest of real labels; vertices without a label."""
    labels = graph.labels
    if labels is None or graph.multilabel:
        return [], {}, graph.num_nodes
    if not graph.real_labels:
        known = labels[labels >= 0]
        return torch.bincount(known, minlength=graph.num_classes).tolist(), {}, graph.num_nodes - known.numel()
    values = labels[~labels.isnan()].double()
    if not values.numel():
        return [], {}, graph.num_nodes
    spread = {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}
    return [], spread, graph.num_nodes - values.numel()


def _skew(degree: np.ndarray) -> float:
    top = max(1, round(_TOP * degree.size))
    total = int(degree.sum())
    return float(np.partition(degree, degree.size - top)[-top:].sum() / total) if total else 0.0


def _reciprocal(sources: np.ndarray, destinations: np.ndarray, num_nodes: int) -> float:
    """Share of the different edges between two vertices whose reverse is there."""
    keys = destinations.astype(np.int64)
    keys *= num_nodes
    keys += sources
    keys = keys[sources != destinations]
    keys.sort()  # `np.unique` of numpy 2.3 is ten times slower: it uses a hash table
    keys = keys[np.diff(keys, prepend=-1) != 0]
    reverse = keys % num_nodes * num_nodes + keys // num_nodes
    reverse.sort()
    reverses = 0
    for start in range(0, keys.size, _BLOCK):
        block = reverse[start : start + _BLOCK]
        places = np.searchsorted(keys, block)
        places[places == keys.size] = 0
        reverses += int((keys[places] == block).sum())
    return reverses / keys.size if keys.size else 0.0
