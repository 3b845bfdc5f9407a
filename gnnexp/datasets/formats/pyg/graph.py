"""A graph of PyG as the arrays that all formats share (`ForeignGraph`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from gnnexp.datasets.base import is_believable
from gnnexp.datasets.formats.foreign import ForeignEdges, ForeignGraph, ForeignVertices, Matrix
from gnnexp.datasets.formats.pyg.content import Content, EdgeType
from gnnexp.datasets.formats.pyg.labels import pyg_labels, splits_of
from gnnexp.datasets.formats.pyg.values import array, as_tensor, entries, is_sparse, pyg_rows
from gnnexp.errors import DataError, Problem

AUTO = "auto"
_IDS = ("n_id", "node_id", "node_ids")
# Attributes that say how many vertices there are, in order.
_ROWS = ("x", "feat", "pos", "n_id", "batch", "node_type", "y", "train_mask")
# What is used, or says nothing that a user misses.
_SILENT = {
    "edge_index",
    "adj_t",
    "edge_type",
    "num_nodes",
    "batch",
    "ptr",
    "num_classes",
    "name",
    "train_y",
    "test_y",
    *(f"{split}_{ending}" for split in ("train", "val", "valid", "test") for ending in ("mask", "idx", "index")),
}


@dataclass(kw_only=True, eq=False)
class AttributeNames:
    """Names of attributes, which are a part of the options of `Pyg`.

    Attributes:
        features: features of vertices; None: none.
        label: labels of vertices; None: none.
        weight: weights of edges; `auto`: `edge_weight`, or `edge_attr` of one column; None: none.
        ids: ids of vertices; `auto`: `n_id` or `node_id`; None: 0 to n - 1.
        mask: which of several splits.
    """

    features: str | None = "x"
    label: str | None = "y"
    weight: str | None = AUTO
    ids: str | None = AUTO
    mask: int = 0


def foreign_of_pyg(content: Content, chosen: AttributeNames) -> ForeignGraph:
    """The vertices and edges, in the order that PyG has them.

    Raises:
        DataError: attributes do not fit together; names all of them.
    """
    notes: list[str] = []
    problems: list[Problem] = []
    _check_names(content, chosen)
    edges: list[ForeignEdges] = []
    sizes = dict.fromkeys(content.vertices, 0)
    for kind, store in content.edges.items():
        try:
            edges += _edges(kind, store, chosen, content, sizes, notes)
        except DataError as error:
            problems += error.problems
    vertices = {}
    for name, store in content.vertices.items():
        try:
            vertices[name] = _vertices(name, store, chosen, content, sizes[name], notes)
        except DataError as error:
            problems += error.problems
    DataError.raise_all(problems)
    total, known = sum(of_type.count for of_type in vertices.values()), sum(of_type.source.size for of_type in edges)
    with_rows = any(of_type.features is not None or of_type.labels is not None for of_type in vertices.values())
    if not with_rows and not is_believable(total, known):
        raise DataError(
            Problem(
                content.key,
                f"{total} vertices with {known} edges",
                "num_nodes, or an id of an edge, is too large",
                "number the vertices from 0 on",
            )
        )
    return ForeignGraph(vertices, edges, tuple(dict.fromkeys(notes)))


def _check_names(content: Content, chosen: AttributeNames) -> None:
    """Check that attributes exist that are not PyG's usual ones."""
    problems = []
    usual = AttributeNames()
    for key in ("features", "label", "weight", "ids"):
        name = getattr(chosen, key)
        stores = content.edges if key == "weight" else content.vertices
        if name not in (None, getattr(usual, key)) and not any(name in attributes for attributes in stores.values()):
            names = sorted({str(attribute) for store in stores.values() for attribute in store})
            problems.append(
                Problem(
                    f"dataset.{key}",
                    name,
                    f"attributes of {content.key} are {', '.join(names)[:200]}",
                    f"set dataset.{key}={getattr(usual, key)}",
                )
            )
    DataError.raise_all(problems)


def _vertices(
    name: str, store: Mapping[str, Any], chosen: AttributeNames, content: Content, least: int, notes: list[str]
) -> ForeignVertices:
    key = _named(content, name)
    count = _count(store, chosen, least, key)
    rows = as_tensor(store.get(chosen.features)) if chosen.features else None
    features: Matrix | None = None if rows is None else pyg_rows(rows, count, f"{key}.{chosen.features}")
    value = store.get(chosen.label) if chosen.label else None
    labels = None if value is None else pyg_labels(value, count, f"{key}.{chosen.label}", notes)
    if value is None and chosen.label == "y":
        labels = _labels_of_splits(store, count, key, notes)
    splits = splits_of(store, count, chosen.mask, key, notes)
    if splits and labels is None:
        notes.append(f"the split of {key} is left out: its vertices have no labels")
        splits = {}
    _note_rest(store, chosen, key, content.typed, notes)
    return ForeignVertices(count, features, labels, splits, ids=_ids(store, chosen, count, key, notes))


