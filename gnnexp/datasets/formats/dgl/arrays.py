"""A DGL graph in numpy arrays, and the `ForeignGraph` that it becomes. Nothing here imports DGL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from gnnexp.datasets.formats.foreign import EDGE, VERTEX, ForeignEdges, ForeignGraph, ForeignVertices
from gnnexp.errors import ConfigError, DataError, Findings, Problem

if TYPE_CHECKING:
    import dgl

AUTO = "auto"
# Usual names in DGL's data sets and examples; the first one is DGL's own.
USUAL = {
    "features": ("feat", "features", "feature", "feats", "x", "h", "attr"),
    "label": ("label", "labels", "y"),
    "weight": ("w", "weight", "weights", "edge_weight", "edge_weights"),
}
MASKS = {
    "train": ("train_mask", "train_masks"),
    "val": ("val_mask", "valid_mask", "validation_mask", "val_masks"),
    "test": ("test_mask", "test_masks"),
}
# Names that DGL gives by itself: ids and types in the graph that this one was made of.
ID, TYPE = "_ID", "_TYPE"
_ONE_TYPE, _ONE_RELATION = "_N", "_E"


@dataclass(frozen=True, eq=False)
class DglEdges:
    """The edges of one type: `[E]` ends as numbers among the vertices of their types, and data by name."""

    types: tuple[str, str, str]
    source: np.ndarray
    destination: np.ndarray
    data: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DglArrays:
    """All of a DGL graph.

    Attributes:
        counts: number of vertices of each type, in DGL's order.
        nodes: data of the vertices by type and name; the first dimension is the count.
        edges: types of edges, in DGL's order.
        extra: the dictionary that `dgl.save_graphs` keeps next to all graphs of a file (`labels`).
    """

    counts: Mapping[str, int]
    nodes: Mapping[str, Mapping[str, np.ndarray]]
    edges: Sequence[DglEdges]
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class DataNames:
    """Which data mean what: a part of the options of data sets. `auto` finds data by their names; null takes none.

    Attributes:
        label: name of the labels among the data of vertices: classes, or zeros and ones `[n, C]`.
        features: name of the features.
        weight: name of the weights among the data of edges.
        masks: names of the masks, `{train: NAME, val: NAME, test: NAME}`; null finds `train_mask`, `val_mask`, ….
        mask: which column of masks with several columns is the split.
    """

    label: str | None = AUTO
    features: str | None = AUTO
    weight: str | None = AUTO
    masks: Mapping[str, str] | None = None
    mask: int = 0


def check_masks(masks: Mapping[str, str] | None) -> None:
    """Check the names of masks that a user gives.

    Raises:
        ConfigError: there is none, or one for something else than a split.
    """
    if masks is not None and not (masks and set(masks) <= {"train", "val", "test"}):
        raise ConfigError(
            Problem(
                "dataset.masks",
                dict(masks),
                "the names of train, val and test, or null",
                "set dataset.masks={train: train_mask, val: val_mask, test: test_mask}",
            )
        )


def arrays_of_graph(graph: dgl.DGLGraph) -> DglArrays:
    """The arrays of a graph in memory. Edges are in the order of their ids."""
    edges = []
    for types in graph.canonical_etypes:
        source, destination = graph.edges(order="eid", etype=types)
        edges.append(
            DglEdges(
                tuple(types),
                array_of_tensor(source),
                array_of_tensor(destination),
                {name: array_of_tensor(values) for name, values in graph.edges[types].data.items()},
            )
        )
    nodes = {
        kind: {name: array_of_tensor(values) for name, values in graph.nodes[kind].data.items()}
        for kind in graph.ntypes
    }
    return DglArrays({kind: graph.num_nodes(kind) for kind in graph.ntypes}, nodes, edges)


def array_of_tensor(values: torch.Tensor) -> np.ndarray:
    """A tensor as an array; numpy has no bfloat16."""
    found = values.detach().cpu()
    array: np.ndarray = (found.float() if found.dtype == torch.bfloat16 else found).numpy()
    return array


def foreign_of_arrays(arrays: DglArrays, data_names: DataNames, key: str) -> ForeignGraph:
    """The graph with features, labels, splits and weights.

    Args:
        arrays: the graph.
        data_names: which data mean what.
        key: file or object, for messages.

    Raises:
        DataError: data are missing, ambiguous, or have a wrong shape. Names all problems.
    """
    findings = Findings()
    nodes, kinds = arrays.nodes, _plain_types(arrays)
    features = findings.attempt(_chosen, "features", data_names.features, nodes, key) or {}
    labels = findings.attempt(_chosen, "label", data_names.label, nodes, key) or {}
    masks = findings.attempt(_masks, data_names, nodes, key) or {}
    data = {_shown(of_type.types): of_type.data for of_type in arrays.edges}
    weights = findings.attempt(_chosen, "weight", data_names.weight, data, key) or {}
    vertices, used = {}, {name: set[str]() for name in (*nodes, *data)}
    for kind, count in arrays.counts.items():
        own = nodes.get(kind, {})
        used[kind] |= {
            of_type for of_type in (features.get(kind), labels.get(kind), *masks.get(kind, {}).values()) if of_type
        }
        type_vertices = findings.attempt(
            _vertices,
            count,
            own,
            features.get(kind),
            labels.get(kind),
            masks.get(kind, {}),
            data_names.mask,
            f"{key}, vertices {kind}",
        )
        vertices[kinds[kind]] = type_vertices or ForeignVertices(count)
        if vertices[kinds[kind]].ids is not None:
            used[kind].add(ID)
    for name in data:
        used[name] |= {ID, weights.get(name, ID)}  # ids of edges have no use
    edges = _edges(arrays.edges, kinds, weights, key, findings)
    findings.raise_all()
    notes = [*_left_out(nodes, used, "vertices"), *_left_out(data, used, "edges"), *_reverses(arrays.edges)]
    return ForeignGraph(vertices, edges, notes)


def _edges(
    types: Sequence[DglEdges], kinds: Mapping[str, str], weights: Mapping[str, str], key: str, findings: Findings
) -> list[ForeignEdges]:
    """The edges of all types, with the weights that `weights` names by type of edges."""
    names, edges = _edge_names([of_type.types for of_type in types]), []
    for of_type in types:
        shown, (source, _, destination) = _shown(of_type.types), of_type.types
        weight, values = weights.get(shown), None
        if weight is not None:
            where = f"{key}, edges {shown}, {weight}"
            values = findings.attempt(_weights, of_type.data[weight], of_type.source.size, where)
        ends = (kinds[source], kinds[destination])
        edges.append(ForeignEdges(of_type.source, of_type.destination, names[of_type.types], ends, values))
    return edges


def _plain_types(arrays: DglArrays) -> dict[str, str]:
    """gnnexp's name of each type of vertices."""
    return {kind: VERTEX if kind == _ONE_TYPE and len(arrays.counts) == 1 else kind for kind in arrays.counts}


