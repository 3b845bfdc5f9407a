"""Graphs with attributes: those of vertices become features, classes and splits; one of edges is the weight.

They come from NetworkX or from a file (`graph_files`). Names of vertices are kept as ids. Vertices have one type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.formats.foreign import EDGE, VERTEX, ForeignEdges, ForeignGraph, ForeignVertices, Matrix
from gnnexp.datasets.formats.graph_files.attributed import AttributedGraph
from gnnexp.datasets.reading.features import one_hot_columns
from gnnexp.datasets.tables.engine import LARGEST
from gnnexp.datasets.tables.features import FeatureForm
from gnnexp.datasets.tables.roles import AUTO, NAMES, plain
from gnnexp.datasets.tables.scaling import scaled_features
from gnnexp.datasets.tables.vertices import SPLIT_WORDS
from gnnexp.errors import DataError, Findings, Problem

if TYPE_CHECKING:
    import networkx as nx

MASKS = {"train_mask": "train", "val_mask": "val", "valid_mask": "val", "test_mask": "test"}
_SHOWN = 20
_CELL = 40  # bytes of memory for an attribute of a vertex
_NUMBERS = (bool, int, float, np.number, np.bool_)
_INTEGER = re.compile(r"0|-?[1-9]\d{0,300}", re.ASCII)
_AS_IT_IS = FeatureForm((), "error", standardize=False)
Attributes = Mapping[str, list[Any]]


def foreign_of_networkx(
    graph: nx.Graph[Any],
    *,
    label: str | None = None,
    features: Sequence[str] | None = None,
    weight: str | None = None,
    split: str | None = None,
    form: FeatureForm = _AS_IT_IS,
    both_directions: bool = True,
) -> ForeignGraph:
    """The arrays of a graph of NetworkX; see `foreign_of`."""
    return foreign_of(
        attributed(graph),
        label=label,
        features=features,
        weight=weight,
        split=split,
        form=form,
        both_directions=both_directions,
    )


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


def foreign_of(
    graph: AttributedGraph,
    *,
    label: str | None = None,
    features: Sequence[str] | None = None,
    weight: str | None = None,
    split: str | None = None,
    form: FeatureForm = _AS_IT_IS,
    both_directions: bool = True,
) -> ForeignGraph:
    """The arrays of a graph. Parallel edges are kept.

    An attribute that is `auto` is found by its name. Attributes `train_mask`, `val_mask` and `test_mask` are a split.

    Args:
        graph: names, attributes and edges.
        label: attribute of vertices with classes: names or whole numbers, or lists of 0 and 1; None = no classes.
        features: attributes of vertices with numbers, or with lists of numbers of one length; None = all of these.
        weight: attribute of edges; edges without it have the weight 1. None = no weights.
        split: attribute of vertices with words such as `train`, or None.
        form: attributes that become one feature for each value, and what replaces missing numbers.
        both_directions: whether an edge without a direction is there in both directions, or once. If parallel edges
            are merged, both must be there: then it does not matter which end comes first.

    Raises:
        DataError: a vertex or an edge lacks a value, or values do not fit their meaning. Names vertices.
    """
    names, attributes = graph.names, _attributes(graph.vertices)
    _refuse_unknown(
        attributes,
        {"label": [label], "features": features or (), "split_column": [split], "categories": form.categories},
    )
    label, split = _found(graph, attributes, "label", label), _found(graph, attributes, "split", split)
    splits = _splits(attributes, split, names)
    roles = {label, split, *form.categories, *(MASKS if splits else ())}
    chosen = (
        [name for name in attributes if name not in roles and name not in graph.display]
        if features is None
        else list(features)
    )
    if features is not None:
        attributes |= {name: _whole_numbers(attributes[name]) for name in chosen}
    columns = {name: numbers for name in chosen if (numbers := _numbers(attributes[name], len(names))) is not None}
    if features is not None and len(columns) < len(chosen):
        raise DataError(
            [
                Problem(
                    f"vertices, attribute {name}",
                    _first(attributes[name]),
                    "is no number, and no list of numbers of one length",
                    f"set dataset.categories=[{name}], or make numbers of it",
                )
                for name in chosen
                if name not in columns
            ]
        )
    findings = Findings()
    labels, classes = (label and findings.attempt(_labels, label, attributes[label])) or (None, [])
    rows = findings.attempt(_features, columns, attributes, form, names)
    links = findings.attempt(_edges, graph, weight, both_directions=both_directions)
    findings.raise_all()
    assert links is not None
    edges, edge_notes = links
    vertices = ForeignVertices(len(names), rows, labels, splits, classes, _ids(names))
    parts = [f"{role}={name}" for role, name in (("label", label), ("split", split)) if name]
    parts += [f"features={', '.join(columns)}"] if columns else []
    parts += [f"categories={', '.join(form.categories)}"] if form.categories else []
    left = [
        f"{name} ({_distinct(values)} values{', for display' * (name in graph.display)})"
        for name, values in attributes.items()
        if name not in columns and name not in roles
    ]
    parts += [f"not used: {', '.join(left[:_SHOWN])}"] if left else []
    first = f"{graph.kind}: {'; '.join(parts)}" if parts else graph.kind
    return ForeignGraph({VERTEX: vertices}, [edges], [first, *graph.notes, *edge_notes])


def _attributes(rows: Sequence[Mapping[Any, Any]]) -> dict[str, list[Any]]:
    """`[n]` values of each attribute, None where it is missing.

    Raises:
        DataError: there are more attributes than fit in memory, because vertices have different ones.
    """
    names = dict.fromkeys(str(name) for data in rows for name in data)
    # A list of values, and the rows of features in double and in single precision.
    check_memory(_CELL * len(names) * len(rows), f"{len(names)} attributes of {len(rows)} vertices")
    attributes: dict[str, list[Any]] = {name: [None] * len(rows) for name in names}
    for row, data in enumerate(rows):
        for name, value in data.items():
            attributes[str(name)][row] = value
    return attributes


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


def _found(graph: AttributedGraph, attributes: Attributes, role: str, asked: str | None) -> str | None:
    """The attribute of a role; None if no attribute can be meant. Those for display are never meant.

    Raises:
        DataError: several may be meant.
    """
    if asked != AUTO:
        return asked
    fits = _may_be_classes if role == "label" else _are_split_words
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


def _may_be_classes(values: Sequence[Any]) -> bool:
    """Whether values repeat: a `label` of GEXF and GraphML is often a name of each vertex."""
    present = [one for one in values if one is not None]
    return len(present) <= 2 or _distinct(present) < len(present)


def _are_split_words(values: Sequence[Any]) -> bool:
    return all(one is None or str(one).strip().lower() in SPLIT_WORDS for one in values)


def _distinct(values: Sequence[Any]) -> int:
    return len({str(one) for one in values if one is not None})


def _first(values: Sequence[Any]) -> object:
    return next((str(one)[:60] for one in values if one is not None), None)


# --- vertices ---------------------------------------------------------------------------------------------------------
def _ids(names: Sequence[Any]) -> np.ndarray:
    """`[n]` int64 if all names are whole numbers, else texts.

    Raises:
        DataError: two names are the same text.
    """
    if all(
        isinstance(name, int | np.integer) and not isinstance(name, bool) and -(2**63) <= name < 2**63 for name in names
    ):
        return np.array(names, np.int64)
    texts = np.array([str(name) for name in names], object)
    if len(set(texts)) < len(names):
        seen: set[str] = set()
        again = next(name for name in texts if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DataError(
            Problem(
                "vertices",
                again,
                "is the name of two vertices, as a text",
                "give each a name of its own (networkx.relabel_nodes)",
            )
        )
    return texts


def _whole_numbers(values: list[Any]) -> list[Any]:
    """Integers for texts that are integers as Python prints them; other values as they are.

    NetworkX writes integers beyond 32 bits as texts into GML.
    """
    return [int(one) if isinstance(one, str) and _INTEGER.fullmatch(one) else one for one in values]


def _numbers(values: Sequence[Any], count: int) -> np.ndarray | None:
    """`[n, w]` float64, NaN where a value is missing; None if they are no numbers and no lists of one length."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, _NUMBERS) for value in present):
        return np.array([np.nan if value is None else float(min(max(value, -1e300), 1e300)) for value in values])[
            :, None
        ]
    if not present or not all(isinstance(value, list | tuple | np.ndarray) for value in present):
        return None
    width = len(present[0])
    if not width or not all(
        len(value) == width and all(isinstance(item, _NUMBERS) for item in value) for value in present
    ):
        return None
    check_memory(8 * count * width, f"features {count} x {width}")
    return np.array([[np.nan] * width if value is None else [float(item) for item in value] for value in values])


