"""Graphs with attributes: those of vertices become features, classes and splits; one of edges is the weight.

They come from NetworkX or from a file (`graph_files`). Names of vertices are kept as ids. Vertices have one type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnexp.datasets.formats.attribute_values import (
    MASKS,
    SHOWN,
    Attributes,
    are_split_words,
    attribute_features,
    attribute_labels,
    attribute_numbers,
    attribute_splits,
    attribute_weights,
    attributes_of,
    has_repeated,
    ids_of,
    num_distinct,
    whole_numbers,
)
from gnnexp.datasets.formats.foreign import EDGE, VERTEX, ForeignEdges, ForeignGraph, ForeignVertices
from gnnexp.datasets.formats.graph_files.attributed import AttributedGraph
from gnnexp.datasets.tables.features import FeatureForm
from gnnexp.datasets.tables.roles import AUTO, NAMES, plain
from gnnexp.datasets.tables.scaling import Empty
from gnnexp.errors import DataError, Findings, Problem

if TYPE_CHECKING:
    import networkx as nx


@dataclass(kw_only=True, eq=False)
class AttributeOptions:
    """Which attributes mean what. One that is `auto` is found by its name; `null` means that there is none.

    Attributes `train_mask`, `val_mask` and `test_mask` are a split.

    Attributes:
        label: attribute of vertices with classes: names or whole numbers, or lists of 0 and 1.
        features: attributes of vertices with numbers, or lists of numbers of one length; `auto` = all of these.
        categories: attributes of vertices of which each value becomes a feature (one-hot).
        weight: attribute of edges with weights; edges without it have 1.
        split_column: attribute of vertices with words such as `train`; also `train_mask`, `val_mask`, `test_mask`.
        empty: what replaces missing numbers: `error` refuses them, `mean` of the attribute, `zero`.
        standardize: give each attribute of numbers the mean 0 and the standard deviation 1, over all vertices.
    """

    label: str | None = AUTO
    features: list[str] | str | None = AUTO
    categories: list[str] = field(default_factory=list)
    weight: str | None = AUTO
    split_column: str | None = AUTO
    empty: Empty = "error"
    standardize: bool = False


def foreign_of_networkx(
    graph: nx.Graph[Any],
    *,
    label: str | None = None,
    features: Sequence[str] | None = None,
    weight: str | None = None,
    both_directions: bool = True,
) -> ForeignGraph:
    """The arrays of a graph of NetworkX; see `foreign_of`. `features=None` takes all attributes of numbers."""
    columns = AUTO if features is None else list(features)
    options = AttributeOptions(label=label, features=columns, weight=weight, split_column=None)
    return foreign_of(attributed(graph), options, both_directions=both_directions)


def attributed(graph: nx.Graph[Any]) -> AttributedGraph:
    """A graph of NetworkX as gnnexp has graphs of files. Parallel edges of multigraphs are kept."""
    number = {name: place for place, name in enumerate(graph.nodes)}
    rows = list(graph.edges(data=True))
    kind = f"NetworkX {'directed' if graph.is_directed() else 'undirected'} {'multi' * graph.is_multigraph()}graph"
    return AttributedGraph(
        kind,
        list(number),
        [{str(name): value for name, value in data.items()} for _, data in graph.nodes(data=True)],
        np.array([(number[u], number[v]) for u, v, _ in rows], np.int64).reshape(-1, 2),
        np.full(len(rows), graph.is_directed()),
        [{name: value for name, value in data.items() if isinstance(name, str)} for *_, data in rows],
    )


def foreign_of(graph: AttributedGraph, options: AttributeOptions, *, both_directions: bool) -> ForeignGraph:
    """The arrays of a graph. Parallel edges are kept.

    Args:
        graph: names, attributes and edges.
        options: which attributes mean what.
        both_directions: whether an edge without a direction is there in both directions, or once. If parallel edges
            are merged, both must be there: then it does not matter which end comes first.

    Raises:
        DataError: a vertex or an edge lacks a value, or values do not fit their meaning. Names vertices.
    """
    names, attributes = graph.names, attributes_of(graph.vertices)
    form = FeatureForm(options.categories, options.empty, options.standardize)
    features = _features_asked(options)
    _refuse_unknown(
        attributes,
        {
            "label": [options.label],
            "features": features or (),
            "split_column": [options.split_column],
            "categories": form.categories,
        },
    )
    label = _attribute_of_role(graph, attributes, "label", options.label)
    split = _attribute_of_role(graph, attributes, "split", options.split_column)
    splits = attribute_splits(attributes, split, names)
    roles = {label, split, *form.categories, *(MASKS if splits else ())}
    if features is None:
        columns = _numbers(attributes, [name for name in attributes if name not in roles and name not in graph.display])
    else:
        attributes |= {name: whole_numbers(attributes[name]) for name in features}
        columns = _numbers(attributes, features)
        _refuse_other_values(attributes, [name for name in features if name not in columns])
    findings = Findings()
    labels, classes = (label and findings.attempt(attribute_labels, label, attributes[label])) or (None, [])
    rows = findings.attempt(attribute_features, columns, attributes, form, names)
    links = findings.attempt(_edges, graph, options.weight, both_directions=both_directions)
    findings.raise_all()
    assert links is not None
    edges, edge_notes = links
    vertices = ForeignVertices(len(names), rows, labels, splits, classes, ids_of(names))
    parts = [f"{role}={name}" for role, name in (("label", label), ("split", split)) if name]
    parts += [f"features={', '.join(columns)}"] if columns else []
    parts += [f"categories={', '.join(form.categories)}"] if form.categories else []
    left = [
        f"{name} ({num_distinct(values)} values{', for display' * (name in graph.display)})"
        for name, values in attributes.items()
        if name not in columns and name not in roles
    ]
    parts += [f"not used: {', '.join(left[:SHOWN])}"] if left else []
    first = f"{graph.kind}: {'; '.join(parts)}" if parts else graph.kind
    return ForeignGraph({VERTEX: vertices}, [edges], [first, *graph.notes, *edge_notes])


def _features_asked(options: AttributeOptions) -> list[str] | None:
    """The attributes that are to be features; None: all of numbers."""
    if isinstance(options.features, str):
        return None if options.features == AUTO else [options.features]
    return list(options.features or ())


def _numbers(attributes: Attributes, names: Iterable[str]) -> dict[str, np.ndarray]:
    """`[n, w]` of each attribute that has numbers."""
    count = len(next(iter(attributes.values()), ()))
    return {name: numbers for name in names if (numbers := attribute_numbers(attributes[name], count)) is not None}


def _refuse_other_values(attributes: Attributes, names: Iterable[str]) -> None:
    DataError.raise_all(
        [
            Problem(
                f"vertices, attribute {name}",
                next((str(value)[:60] for value in attributes[name] if value is not None), None),
                "is no number, and no list of numbers of one length",
                f"set dataset.categories=[{name}], or make numbers of it",
            )
            for name in names
        ]
    )


def _refuse_unknown(attributes: Attributes, asked: Mapping[str, Iterable[str | None]]) -> None:
    DataError.raise_all(
        [
            Problem(
                f"dataset.{key}",
                name,
                f"no vertex has this attribute; attributes are {', '.join(attributes) or 'none'}",
                f"set dataset.{key} to one of them",
            )
            for key, names in asked.items()
            for name in names
            if name not in (None, AUTO) and name not in attributes
        ]
    )


def _attribute_of_role(graph: AttributedGraph, attributes: Attributes, role: str, asked: str | None) -> str | None:
    """The attribute of a role; None if no attribute can be meant. Those for display are never meant.

    Raises:
        DataError: several may be meant.
    """
    if asked != AUTO:
        return asked
    fits = has_repeated if role == "label" else are_split_words
    candidates = [
        name
        for name, values in attributes.items()
        if name not in graph.display and plain(name) in NAMES[role] and fits(values)
    ]
    if len(candidates) > 1:
        raise DataError(
            Problem(
                "vertices",
                candidates,
                f"{len(candidates)} attributes may be the {role}",
                f"set dataset.{role if role == 'label' else 'split_column'}=ATTRIBUTE",
            )
        )
    return candidates[0] if candidates else None


def _edges(graph: AttributedGraph, weight: str | None, *, both_directions: bool) -> tuple[ForeignEdges, list[str]]:
    """All edges, and notes."""
    known = dict.fromkeys(name for data in graph.edges for name in data)
    if weight == AUTO:
        candidates = [name for name in known if plain(name) in NAMES["weight"]]
        if len(candidates) > 1:
            raise DataError(
                Problem(
                    "edges", candidates, "several attributes may be the weight", "set dataset.weight=ATTRIBUTE, or null"
                )
            )
        weight = candidates[0] if candidates else None
    elif weight is not None and weight not in known:
        raise DataError(
            Problem(
                "dataset.weight",
                weight,
                f"no edge has this attribute; attributes are {', '.join(known) or 'none'}",
                "set dataset.weight=null",
            )
        )
    ends = graph.ends
    weights, notes = (None, []) if weight is None else attribute_weights(graph, weight)
    left = [name for name in known if name != weight]
    notes += [f"attributes of edges that are not used: {', '.join(left[:SHOWN])}"] if left else []
    if both_directions and not graph.directed.all():
        other = ~graph.directed & (ends[:, 0] != ends[:, 1])
        ends = np.concatenate([ends, ends[other, ::-1]])
        weights = None if weights is None else np.concatenate([weights, weights[other]])
    return ForeignEdges(ends[:, 0], ends[:, 1], EDGE, weight=weights), notes