def _shown(types: tuple[str, str, str]) -> str:
    return ":".join(types)


def _edge_names(types: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """The relation of each type of edges, with the types of its ends where several have this relation."""
    seen = Counter(relation for _, relation, _ in types)
    return {
        one: EDGE if one[1] == _ONE_RELATION and len(types) == 1 else one[1] if seen[one[1]] == 1 else _shown(one)
        for one in types
    }


def _chosen(role: str, asked: str | None, data: Mapping[str, Mapping[str, object]], key: str) -> dict[str, str]:
    """The name of a role's data for each type that has them.

    Raises:
        DataError: `asked` is nowhere, or several usual names are there.
    """
    if asked is None:
        return {}
    if asked != AUTO:
        chosen = {kind: asked for kind, own in data.items() if asked in own}
        if not chosen:
            names = ", ".join(sorted({name for own in data.values() for name in own})) or "nothing"
            raise DataError(
                Problem(
                    f"dataset.{role}", asked, f"{key} has {names}", f"set dataset.{role} to one of them, or to null"
                )
            )
        return chosen
    return {kind: name for kind, own in data.items() if (name := _usual(role, USUAL[role], own, f"{key}, {kind}"))}


def _usual(role: str, names: Sequence[str], own: Iterable[str], key: str) -> str | None:
    """DGL's own name of a role, or the only other usual one.

    Raises:
        DataError: several usual names are there, and DGL's own name is not.
    """
    usual = [name for name in names if name in own]
    if len(usual) > 1 and usual[0] != names[0]:
        raise DataError(
            Problem(key, ", ".join(usual), f"{len(usual)} data may be the {role}", f"set dataset.{role}={usual[0]}")
        )
    return usual[0] if usual else None


def _masks(data_names: DataNames, data: Mapping[str, Mapping[str, object]], key: str) -> dict[str, dict[str, str]]:
    """The names of the masks by type and split."""
    if data_names.masks is None:
        return {
            kind: {
                split: name for split, names in MASKS.items() if (name := _usual("masks", names, own, f"{key}, {kind}"))
            }
            for kind, own in data.items()
        }
    known = {name for own in data.values() for name in own}
    problems = [
        Problem(
            f"dataset.masks.{split}",
            name,
            f"{key} has {', '.join(sorted(known)) or 'nothing'}",
            "set dataset.masks={train: NAME, val: NAME, test: NAME}",
        )
        for split, name in data_names.masks.items()
        if name not in known
    ]
    DataError.raise_all(problems)
    return {
        kind: {split: name for split, name in data_names.masks.items() if name in own} for kind, own in data.items()
    }


def _vertices(
    count: int,
    own: Mapping[str, np.ndarray],
    features: str | None,
    label: str | None,
    masks: Mapping[str, str],
    column: int,
    key: str,
) -> ForeignVertices:
    used = [name for name in (features, label, *masks.values()) if name]
    DataError.raise_all(
        [
            Problem(f"{key}, {name}", list(own[name].shape), f"must have {count} rows", "save the graph again")
            for name in used
            if own[name].shape[:1] != (count,)
        ]
    )
    splits = {split: _mask(own[name], column, f"{key}, {name}") for split, name in masks.items()}
    return ForeignVertices(
        count,
        None if features is None else _rows_of(own[features], f"{key}, {features}"),
        None if label is None else class_numbers(own[label], f"{key}, {label}"),
        splits,
        ids=_ids(own.get(ID), count),
    )


def _rows_of(values: np.ndarray, key: str) -> np.ndarray:
    """`[n, D]` float32 features of values `[n, ...]`.

    Raises:
        DataError: they are no real numbers.
    """
    if values.dtype.kind not in "biuf":
        raise DataError(Problem(key, str(values.dtype), "features must be real numbers", "choose dataset.features"))
    return values.reshape(values.shape[0], int(np.prod(values.shape[1:]))).astype(np.float32, copy=False)


def class_numbers(values: np.ndarray, key: str) -> np.ndarray:
    """`[n]` int64 classes (-1 = no label), `[n, C]` float32 zeros and ones, or `[n]` float32 real targets.

    Raises:
        DataError: labels have another shape, or are no real numbers.
    """
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim not in (1, 2) or values.dtype.kind not in "biuf":
        raise DataError(
            Problem(
                key,
                f"{values.dtype} {list(values.shape)}",
                "labels must be classes [n], or zeros and ones [n, C]",
                "choose dataset.label",
            )
        )
    if values.ndim == 2:
        return values.astype(np.float32)
    if values.dtype.kind == "f":
        known = values[~np.isnan(values)]
        if not (np.isfinite(known).all() and (known == np.floor(known)).all() and (np.abs(known) < 2**53).all()):
            return values.astype(np.float32)
        values = np.where(np.isnan(values), -1, values)
    elif values.dtype.kind == "u":
        values = np.minimum(values, np.uint64(2**62))  # no class is as large; `class_count` says so
    classes: np.ndarray = np.maximum(values.astype(np.int64), -1)
    return classes


def _mask(values: np.ndarray, column: int, key: str) -> np.ndarray:
    """`[n]` bool."""
    if values.ndim == 2:
        if not 0 <= column < values.shape[1]:
            raise DataError(
                Problem(
                    "dataset.mask", column, f"{key} has the columns 0 to {values.shape[1] - 1}", "set dataset.mask=0"
                )
            )
        values = values[:, column]
    if values.ndim != 1 or not np.isin(values, (0, 1)).all():
        raise DataError(
            Problem(
                key,
                f"{values.dtype} {list(values.shape)}",
                "a mask has a 0 or 1 for each vertex",
                "correct dataset.masks, or set dataset.split=random",
            )
        )
    return values.astype(bool)


def _ids(values: np.ndarray | None, count: int) -> np.ndarray | None:
    """Ids in the graph that this one is a part of, if each is there once."""
    if values is None or values.shape != (count,) or values.dtype.kind not in "iu":
        return None
    return values if np.unique(values).size == count else None


def _weights(values: np.ndarray, count: int, key: str) -> np.ndarray:
    if values.size != count or values.dtype.kind not in "biuf":
        raise DataError(
            Problem(
                key,
                f"{values.dtype} {list(values.shape)}",
                f"must be {count} numbers",
                "set dataset.weight=null, or to other data",
            )
        )
    return values.reshape(count).astype(np.float32)


def _left_out(data: Mapping[str, Mapping[str, object]], used: Mapping[str, set[str]], what: str) -> list[str]:
    """A note for each type with data that gnnexp does not use."""
    return [
        f"data of the {what} {kind} that are not used: {', '.join(left)}"
        for kind, own in data.items()
        if (left := [name for name in own if name not in used[kind]])
    ]


def _reverses(edges: Sequence[DglEdges]) -> list[str]:
    """A note if each type of edges between different types or names has its reverse in the file.

    gnnexp would add the reverses again, with types of their own.
    """
    pairs = [
        (first, other)
        for place, first in enumerate(edges)
        for other in edges[place + 1 :]
        if first.types[0] == other.types[2]
        and first.types[2] == other.types[0]
        and np.array_equal(first.source, other.destination)
        and np.array_equal(first.destination, other.source)
    ]
    if not pairs:
        return []
    said = ", ".join(f"{other.types[1]} of {first.types[1]}" for first, other in pairs)
    return [f"the file has reverse edges already: {said}; set dataset.symmetrize=false, or gnnexp adds them again"]