def _named(content: Content, name: str) -> str:
    return f"{content.key}: {name}" if content.typed else content.key


def _count(store: Mapping[str, Any], chosen: AttributeNames, least: int, key: str) -> int:
    """The number of vertices: as PyG counts them, and at least those that edges name."""
    recorded = as_tensor(store.get("num_nodes"))
    number = recorded.item() if recorded is not None and recorded.numel() == 1 else store.get("num_nodes")
    if isinstance(number, Integral):
        count = int(number)
        if not 0 <= count < 1 << 62:
            raise DataError(Problem(f"{key}.num_nodes", count, "must be the number of vertices", "correct it"))
        return count
    for name in (chosen.features, *_ROWS, chosen.label):
        tensor = as_tensor(store.get(name)) if name else None
        if tensor is not None and tensor.dim() and (tensor.shape[0] >= least or name == chosen.features):
            return int(tensor.shape[0])
    return least


def _labels_of_splits(store: Mapping[str, Any], count: int, key: str, notes: list[str]) -> np.ndarray | None:
    """Labels that stand next to the ids of a split, as in PyG's `Entities`: `train_idx` and `train_y`."""
    labels = None
    for split in ("train", "test"):
        ids, values = as_tensor(store.get(f"{split}_idx")), as_tensor(store.get(f"{split}_y"))
        if ids is None or values is None or ids.shape != values.shape or ids.dim() != 1:
            continue
        split_labels = pyg_labels(values, values.numel(), f"{key}.{split}_y", notes)
        places = array(ids, f"{key}.{split}_idx")
        if (
            split_labels is None
            or split_labels.dtype.kind != "i"
            or (places.size and not 0 <= places.min() <= places.max() < count)
        ):
            continue
        labels = np.full(count, -1, np.int64) if labels is None else labels
        labels[places] = split_labels
    return labels


def _ids(store: Mapping[str, Any], chosen: AttributeNames, count: int, key: str, notes: list[str]) -> np.ndarray | None:
    """`[n]` the user's ids; None: 0 to n - 1."""
    names = _IDS if chosen.ids == AUTO else (chosen.ids,) if chosen.ids else ()
    for name in names:
        value = store.get(name)
        if value is None:
            continue
        tensor = as_tensor(value)
        flat = isinstance(value, list | tuple) and all(isinstance(identity, str | int) for identity in value)
        ids = np.array(value) if flat else None if tensor is None else array(tensor, f"{key}.{name}")
        if ids is None or ids.shape != (count,) or len(set(ids.tolist())) != count:
            if chosen.ids == AUTO:
                notes.append(f"{name} is left out: it has no different number or text for each of the {count} vertices")
                continue
            raise DataError(
                Problem(
                    f"{key}.{name}",
                    "" if ids is None else list(ids.shape),
                    f"must be a different number or text for each of the {count} vertices",
                    "correct it, or set dataset.ids=null",
                )
            )
        return ids if ids.dtype.kind in "iu" else np.array([str(identity) for identity in ids.tolist()], dtype=object)
    return None


def _edges(
    kind: EdgeType,
    store: Mapping[str, Any],
    chosen: AttributeNames,
    content: Content,
    sizes: dict[str, int],
    notes: list[str],
) -> list[ForeignEdges]:
    """The edges of a type; several types if a `Data` has `edge_type`. `sizes` gets the largest ids."""
    key = _named(content, "__".join(kind))
    source, destination, weight = _ends(store, kind, key, sizes)
    for role, ends in ((0, source), (2, destination)):
        sizes[kind[role]] = max(sizes[kind[role]], int(ends.max(initial=-1)) + 1)
    weight = _weight(store, chosen, source.size, key, notes) if weight is None else weight
    weight = None if chosen.weight is None else weight
    if content.typed:
        _note_rest(store, chosen, key, content.typed, notes)
    types = as_tensor(store.get("edge_type"))
    if types is None or content.typed:
        return [
            ForeignEdges(
                source,
                destination,
                kind[1] if _has_own_name(kind, content) else "__".join(kind),
                (kind[0], kind[2]),
                weight,
            )
        ]
    numbers = array(types, f"{key}.edge_type")
    if numbers.shape != source.shape or numbers.dtype.kind not in "iu":
        raise DataError(
            Problem(
                f"{key}.edge_type",
                f"{numbers.dtype} {list(numbers.shape)}",
                f"must be a whole number for each of the {source.size} edges",
                "correct it",
            )
        )
    order = np.argsort(numbers, kind="stable")
    values, starts = np.unique(numbers[order], return_index=True)
    groups = np.split(order, starts[1:])
    return [
        ForeignEdges(
            source[rows], destination[rows], str(value), (kind[0], kind[2]), None if weight is None else weight[rows]
        )
        for value, rows in zip(values, groups, strict=True)
    ]