def _features(
    columns: Mapping[str, np.ndarray], attributes: Attributes, form: FeatureForm, names: Sequence[Any]
) -> Matrix | None:
    """`[n, D]`: numbers first, then a column for each value of a category; sparse with categories."""
    blocks: list[Matrix] = []
    if columns:
        rows = np.concatenate(list(columns.values()), 1)
        wrong = np.abs(rows) > LARGEST if form.empty != "error" else ~(np.abs(rows) <= LARGEST)
        owner = np.repeat(list(columns), [block.shape[1] for block in columns.values()])
        places = np.argwhere(wrong)
        DataError.raise_all(
            [
                Problem(
                    f"vertex {names[row]}, attribute {owner[column]}",
                    None,
                    f"is no finite number; {len(places)} values are wrong",
                    "give the value, set dataset.empty=mean or zero, or leave the attribute out of dataset.features",
                )
                for row, column in places[:_SHOWN].tolist()
            ]
        )
        blocks.append(scaled_features(rows, form.empty, standardize=form.standardize))
    for name in form.categories:
        texts = np.array(["" if block is None else str(block) for block in attributes[name]], object)
        missing = np.flatnonzero(texts == "")
        if missing.size and form.empty == "error":
            raise DataError(
                [
                    Problem(
                        f"vertex {names[row]}, attribute {name}",
                        None,
                        f"is missing; {missing.size} values are wrong",
                        "give the value, or set dataset.empty=zero",
                    )
                    for row in missing[:_SHOWN].tolist()
                ]
            )
        codes = one_hot_columns(texts[:, None])
        blocks.append(codes[:, 1:] if missing.size else codes)  # the empty text comes first
    if len(blocks) == 1:
        return blocks[0]
    return (
        scipy.sparse.csr_array(scipy.sparse.hstack([scipy.sparse.csr_array(block) for block in blocks], format="csr"))
        if blocks
        else None
    )


