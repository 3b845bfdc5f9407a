"""Columns of a table of vertices: labels, features and splits."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine, Table, TextForm, quoted
from gnnexp.errors import DataError, Problem

_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "BOOLEAN", "HUGEINT",
          "UBIGINT")
_REAL = ("FLOAT", "DOUBLE")
SPLIT_WORDS = {"train": "train", "training": "train", "tr": "train", "val": "val", "valid": "val",
               "validation": "val", "dev": "val", "test": "test", "testing": "test", "te": "test"}


@dataclass(frozen=True)
class VertexColumns:
    """A table with a row for each vertex of a type, and the meaning of its columns.

    Attributes:
        name: the type.
        table: the table.
        id: column of ids.
        label: column of classes, or None.
        split: column with words such as `train`, or None.
        features: columns of numbers, or of lists of numbers.
        categories: columns of which each value becomes a feature.
    """

    name: str
    table: Table
    id: str
    label: str | None
    split: str | None
    features: tuple[str, ...]
    categories: tuple[str, ...]
    @property
    def used(self) -> set[str]:
        """Columns that have a meaning."""
        alone = {name for name in (self.id, self.label, self.split) if name is not None}
        return alone | {*self.features, *self.categories}


class Labels(NamedTuple):
    """Classes of vertices.

    Attributes:
        values: `[V]` int64, -1 for no label.
        classes: name of each class.
    """

    values: np.ndarray
    classes: list[str]


def numeric(table: Table, names: list[str]) -> list[str]:
    """The columns that have numbers, or lists of numbers."""
    kinds = {name: re.sub(r"\[\d*\]$|\(.*\)$", "", table.types[name]) for name in names}
    return [name for name, kind in kinds.items() if kind in (*_WHOLE, *_REAL, "DECIMAL")]


def read_labels(engine: Engine, columns: VertexColumns) -> Labels:
    """Classes are names, or whole numbers; an empty cell and the number -1 mean no label.

    Whole numbers from 0 on without gaps stay as they are. Other classes are numbered in ascending order.

    Raises:
        DataError: numbers have fractions.
    """
    assert columns.label is not None
    table, name = columns.table, quoted(columns.label)
    kind = table.types[columns.label]
    if kind in _REAL:
        broken = engine.rows(f"SELECT count(*) FROM {table.name} WHERE {name} <> floor({name}) OR isinf({name})", table)
        if broken[0][0]:
            raise DataError(Problem(f"{table.files.shown}, column {columns.label}", f"{broken[0][0]} fractions",
                                    "classes must be names or whole numbers", "set dataset.label to another column"))
        name = f"(CASE WHEN isnan({name}) THEN NULL ELSE {name} END)::BIGINT"
    if kind in (*_WHOLE, *_REAL) and kind != "BOOLEAN":
        name = f"nullif({name}::BIGINT, -1)"
    made = engine.keep(f"SELECT {name} AS class, row_number() OVER () - 1 AS row FROM {table.name}", table)
    found = [row[0] for row in engine.rows(f"SELECT DISTINCT class FROM {made} WHERE class IS NOT NULL ORDER BY class",
                                           table)]
    classes = engine.keep(f"SELECT class, row_number() OVER (ORDER BY class) - 1 AS number FROM "
                          f"(SELECT DISTINCT class FROM {made} WHERE class IS NOT NULL)", table)
    batches = engine.batches(f"SELECT coalesce(c.number, -1) FROM {made} m LEFT JOIN {classes} c USING (class) "
                             "ORDER BY m.row", table)
    values = np.concatenate([np.empty(0, np.int64), *(batch.column(0).to_numpy() for batch in batches)])
    return Labels(values, [str(one) for one in found])


def first_word(path: Path) -> str:
    """The first letters of a file's name, in lower case: `train` of `train-00000-of-00002.parquet`."""
    found = re.match(r"[a-z]+", path.name.lower())
    return found[0] if found else ""


def splits_of_files(engine: Engine, columns: VertexColumns, form: TextForm) -> dict[str, np.ndarray]:
    """`[n]` int64 vertices of `train`, `val` and `test`, by the first words of the names of their files.

    Raises:
        DataError: a name begins with another word.
    """
    files = columns.table.files
    DataError.raise_all([Problem(str(path), first_word(path), f"the name must begin with a word of a split: "
                                 f"{', '.join(SPLIT_WORDS)}", "set dataset.split=random")
                         for path in files.paths if first_word(path) not in SPLIT_WORDS][:MOST_SHOWN])
    found: dict[str, list[np.ndarray]] = {"train": [], "val": [], "test": []}
    row = 0
    for path in files.paths:
        table = engine.table(replace(files, paths=(path,)), form)
        count = int(engine.rows(f"SELECT count(*) FROM {table.name}", table)[0][0])
        found[SPLIT_WORDS[first_word(path)]].append(np.arange(row, row + count))
        row += count
    return {split: np.concatenate([np.empty(0, np.int64), *parts]) for split, parts in found.items()}


def read_splits(engine: Engine, columns: VertexColumns) -> dict[str, np.ndarray]:
    """`[n]` int64 vertices of `train`, `val` and `test`; an empty cell means none of them.

    Raises:
        DataError: the column has other words.
    """
    assert columns.split is not None
    table, name = columns.table, quoted(columns.split)
    words = [row[0] for row in engine.rows(f"SELECT DISTINCT lower({name}::VARCHAR) FROM {table.name} "
                                           f"WHERE {name} IS NOT NULL", table)]
    unknown = sorted(word for word in words if word.strip() not in SPLIT_WORDS)
    if unknown:
        raise DataError(Problem(f"{table.files.shown}, column {columns.split}", unknown[:MOST_SHOWN],
                                f"words of a split are {', '.join(SPLIT_WORDS)}", "set dataset.split=null"))
    found: dict[str, list[np.ndarray]] = {"train": [], "val": [], "test": []}
    row = 0
    for batch in engine.batches(f"SELECT lower({name}::VARCHAR) FROM {table.name}", table):
        values = batch.column(0).to_pylist()
        for split, parts in found.items():
            parts.append(row + np.array([place for place, word in enumerate(values)
                                         if word is not None and SPLIT_WORDS[word.strip()] == split], np.int64))
        row += batch.num_rows
    return {split: np.concatenate([np.empty(0, np.int64), *parts]) for split, parts in found.items()}