def _has_own_name(kind: EdgeType, content: Content) -> bool:
    return sum(other[1] == kind[1] for other in content.edges) == 1


def _ends(
    store: Mapping[str, Any], kind: EdgeType, key: str, sizes: dict[str, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Sources, destinations and, from a matrix, weights that are not all 1."""
    pairs = as_tensor(store.get("edge_index"))
    if pairs is not None and not is_sparse(pairs):
        ends = array(pairs, f"{key}.edge_index")
        if ends.ndim != 2 or ends.shape[0] != 2 or (ends.dtype.kind not in "iu" and ends.size):
            raise DataError(
                Problem(
                    f"{key}.edge_index",
                    f"{ends.dtype} {list(ends.shape)}",
                    "must be integers [2, E]",
                    "give sources and destinations: edge_index.t().contiguous() if it is [E, 2]",
                )
            )
        return ends[0].astype(np.int64, copy=False), ends[1].astype(np.int64, copy=False), None
    matrix = as_tensor(store.get("adj_t")) if pairs is None else pairs
    name = "adj_t" if pairs is None else "edge_index"
    if matrix is None:
        raise DataError(
            Problem(
                key,
                ", ".join(map(str, store))[:150],
                "must have edge_index or adj_t",
                "remove this type of edges, or give it edges",
            )
        )
    row, column, values = entries(matrix, f"{key}.{name}")
    # Rows of `adj_t` are destinations. PyG takes a sparse `edge_index` for one, too.
    for end, size in ((kind[2], matrix.shape[0]), (kind[0], matrix.shape[1])):
        sizes[end] = max(sizes[end], int(size))
    return column, row, None if (values == 1).all() else _as_weights(values)


def _weight(
    store: Mapping[str, Any], chosen: AttributeNames, count: int, key: str, notes: list[str]
) -> np.ndarray | None:
    """`[E]` float32 or float64 weights, or None."""
    names = ("edge_weight", "edge_attr") if chosen.weight == AUTO else (chosen.weight,)
    for name in names:
        tensor = as_tensor(store.get(name)) if name else None
        if tensor is None:
            continue
        if tensor.dim() == 0 or tensor.shape[0] != count:
            raise DataError(
                Problem(
                    f"{key}.{name}",
                    list(tensor.shape),
                    f"must have a row for each of the {count} edges",
                    "correct it, or set dataset.weight=null",
                )
            )
        values = array(tensor, f"{key}.{name}")
        if values.size == count:
            if name == "edge_attr":
                notes.append("edge_attr has one column: it is taken as the weights of edges (dataset.weight=null: not)")
            return _as_weights(values.reshape(count))
        if chosen.weight != AUTO:
            raise DataError(
                Problem(
                    "dataset.weight",
                    name,
                    f"has {list(values.shape)}, and a weight is one number",
                    "set dataset.weight=null",
                )
            )
    return None


def _as_weights(values: np.ndarray) -> np.ndarray:
    """Floats; those of merged edges are added before they are rounded."""
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _note_rest(store: Mapping[str, Any], chosen: AttributeNames, key: str, typed: bool, notes: list[str]) -> None:
    """Note the attributes that are left out."""
    used = {chosen.features, chosen.label, chosen.weight, chosen.ids, *_IDS, *_SILENT}
    rest = []
    for name, value in store.items():
        tensor = as_tensor(value)
        width = 1 if tensor is None or tensor.dim() < 2 else int(np.prod(tensor.shape[1:]))
        taken = name in used or (name in ("edge_weight", "edge_attr") and width == 1 and chosen.weight == AUTO)
        if not taken and tensor is not None and tensor.numel() > 1:
            rest.append(f"{name} {list(tensor.shape)}")
        elif not taken and tensor is None and isinstance(value, str | list | tuple | Mapping) and len(value):
            rest.append(f"{name} ({type(value).__name__})")
    if rest:
        notes.append(f"left out{f' of {key}' if typed else ''}: {', '.join(rest[:12])[:300]}")
