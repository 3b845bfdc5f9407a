"""Check that a graph can be trained on: all rules of `Graph`, with all problems reported at once.

Every pass over an array is one loop without temporaries, so a check takes a few megabytes for a memory-mapped graph of
any size. A pass that relies on valid data runs only after the check of these data: a broken `indptr` never makes a
kernel read outside of an array.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from gnnexp.errors import Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows
from gnnexp.graph.storage.layout import SPLITS, arrays_of, check_layout
from gnnexp.graph.subset import contains
from gnnexp.kernels.graph.checks import (
    count_bad_multilabel,
    count_descents,
    count_disorder,
    count_nonfinite,
    count_outside,
)

# report(array, found, allowed, fix)
Report = Callable[[str, str, str, str], None]
_NO_TYPES = np.empty(0, np.int32)


def validate_graph(graph: Graph, *, name: str) -> list[Problem]:
    """All problems of `graph`; empty if the graph can be trained on.

    Args:
        graph: a graph in memory, or memory-mapped.
        name: dataset or folder, the first word of every message.
    """
    problems: list[Problem] = []

    def report(array: str, value: str, allowed: str, fix: str) -> None:
        problems.append(Problem(f"{name}: {array}", value, allowed, fix))

    arrays = arrays_of(graph)
    problems += check_layout(
        arrays,
        graph.num_nodes,
        graph.num_edges,
        lambda array: f"{name}: {array}",
        "convert the array, or correct what wrote it",
    )
    if not problems and graph.num_nodes < 1:
        report("indptr", f"{graph.num_nodes + 1} entries", "at least one vertex", "check the dataset's files")
    if problems:
        return problems  # the passes below rely on a valid layout
    _check_topology(graph, report)
    _check_numbers(graph, report)
    labels_fit = _check_labels(graph, report)
    _check_splits(graph, labels_fit, report)
    if graph.splits.train.numel() == 0 and not graph.links:
        report("train", "0 vertices", "at least one vertex to train on", "give the dataset a split")
    _check_links(graph, report)
    return problems


def validate_ids(graph: Graph, *, name: str) -> list[Problem]:
    """Problems of the ids in topology, labels and splits of a stored graph; features are not read."""
    problems: list[Problem] = []

    def report(array: str, found: str, allowed: str, fix: str) -> None:
        problems.append(Problem(f"{name}: {array}", found, allowed, fix))

    _check_topology(graph, report)
    _check_splits(graph, _check_labels(graph, report), report)
    return problems


def _check_rows(indptr: Tensor, length: int, array: str, report: Report) -> bool:
    """Whether the rows of `indptr` can be read: it runs from 0 to `length`, and never falls."""
    values = indptr.numpy()
    count, first = count_descents(values, False)
    if count:
        report(
            array,
            f"{count} descents, first at position {first}: {values[first - 1]}, {values[first]}",
            "must never fall",
            "rebuild the CSC arrays: sort edges by destination, then count",
        )
    if values[0] != 0 or values[-1] != length:
        report(
            array,
            f"runs from {values[0]} to {values[-1]}",
            f"must run from 0 to {length}",
            "rebuild the CSC arrays: sort edges by destination, then count",
        )
        return False
    return bool(count == 0)


def _check_range(array: str, tensor: Tensor, bounds: tuple[int, int], what: str, report: Report) -> bool:
    low, high = bounds
    count, first = count_outside(tensor.numpy(), low, high)
    if count:
        report(
            array,
            f"{count} of {tensor.numel()}, first at position {first}: {int(tensor[first])}",
            f"{what} must be {low} to {high - 1}",
            "correct the ids, or the number of vertices or classes",
        )
    return bool(count == 0)


def _check_topology(graph: Graph, report: Report) -> None:
    expected = torch.int32 if graph.num_nodes < 1 << 31 else torch.int64
    if graph.indices.dtype != expected:
        report(
            "indices",
            str(graph.indices.dtype),
            f"must be {expected} for {graph.num_nodes} vertices",
            "convert the array",
        )
    walkable = _check_rows(graph.indptr, graph.num_edges, "indptr", report)
    _check_range("indices", graph.indices, (0, graph.num_nodes), "sources", report)
    if graph.edge_types is not None:
        _check_range("edge_types", graph.edge_types, (0, 1 << 31), "types", report)
    if graph.node_types is not None:
        _check_range("node_types", graph.node_types, (0, 1 << 31), "types", report)
    if walkable:
        types = _NO_TYPES if graph.edge_types is None else graph.edge_types.numpy()
        count, first = count_disorder(graph.indptr.numpy(), graph.indices.numpy(), types, False)
        if count:
            dst = int(torch.searchsorted(graph.indptr, first, right=True)) - 1
            source = int(graph.indices[first])
            report(
                "indices",
                f"{count} out of order, first at position {first}: {source} -> {dst}",
                "edges must be sorted by (destination, source, type)",
                "sort the edges",
            )


def _check_numbers(graph: Graph, report: Report) -> None:
    features = graph.features
    if isinstance(features, SparseRows):
        _check_sparse(features, report)
    elif features is not None:
        _check_finite("features", features, report)
    if graph.edge_features is not None:
        _check_finite("edge_features", graph.edge_features, report)
    if graph.edge_weights is not None:
        _check_finite("edge_weights", graph.edge_weights[:, None], report)


def _check_finite(array: str, rows: Tensor, report: Report) -> None:
    count, first = count_nonfinite(rows.numpy())
    if count:
        column = int((~torch.isfinite(rows[first])).nonzero()[0])
        report(
            array,
            f"{count} values, first at [{first}, {column}]: {float(rows[first, column])}",
            "must be finite",
            "replace NaN and infinities in the dataset",
        )


def _check_sparse(features: SparseRows, report: Report) -> None:
    walkable = _check_rows(features.indptr, features.columns.numel(), "features_indptr", report)
    _check_range("features_columns", features.columns, (0, features.num_columns), "columns", report)
    _check_finite("features_values", features.values[:, None], report)
    if walkable:
        count, first = count_disorder(features.indptr.numpy(), features.columns.numpy(), _NO_TYPES, True)
        if count:
            column = int(features.columns[first])
            report(
                "features_columns",
                f"{count} entries, first at position {first}: {column}",
                "columns must be ascending and unique inside a row",
                "sort the rows and sum up duplicates",
            )


def _check_labels(graph: Graph, report: Report) -> bool:
    """Whether the graph has labels, and they can be looked up."""
    labels = graph.labels
    if labels is None or graph.real_labels:
        return labels is not None and _check_real_labels(graph, labels, report)
    if graph.num_classes < 1:
        if labels.dtype == torch.int64 and bool((labels < 0).all()):
            report(
                "labels",
                f"{labels.shape[0]} vertices",
                "no vertex has a label",
                "name where the labels are, or give the graph without labels (dataset.label=null)",
            )
        else:
            report(
                "num_classes", str(graph.num_classes), "must be at least 1 where there are labels", "count the classes"
            )
        return False
    if (labels.dim() == 2) != (labels.dtype == torch.float32):
        report(
            "labels",
            f"{labels.dtype} {list(labels.shape)}",
            "must be int64 [V], or float32: [V, C] for several, [V] for real numbers",
            "convert the labels",
        )
        return False
    if labels.dim() == 1:
        return _check_range("labels", labels, (-1, graph.num_classes), "classes (-1 for none)", report)
    if labels.shape[1] != graph.num_classes:
        report("labels", str(list(labels.shape)), f"must have {graph.num_classes} columns", "correct num_classes")
        return False
    count, first = count_bad_multilabel(labels.numpy())
    if count:
        report(
            "labels",
            f"{count} rows, first is row {first}: {labels[first][:8].tolist()}",
            "rows must be all 0 or 1, or all NaN for no label",
            "correct the labels",
        )
    return bool(count == 0)


def _check_real_labels(graph: Graph, labels: Tensor, report: Report) -> bool:
    if graph.num_classes:
        report(
            "num_classes",
            str(graph.num_classes),
            "must be 0 where labels are real numbers",
            "set num_classes=0, or convert the labels to int64",
        )
    infinite = torch.isinf(labels)
    count = int(infinite.sum())
    if count:
        first = int(infinite.nonzero()[0])
        report(
            "labels",
            f"{count} values, first is that of vertex {first}: {float(labels[first])}",
            "must be finite, or NaN for no label",
            "correct the labels",
        )
    return count == 0


def _check_splits(graph: Graph, labels_fit: bool, report: Report) -> None:
    sound = {}
    for split in SPLITS:
        ids = getattr(graph.splits, split)
        within = _check_range(split, ids, (0, graph.num_nodes), "vertices", report)
        count, first = count_descents(ids.numpy(), True)
        if count:
            report(
                split,
                f"{count} places, first at position {first}: {int(ids[first - 1])}, {int(ids[first])}",
                "must be ascending without repetition",
                "sort the ids and drop duplicates",
            )
        elif within:
            sound[split] = ids
    for left, right in combinations(sound, 2):
        both = sound[left][contains(sound[right], sound[left])]
        if both.numel():
            report(
                f"{left}, {right}",
                f"{both.numel()} vertices in both, first is {int(both[0])}",
                "splits must be disjoint",
                "correct the splits",
            )
    if graph.labels is None and any(getattr(graph.splits, split).numel() for split in SPLITS):
        report("labels", "none", "vertices of the splits need labels", "give the dataset labels, or empty splits")
    for split, ids in sound.items() if labels_fit else ():
        _check_labelled(graph, split, ids, report)


def _check_labelled(graph: Graph, split: str, ids: Tensor, report: Report) -> None:
    assert graph.labels is not None
    labels = graph.labels[ids] if graph.labels.dim() == 1 else graph.labels[:, 0][ids]
    missing = torch.isnan(labels) if labels.is_floating_point() else labels < 0
    count = int(missing.sum())
    if count:
        report(
            split,
            f"{count} vertices, first is {int(ids[missing.nonzero()[0]])}",
            "must all have a label",
            "leave vertices without a label out of the splits",
        )


def _check_links(graph: Graph, report: Report) -> None:
    if len({pairs.shape[1] for pairs in graph.links.values()}) > 1:
        widths = ", ".join(f"{pairs.shape[1]} ({name})" for name, pairs in graph.links.items())
        report(
            "links",
            f"columns: {widths}",
            "all splits and negatives must have 2 columns, or all 3 with a relation",
            "give all links relations, or none",
        )
    for name, pairs in graph.links.items():
        for column, what in ((0, "heads"), (pairs.shape[1] - 1, "tails")):
            _check_range(f"links_{name}[:, {column}]", pairs[:, column], (0, graph.num_nodes), what, report)
        if pairs.shape[1] == 3:
            _check_range(f"links_{name}[:, 1]", pairs[:, 1], (0, 1 << 31), "relations", report)
