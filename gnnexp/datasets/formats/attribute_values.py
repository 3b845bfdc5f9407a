"""Values of attributes of vertices and edges as arrays: ids, numbers, features, classes, splits, weights."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.formats.foreign import Matrix
from gnnexp.datasets.formats.graph_files.attributed import AttributedGraph
from gnnexp.datasets.reading.features import one_hot_columns
from gnnexp.datasets.tables.features import FeatureForm
from gnnexp.datasets.tables.scaling import scaled_features
from gnnexp.datasets.tables.scan import LARGEST
from gnnexp.datasets.tables.vertices import SPLIT_WORDS
from gnnexp.errors import DataError, Problem
from gnnexp.graph.storage.layout import SPLITS

MASKS = {"train_mask": "train", "val_mask": "val", "valid_mask": "val", "test_mask": "test"}
SHOWN = 20
_CELL = 40  # bytes of memory for an attribute of a vertex
_NUMBERS = (bool, int, float, np.number, np.bool_)
_INTEGER = re.compile(r"0|-?[1-9]\d{0,300}", re.ASCII)
Attributes = Mapping[str, list[Any]]


def attributes_of(rows: Sequence[Mapping[Any, Any]]) -> dict[str, list[Any]]:
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


def has_repeated(values: Sequence[Any]) -> bool:
    """Whether values repeat: a `label` of GEXF and GraphML is often a name of each vertex."""
    present = [value for value in values if value is not None]
    return len(present) <= 2 or num_distinct(present) < len(present)


def are_split_words(values: Sequence[Any]) -> bool:
    """Whether all values are words of a split."""
    return all(value is None or str(value).strip().lower() in SPLIT_WORDS for value in values)


def num_distinct(values: Sequence[Any]) -> int:
    """Number of different values, as texts."""
    return len({str(value) for value in values if value is not None})


def ids_of(names: Sequence[Any]) -> np.ndarray:
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
        again = next(name for name, count in Counter(texts).items() if count > 1)
        raise DataError(
            Problem(
                "vertices",
                again,
                "is the name of two vertices, as a text",
                "give each a name of its own (networkx.relabel_nodes)",
            )
        )
    return texts


def whole_numbers(values: list[Any]) -> list[Any]:
    """Integers for texts that are integers as Python prints them; other values as they are.

    NetworkX writes integers beyond 32 bits as texts into GML.
    """
    return [int(one) if isinstance(one, str) and _INTEGER.fullmatch(one) else one for one in values]


def attribute_numbers(values: Sequence[Any], count: int) -> np.ndarray | None:
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


def attribute_features(
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
                for row, column in places[:SHOWN].tolist()
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
                    for row in missing[:SHOWN].tolist()
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


def attribute_labels(name: str, values: Sequence[Any]) -> tuple[np.ndarray, list[str]]:
    """`[n]` classes and their names, or `[n, C]` of 0 and 1. No value, an empty text and -1 mean no label.

    Raises:
        DataError: numbers have fractions, or a list has other values than 0 and 1.
    """
    key = f"vertices, attribute {name}"
    several = [value for value in values if isinstance(value, list | tuple | np.ndarray)]
    if several:
        rows = attribute_numbers(
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


def attribute_splits(attributes: Attributes, split: str | None, names: Sequence[Any]) -> dict[str, np.ndarray]:
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
                for row in wrong[:SHOWN]
            ]
        )
        return {part: np.array([SPLIT_WORDS.get(word) == part for word in words]) for part in SPLITS}
    masks = {
        part: np.array([bool(value) for value in attributes[name]])
        for name, part in MASKS.items()
        if name in attributes
        and all(value is None or (isinstance(value, _NUMBERS) and value in (0, 1)) for value in attributes[name])
    }
    empty = np.zeros(len(names), np.bool_)
    return {part: masks.get(part, empty) for part in SPLITS} if "train" in masks else {}


def attribute_weights(graph: AttributedGraph, weight: str) -> tuple[np.ndarray, list[str]]:
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
    ends = [[graph.names[end] for end in graph.ends[place]] for place in wrong[:SHOWN].tolist()]
    DataError.raise_all(
        [
            Problem(
                f"edge {source} - {destination}, attribute {weight}",
                str(values[place])[:60],
                f"is no finite number; {wrong.size} weights are wrong",
                "correct the weight, or set dataset.weight=null",
            )
            for place, (source, destination) in zip(wrong[:SHOWN].tolist(), ends, strict=True)
        ]
    )
    missing = sum(value is None for value in values)
    notes = [f"weight={weight}" + (f"; {missing} edges without it have 1" if missing else "")]
    return weights, notes
