"""Columns of a table of vertices: labels, features and splits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine
from gnnexp.datasets.tables.places import refuse_where
from gnnexp.datasets.tables.roles import AUTO
from gnnexp.datasets.tables.scaling import Moments, loses, lost
from gnnexp.datasets.tables.scan import REAL, WHOLE, SqlTable, TextForm, literal, quoted
from gnnexp.datasets.tables.written import cut_sql, no_numbers, note_of, numeric, points_of, with_points
from gnnexp.errors import DataError, Problem

LabelKind = Literal["auto", "class", "real"]
NoLabel = int | float | str | None
SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "tr": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
    "te": "test",
}


@dataclass(frozen=True)
class VertexColumns:
    """A table with a row for each vertex of a type, and the meaning of its columns.

    Attributes:
        name: the type.
        table: the table, with the types that its columns look like.
        written: the same table with ids, labels, splits and categories as a text's file writes them.
        id: column of ids.
        label: column of classes or real numbers, or None.
        split: column with words such as `train`, or None.
        time: column of times by which vertices are split, or None.
        features: columns of numbers, or of lists of numbers.
        categories: columns of which each value becomes a feature.
    """

    name: str
    table: SqlTable
    written: SqlTable
    id: str
    label: str | None
    split: str | None
    features: tuple[str, ...]
    categories: tuple[str, ...]
    time: str | None = None

    def with_points(self, reader: Engine) -> VertexColumns:
        """The same columns, which know of ids that files write as `1.0`."""
        return replace(self, written=with_points(reader, self.written, [self.id], late=True))

    @property
    def used(self) -> set[str]:
        """Columns that have a meaning."""
        alone = {name for name in (self.id, self.label, self.split, self.time) if name is not None}
        return alone | {*self.features, *self.categories}


class Labels(NamedTuple):
    """Labels of vertices.

    Attributes:
        values: `[V]` int64 classes, -1 for no label; or real numbers, NaN for no label (`narrowed`).
        classes: name of each class; empty for real numbers.
        notes: what was read in another way than it is written.
    """

    values: np.ndarray
    classes: list[str]
    notes: Sequence[str] = ()

    @property
    def present(self) -> np.ndarray:
        """`[V]` bool: which vertices have a label."""
        return ~np.isnan(self.values) if self.values.dtype.kind == "f" else self.values >= 0


def read_labels(engine: Engine, columns: VertexColumns, kind: LabelKind, no_label: NoLabel = AUTO) -> Labels:
    """Labels are classes or real numbers. An empty cell means no label.

    Classes of a text are as the file writes them. If all of them are integers, they are numbered in the order of the
    integers, else in the order of their bytes.

    Args:
        engine: what reads the table.
        columns: the table.
        kind: `class`, `real`, or `auto`: a column of numbers with fractions has real numbers, any other one classes.
        no_label: what means no label besides an empty cell, or None; `auto`: nothing, where -1 is no class.

    Raises:
        DataError: a class of a typed table has a fraction, or a real number is infinite: names rows. Or `no_label` is
            `auto`, and -1 is next to other numbers.
    """
    assert columns.label is not None
    table, name = columns.table, quoted(columns.label)
    real = table.kind(columns.label) in (*REAL, "DECIMAL")
    if (
        kind == "real"
        or (
            real
            and kind == "auto"
            and engine.rows(f"SELECT 1 FROM {table.name} WHERE {name} <> floor({name}) LIMIT 1", table)
        )
        or (kind == "auto" and _has_late_fractions(engine, columns))
    ):
        return _real_labels(engine, table, columns.label, no_label)
    labels_view, notes = _classes(engine, columns, kind, no_label)
    if no_label == AUTO:
        notes += _of_minus_one(engine, columns, labels_view)
    classes = engine.keep(
        "SELECT class, row_number() OVER (ORDER BY class) - 1 AS number FROM "
        f"(SELECT DISTINCT class FROM {labels_view} WHERE class IS NOT NULL)",
        table,
    )
    classes_in_order = engine.rows(f"SELECT class FROM {classes} ORDER BY number", table)
    joined = f"{labels_view} m LEFT JOIN {classes} c USING (class)"
    values = engine.array(f"SELECT coalesce(c.number, -1) FROM {joined} ORDER BY m.row", table)
    return Labels(values, [str(row[0]) for row in classes_in_order], [*notes, *_lacking(values < 0)])


def _has_late_fractions(engine: Engine, columns: VertexColumns) -> bool:
    """Whether all labels of a text are numbers, and only those below a sample of its rows have fractions."""
    assert columns.label is not None
    table, value = columns.written, f"TRY_CAST({quoted(columns.label)} AS DOUBLE)"
    if table.looks.get(columns.label) not in WHOLE:
        return False
    return not engine.rows(
        f"SELECT 1 FROM {table.name} WHERE {value} IS NULL AND {quoted(columns.label)} IS NOT NULL LIMIT 1", table
    ) and bool(engine.rows(f"SELECT 1 FROM {table.name} WHERE {value} <> floor({value}) LIMIT 1", table))


def _classes(engine: Engine, columns: VertexColumns, kind: LabelKind, no_label: NoLabel) -> tuple[str, list[str]]:
    """The classes of all rows, integers or texts: a table with the columns `class` and `row`. And what to note.

    Among numbers of a text, `nan` means no label, unless `kind` says that all labels are classes.
    """
    assert columns.label is not None
    table, name = columns.written, quoted(columns.label)
    real = table.kind(columns.label) in (*REAL, "DECIMAL")
    written = columns.label in table.looks
    if written and real and kind == "auto":
        name = f"(CASE WHEN NOT coalesce(isnan(TRY_CAST({name} AS DOUBLE)), false) THEN {name} END)"
    elif real and not written:
        _refuse(
            engine,
            table,
            columns.label,
            f"{name} <> floor({name}) OR isinf({name}::DOUBLE)",
            "is no whole number, and classes are names or whole numbers",
            "correct the value, or set dataset.label_kind=real and task=node_regression",
        )
        name = f"TRY_CAST({name} AS HUGEINT)"  # NULL for NaN
    none = _means_none(table, name, no_label)
    value = f"(CASE WHEN NOT {none} THEN {name} END)"
    kept = engine.keep(
        f"SELECT {value} AS class, {none} AS none, row_number() OVER () - 1 AS row FROM {table.name}", table
    )
    is_given = no_label not in (None, AUTO)
    unused = is_given and not engine.count(kept, "none")
    said = [f"no vertex has the label {no_label} (dataset.no_label)"] if unused else []
    # Without the word for no label, integers may be left of a text.
    if not written and not (is_given and table.types[columns.label] == "VARCHAR" and table.files.format == "text"):
        return kept, said
    expression, notes = _value_of(engine, columns, kept, value)
    view = kept if expression == "class" else engine.keep(f"SELECT {expression} AS class, row FROM {kept}", table)
    return view, [*said, *notes]


def _value_of(engine: Engine, columns: VertexColumns, kept: str, value: str) -> tuple[str, list[str]]:
    """The class that a text stands for, in SQL: an integer if all texts are some, else the text. And what to note.

    Args:
        engine: what reads the table.
        columns: the table.
        kept: a table with the texts as `class`.
        value: the text in a row of the table, in SQL.
    """
    integer, table = "TRY_CAST({} AS HUGEINT)", columns.written
    if not engine.count(kept, f"{integer.format('class')}::VARCHAR IS DISTINCT FROM class"):
        return integer.format("class"), []
    text, points = cut_sql(table, "class"), points_of(engine, table, value)
    if points is None or engine.count(kept, f"{integer.format(text)}::VARCHAR IS DISTINCT FROM {text}"):
        return "class", []
    return integer.format(text), [note_of(table, str(columns.label), points, "classes")]


def _means_none(table: SqlTable, value: str, no_label: NoLabel) -> str:
    """Whether a class is `no_label`, as a text or as a number; in SQL."""
    if no_label in (None, AUTO):
        return "false"
    text, word = f"{value}::VARCHAR", literal(str(no_label).lower() if isinstance(no_label, bool) else str(no_label))
    same = f"lower({text})" if isinstance(no_label, bool) else text
    number = f"TRY_CAST(replace({text}, {literal(table.decimal)}, '.') AS DOUBLE)"
    return f"(coalesce({same} = {word}, false) OR coalesce({number} = TRY_CAST({word} AS DOUBLE), false))"


def _of_minus_one(engine: Engine, columns: VertexColumns, view: str) -> list[str]:
    """What to note if -1 and 1 are the classes.

    Raises:
        DataError: -1 is next to other integers: whether it means no label is not clear.
    """
    minus = engine.count(view, "typeof(class) <> 'VARCHAR' AND class::VARCHAR = '-1'")
    if not minus:
        return []
    rows = engine.rows(
        f"SELECT DISTINCT class FROM {view} WHERE class::VARCHAR <> '-1' ORDER BY 1 LIMIT 3", columns.written
    )
    others = [str(row[0]) for row in rows]
    if others == ["1"]:
        return ["-1 and 1 are two classes; if -1 means no label: dataset.no_label=-1"]
    raise DataError(
        Problem(
            "dataset.no_label",
            AUTO,
            f"{columns.table.files.shown}, column {columns.label}: {minus:,} vertices have -1, "
            f"and others {', '.join(others) or 'no label'}",
            "set dataset.no_label=-1 if they have no label, or dataset.no_label=null if -1 is a class",
        )
    )


def _lacking(missing: np.ndarray) -> list[str]:
    """The note of rows without a label."""
    count = int(missing.sum())
    return [f"{count:,} of {missing.size:,} vertices have no label"] if count else []


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
    DataError.raise_all(
        [
            Problem(
                str(path),
                first_word(path),
                f"the name must begin with a word of a split: {', '.join(SPLIT_WORDS)}",
                "set dataset.split=random",
            )
            for path in files.paths
            if first_word(path) not in SPLIT_WORDS
        ][:MOST_SHOWN]
    )
    ids_of: dict[str, list[np.ndarray]] = {"train": [], "val": [], "test": []}
    row = 0
    for path in files.paths:
        table = engine.table(replace(files, paths=(path,)), form)
        count = int(engine.rows(f"SELECT count(*) FROM {table.name}", table)[0][0])
        ids_of[SPLIT_WORDS[first_word(path)]].append(np.arange(row, row + count))
        row += count
    return {split: np.concatenate([np.empty(0, np.int64), *parts]) for split, parts in ids_of.items()}


def _real_labels(engine: Engine, table: SqlTable, column: str, no_label: NoLabel) -> Labels:
    if column not in numeric(table, [column]) or table.is_list(column):
        raise DataError(
            no_numbers(
                engine, table, column, "set dataset.label_kind=class, or name words for an empty cell in dataset.nulls"
            )
        )
    table, name = engine.as_numbers(table, [column]), f"{quoted(column)}::DOUBLE"
    _refuse(
        engine,
        table,
        column,
        f"NOT isnan({name}) AND abs({name}) > {np.finfo(np.float32).max}",
        "is no finite number of float32",
        "correct the value, leave it empty, or give it in a larger unit",
    )
    if no_label not in (None, AUTO):
        name = f"nullif({name}, TRY_CAST({literal(str(no_label))} AS DOUBLE))"
    values = engine.array(f"SELECT {name} FROM {table.name}", table, np.float64)
    said = _lacking(np.isnan(values))
    unused = [] if said or no_label in (None, AUTO) else [f"no vertex has the label {no_label} (dataset.no_label)"]
    return Labels(narrowed(values), [], [*said, *unused])


def narrowed(values: np.ndarray) -> np.ndarray:
    """`[n]` real labels in float32; in float64 if they would lose more than a thousandth of their spread."""
    moments = Moments(1, values.size)
    moments.add(values[:, None])
    moments.merge()
    loss = loses(lost(values[:, None]), moments.spread(moments.count))
    return values if loss.any() else values.astype(np.float32)


def _refuse(engine: Engine, table: SqlTable, column: str, condition: str, said: str, fix: str) -> None:
    """Refuse rows with a condition on a column."""
    rows = (
        f"(SELECT {quoted(column)} AS value, row_number() OVER () - 1 AS number, {condition} AS wrong FROM "
        f"{table.name})"
    )
    refuse_where(engine, table, column, rows, "wrong", said, fix)


def read_splits(engine: Engine, columns: VertexColumns) -> dict[str, np.ndarray]:
    """`[n]` int64 vertices of `train`, `val` and `test`; an empty cell means none of them.

    Raises:
        DataError: the column has other words.
    """
    assert columns.split is not None
    table, name = columns.written, quoted(columns.split)
    words = [
        row[0]
        for row in engine.rows(
            f"SELECT DISTINCT lower({name}::VARCHAR) FROM {table.name} WHERE {name} IS NOT NULL", table
        )
    ]
    unknown = [word for word in words if word.strip() not in SPLIT_WORDS]
    if unknown:
        _refuse(
            engine,
            table,
            columns.split,
            f"lower({name}::VARCHAR) IN ({', '.join(map(literal, unknown))})",
            f"is no word of a split; words are {', '.join(SPLIT_WORDS)}",
            "correct it, or set dataset.split=random",
        )
    ids_of: dict[str, list[np.ndarray]] = {"train": [], "val": [], "test": []}
    row = 0
    for batch in engine.batches(f"SELECT lower({name}::VARCHAR) FROM {table.name}", table):
        values = batch.column(0).to_pylist()
        for split, parts in ids_of.items():
            parts.append(
                row
                + np.array(
                    [
                        place
                        for place, word in enumerate(values)
                        if word is not None and SPLIT_WORDS[word.strip()] == split
                    ],
                    np.int64,
                )
            )
        row += batch.num_rows
    return {split: np.concatenate([np.empty(0, np.int64), *parts]) for split, parts in ids_of.items()}