def _labels(name: str, values: Sequence[Any]) -> tuple[np.ndarray, list[str]]:
    """`[n]` classes and their names, or `[n, C]` of 0 and 1. No value, an empty text and -1 mean no label.

    Raises:
        DataError: numbers have fractions, or a list has other values than 0 and 1.
    """
    key = f"vertices, attribute {name}"
    several = [value for value in values if isinstance(value, list | tuple | np.ndarray)]
    if several:
        rows = _numbers(
            [value if isinstance(value, list | tuple | np.ndarray) else None for value in values], len(values)
        )
        if rows is None or not np.isin(rows[~np.isnan(rows)], (0, 1)).all():
            raise DataError(
                Problem(
                    key,
                    str(several[0])[:60],
                    "lists of classes must have 0 or 1 for each class",
                    "set dataset.label to another attribute",
                )
            )
        return rows, []
    plain_values = [_label(value) for value in values]
    known = {value for value in plain_values if value is not None}
    broken = [value for value in known if isinstance(value, float)]
    if broken:
        raise DataError(
            Problem(key, broken[0], "classes must be names or whole numbers", "set dataset.label to another attribute")
        )
    whole = all(isinstance(value, int) for value in known)
    classes = sorted(known) if whole else sorted({str(value) for value in known})
    number = {value: place for place, value in enumerate(classes)}
    labels = [-1 if value is None else number[value if whole else str(value)] for value in plain_values]
    return np.array(labels, np.int64), [str(value) for value in classes]


def _label(value: Any) -> str | int | float | None:  # noqa: ANN401
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return None if value == -1 else int(value)
    if isinstance(value, float | np.floating):
        if np.isnan(value) or value == -1:
            return None
        return int(value) if float(value).is_integer() else float(value)
    return None if value is None or str(value) == "" else str(value)


def _splits(attributes: Attributes, split: str | None, names: Sequence[Any]) -> dict[str, np.ndarray]:
    """`[n]` bool for each split; empty if there is none.

    Raises:
        DataError: the attribute has other words.
    """
    if split is not None:
        words = ["" if value is None else str(value).strip().lower() for value in attributes[split]]
        wrong = [row for row, word in enumerate(words) if word and word not in SPLIT_WORDS]
        DataError.raise_all(
            [
                Problem(
                    f"vertex {names[row]}, attribute {split}",
                    words[row][:60],
                    f"{len(wrong)} words are wrong; words of a split are {', '.join(SPLIT_WORDS)}",
                    "set dataset.split_column=null",
                )
                for row in wrong[:_SHOWN]
            ]
        )
        return {part: np.array([SPLIT_WORDS.get(word) == part for word in words]) for part in ("train", "val", "test")}
    masks = {
        part: np.array([bool(value) for value in attributes[name]])
        for name, part in MASKS.items()
        if name in attributes
        and all(value is None or (isinstance(value, _NUMBERS) and value in (0, 1)) for value in attributes[name])
    }
    empty = np.zeros(len(names), np.bool_)
    return {part: masks.get(part, empty) for part in ("train", "val", "test")} if "train" in masks else {}


# --- edges ------------------------------------------------------------------------------------------------------------
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
    weights, notes = (None, []) if weight is None else _weights(graph, weight)
    left = [name for name in known if name != weight]
    notes += [f"attributes of edges that are not used: {', '.join(left[:_SHOWN])}"] if left else []
    if both_directions and not graph.directed.all():
        other = ~graph.directed & (ends[:, 0] != ends[:, 1])
        ends = np.concatenate([ends, ends[other, ::-1]])
        weights = None if weights is None else np.concatenate([weights, weights[other]])
    return ForeignEdges(ends[:, 0], ends[:, 1], EDGE, weight=weights), notes


def _weights(graph: AttributedGraph, weight: str) -> tuple[np.ndarray, list[str]]:
    """`[E]`, 1 for edges without the attribute, as NetworkX's algorithms take it.

    Raises:
        DataError: a weight is no finite number.
    """
    values = [data.get(weight) for data in graph.edges]
    weights = np.ones(len(values), np.float64)
    for place, value in enumerate(values):
        try:
            weights[place] = 1 if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            weights[place] = np.nan
    wrong = np.flatnonzero(~np.isfinite(weights.astype(np.float32)))
    ends = [[graph.names[end] for end in graph.ends[place]] for place in wrong[:_SHOWN].tolist()]
    DataError.raise_all(
        [
            Problem(
                f"edge {source} - {destination}, attribute {weight}",
                str(values[place])[:60],
                f"is no finite number; {wrong.size} weights are wrong",
                "correct the weight, or set dataset.weight=null",
            )
            for place, (source, destination) in zip(wrong[:_SHOWN].tolist(), ends, strict=True)
        ]
    )
    missing = sum(value is None for value in values)
    notes = [f"weight={weight}" + (f"; {missing} edges without it have 1" if missing else "")]
    return weights, notes
