"""Features of the vertices of one type: columns of numbers, lists and categories, or a file next to the tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.reading.names import Column, Columns
from gnnexp.datasets.reading.npz import NpzFile, open_npy
from gnnexp.datasets.reading.sparse import read_sparse_npz
from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine
from gnnexp.datasets.tables.ids import Ids
from gnnexp.datasets.tables.places import WrongRow, refuse_rows, refuse_where
from gnnexp.datasets.tables.scaling import Empty, Moments, in_columns, loses, lost, of_columns, scaled
from gnnexp.datasets.tables.scan import LARGEST, SqlTable, quoted
from gnnexp.datasets.tables.vertices import VertexColumns
from gnnexp.datasets.tables.written import integers_in, note_of, text_sql, with_points
from gnnexp.errors import DataError, Problem

NewValues = Literal["error", "zero"]
Matrix = np.ndarray | scipy.sparse.csr_array
FILES = (".npy", ".npz", ".json")
_MISSING = "give the value, set dataset.empty=mean or zero, or leave the column out of dataset.features"


@dataclass(frozen=True)
class FeatureForm:
    """How columns become features.

    Attributes:
        categories: columns of which each value becomes a feature (one-hot).
        empty: what replaces missing numbers: nothing, the mean of the column, or 0.
        standardize: whether columns of numbers get mean 0 and standard deviation 1.
        known: the columns that a trained model takes, with their means, deviations and categories; None: they are
            computed from the tables.
        new_values: what happens to categories and words that are not among the known ones.
    """

    categories: Sequence[str]
    empty: Empty
    standardize: bool
    known: Columns | None = None
    new_values: NewValues = "error"

    def earlier(self, kind: str, column: str) -> Column | None:
        """The known entry of a column of the type `kind`; None if columns are not known."""
        if self.known is None:
            return None
        return next(one for one in self.known[kind] if one.get("column") == column)


def read_features(
    reader: Engine, columns: VertexColumns, count: int, form: FeatureForm, names: list[Column], notes: list[str]
) -> Matrix | None:
    """`[V, D]` features of a type, sparse if it has categories; None without features.

    Args:
        reader: what reads the table.
        columns: the table.
        count: V of the type.
        form: how columns become features.
        names: receives the entry of each column (`gnnexp.datasets.reading.names.Column`).
        notes: receives what float32 rounds, and categories that are integers with `.0`.

    Raises:
        DataError: a value is missing or not finite, or lists have different lengths. Names rows.
    """
    blocks: list[Matrix] = []
    if columns.features:
        blocks.append(_numbers(reader, columns, count, form, names, notes))
    for name in columns.categories:
        blocks.append(_one_hot(reader, columns, name, form, names, notes))
    if len(blocks) == 1:
        return blocks[0]
    return (
        scipy.sparse.csr_array(scipy.sparse.hstack([scipy.sparse.csr_array(block) for block in blocks], format="csr"))
        if blocks
        else None
    )


def _numbers(
    reader: Engine, columns: VertexColumns, count: int, form: FeatureForm, names: list[Column], notes: list[str]
) -> np.ndarray:
    """`[V, D]` float32. Means and spreads are those of the numbers in the table, before they are rounded."""
    table = columns.table
    widths = [width_of(reader, table, name) for name in columns.features]
    entries: list[Column] = [
        {"column": name, "width": width} for name, width in zip(columns.features, widths, strict=True)
    ]
    names += entries
    known = [earlier for name in columns.features if (earlier := form.earlier(columns.name, name)) is not None]
    DataError.raise_all(
        [
            problem
            for entry, earlier in zip(entries, known, strict=bool(known))
            for problem in _differing(table, entry, earlier, form)
        ]
    )
    check_memory(4 * count * sum(widths), f"features {count} x {sum(widths)}")
    if known or not form.standardize:
        _of_known(entries, known, form)
    if not known and (form.standardize or form.empty == "mean"):
        _measure(reader, columns, form, entries, count)
    return _filled(reader, columns, form, entries, count, [] if known else notes)


def _of_known(entries: Sequence[Column], known: Sequence[Column], form: FeatureForm) -> None:
    """Entries get the numbers of a trained model's columns, or zeros for missing values."""
    if form.empty == "error" and not form.standardize:
        return
    for entry, one in zip(entries, known or entries, strict=True):
        entry["empty"] = one["empty"] if form.empty == "mean" and known else [0.0] * entry["width"]
        if form.standardize and known:
            entry["mean"], entry["spread"] = one["mean"], one["spread"]


def _measure(reader: Engine, columns: VertexColumns, form: FeatureForm, entries: Sequence[Column], count: int) -> None:
    """Entries get the means and spreads of the table."""
    moments = Moments(sum(entry["width"] for entry in entries), count)
    for _, rows in _rows(reader, columns, entries):
        part = np.where(np.abs(rows) <= LARGEST, rows, np.nan)  # others are refused when the rows are filled
        moments.add(np.where(np.isnan(rows), 0.0, part) if form.empty == "zero" else part)
    moments.merge()
    spread = moments.spread(count)
    of_columns(entries, moments.mean if form.empty == "mean" else np.zeros(moments.mean.size), "empty")
    if form.standardize:
        of_columns(entries, moments.mean, "mean")
        of_columns(entries, np.where(spread == 0, 1.0, spread), "spread")


def _rows(reader: Engine, columns: VertexColumns, entries: Sequence[Column]) -> Iterator[tuple[int, np.ndarray]]:
    """Batches of rows: the number of the first one, and `[n, D]` float64; a missing number is NaN."""
    table, row = columns.table, 0
    lists = [table.is_list(name) for name in columns.features]
    asked = ", ".join(
        f"{quoted(name)}::DOUBLE{'[]' if is_list else ''}"
        for name, is_list in zip(columns.features, lists, strict=True)
    )
    for batch in reader.batches(f"SELECT {asked} FROM {table.name}", table):
        parts = [
            (values.flatten() if is_list else values)
            .to_numpy(zero_copy_only=False)
            .reshape(batch.num_rows, entry["width"])
            for entry, is_list, values in zip(entries, lists, batch.columns, strict=True)
        ]
        yield row, np.concatenate(parts, 1, dtype=np.float64)
        row += batch.num_rows


def _filled(
    reader: Engine, columns: VertexColumns, form: FeatureForm, entries: Sequence[Column], count: int, notes: list[str]
) -> np.ndarray:
    """`[V, D]` float32 rows, filled and standardized with the numbers of the entries.

    Raises:
        DataError: a number is missing or not finite in float32. Names rows.
    """
    owner = np.repeat(np.arange(len(entries)), [entry["width"] for entry in entries])
    filled = form.empty != "error"
    empty = in_columns(entries, "empty") if filled else None
    mean, spread = (in_columns(entries, key) for key in ("mean", "spread")) if form.standardize else (None, None)
    out, num_missing, most = np.empty((count, owner.size), np.float32), 0, np.zeros(owner.size)
    moments, wrong = Moments(owner.size, count), list[WrongRow]()
    for row, rows in _rows(reader, columns, entries):
        bad = np.abs(rows) > LARGEST if filled else ~(np.abs(rows) <= LARGEST)
        for number in np.unique(owner[bad.any(0)]) if bad.any() else ():
            wide = bad[:, owner == number]
            places = np.flatnonzero(wide.any(1))
            num_missing += places.size
            wrong += [
                WrongRow(
                    row + int(place),
                    str(entries[number]["column"]),
                    _shown(rows[place][owner == number][wide[place]][0]),
                    "is no finite number of float32",
                )
                for place in places[:MOST_SHOWN]
            ]
        if not num_missing:
            out[row : row + rows.shape[0]] = scaled(rows, empty, mean, spread)
        if not form.standardize and not num_missing:
            most = np.maximum(most, lost(rows))
            moments.add(rows)
    refuse_rows(reader, columns.table, sorted(wrong, key=lambda row: row[0])[:MOST_SHOWN], num_missing, _MISSING)
    moments.merge()
    rounded = np.unique(owner[loses(most, moments.spread(moments.count))])
    notes += [
        f"column {entries[number]['column']} loses more than a thousandth of its spread in float32; "
        "dataset.standardize=true keeps it"
        for number in rounded.tolist()
    ]
    return out


def _differing(table: SqlTable, entry: Column, known: Column, form: FeatureForm) -> list[Problem]:
    """Problems of a column of numbers that a trained model cannot take."""
    where, problems = f"{table.files.shown}, column {entry['column']}", []
    if entry["width"] != known["width"]:
        problems.append(
            Problem(
                where, f"{entry['width']} numbers", f"the model takes {known['width']}", "give lists of this length"
            )
        )
    if form.standardize != ("mean" in known):
        was = str(not form.standardize).lower()
        problems.append(
            Problem(
                "dataset.standardize",
                form.standardize,
                f"the model was trained with {was}",
                f"set dataset.standardize={was}",
            )
        )
    if form.empty == "mean" and "empty" not in known:
        problems.append(
            Problem(
                "dataset.empty",
                "mean",
                "the training data had no missing numbers, so no means are kept",
                "set dataset.empty=zero, or give the values",
            )
        )
    return problems


def _one_hot(
    reader: Engine, columns: VertexColumns, name: str, form: FeatureForm, names: list[Column], notes: list[str]
) -> scipy.sparse.csr_array:
    """`[V, number of values]`: values in ascending order; a missing value is a row of zeros.

    Raises:
        DataError: values are missing, or are not among those of a trained model. Names rows.
    """
    table, known = columns.written, form.earlier(columns.name, name)
    if known is None or integers_in(known["values"]) is not None:
        table = with_points(reader, table, [name], late=True)
        notes += [note_of(table, name, table.points[name], "categories")] if name in table.points else []
    column = f"{text_sql(table, name)}::VARCHAR"
    kept = reader.keep(f"SELECT {column} AS value, row_number() OVER () - 1 AS number FROM {table.name}", table)
    if form.empty == "error":
        fix = "give the value, or set dataset.empty=zero"
        refuse_where(reader, table, name, kept, "value IS NULL", "is missing", fix)
    values = list(known["values"]) if known is not None else _values(reader, table, kept)
    names.append({"column": name, "values": values})
    ranked = reader.numbered(values)
    if known is not None and form.new_values == "error":
        strange, said = f"{kept} ANTI JOIN {ranked} USING (value)", "is no value that the model was trained with"
        fix = "correct the value, or set dataset.new_values=zero"
        refuse_where(reader, table, name, strange, "value IS NOT NULL", said, fix)
    codes = reader.codes(kept, ranked, table)
    present = codes >= 0
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(present)])
    return scipy.sparse.csr_array(
        (np.ones(int(present.sum()), np.float32), codes[present], indptr), shape=(codes.size, len(values))
    )


def _values(reader: Engine, table: SqlTable, kept: str) -> list[str]:
    """The different values of a table that the engine keeps, ascending."""
    rows = reader.rows(f"SELECT DISTINCT value FROM {kept} WHERE value IS NOT NULL ORDER BY value", table)
    return [value for (value,) in rows]


def width_of(reader: Engine, table: SqlTable, name: str) -> int:
    """Columns of a feature: 1, or the length of its lists.

    Raises:
        DataError: lists have different lengths, or are missing.
    """
    if not table.is_list(name):
        return 1
    length = f"len({quoted(name)})"
    least, most, missing = reader.rows(
        f"SELECT min({length}), max({length}), count(*) - count({quoted(name)}) FROM {table.name}", table
    )[0]
    if missing or least != most:
        raise DataError(
            Problem(
                f"{table.files.shown}, column {name}",
                f"lengths {least} to {most}, {missing} missing",
                "all lists must have one length",
                "if lists are words of a vertex, give them in a "
                "JSON file: {id: [word, ...]}, with dataset.features=FILE.json",
            )
        )
    return int(most)


def _shown(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)


def rows_of_file(path: Path) -> int | None:
    """Rows of a feature file that has one row for each vertex; None for a file that names vertices."""
    if path.suffix == ".npy":
        return int(open_npy(path).shape[0])
    return int(matrix_of_file(path).shape[0]) if path.suffix == ".npz" else None


def read_feature_file(path: Path, ids: Ids, form: FeatureForm, names: list[Column]) -> Matrix:
    """`[V, D]` features of a file.

    - `.npy`: `[V, D]` numbers, in the order of the vertices.
    - `.npz`: a matrix that `scipy.sparse.save_npz` wrote, or one array.
    - `.json`: `{id: [number, ...]}`: words of each vertex (bag of words), or D values of each vertex if all lists have
      the same length and fractions occur.

    Args:
        path: the file.
        ids: ids of the vertices.
        form: has the width that a trained model takes.
        names: receives the entry of the file (`gnnexp.datasets.reading.names.Column`).

    Raises:
        DataError: rows do not fit the vertices or a trained model, or an id is unknown.
    """
    matrix = _bag(path, ids) if path.suffix == ".json" else matrix_of_file(path)
    if matrix.shape[0] != ids.count:
        raise DataError(
            Problem(
                str(path),
                f"{matrix.shape[0]} rows",
                f"there are {ids.count} vertices",
                "give one row for each vertex, in the order of dataset.nodes",
            )
        )
    values = matrix if isinstance(matrix, np.ndarray) else matrix.data
    broken = int((~np.isfinite(values)).sum())
    if broken:
        raise DataError(Problem(str(path), f"{broken} values", "must be finite numbers", "replace them"))
    for entry in () if form.known is None else chain.from_iterable(form.known.values()):
        matrix = _as_wide(path, matrix, entry["width"], form) if "file" in entry else matrix
    names.append({"file": path.suffix, "width": matrix.shape[1]})
    return matrix.astype(np.float32)


def _as_wide(path: Path, matrix: Matrix, width: int, form: FeatureForm) -> Matrix:
    """`[V, width]`: the columns that a trained model takes. Words that no vertex has here are columns of zeros.

    Raises:
        DataError: there are other columns, or words that the model does not know.
    """
    if matrix.shape[1] == width:
        return matrix
    if path.suffix != ".json" or isinstance(matrix, np.ndarray):
        raise DataError(
            Problem(str(path), f"{matrix.shape[1]} columns", f"the model takes {width}", "give the file these columns")
        )
    new = np.unique(matrix.indices[matrix.indices >= width])
    if new.size and form.new_values == "error":
        raise DataError(
            Problem(
                str(path),
                new[:MOST_SHOWN].tolist(),
                f"{new.size} words that the model was not trained with: it knows the words 0 to {width - 1}",
                "number words as in the training data, or set dataset.new_values=zero",
            )
        )
    known = scipy.sparse.csr_array(matrix[:, :width])
    return scipy.sparse.csr_array((known.data, known.indices, known.indptr), shape=(matrix.shape[0], width))


def matrix_of_file(path: Path) -> Matrix:
    """`[V, D]` numbers in `.npy`, or in `.npz`: one array, or a matrix that `scipy.sparse.save_npz` wrote.

    Raises:
        DataError: the file is damaged, or has something else.
    """
    if path.suffix == ".npy":
        array = open_npy(path)
        check_memory(4 * array.size, str(path))
        return array[:, None] if array.ndim == 1 else array
    file = NpzFile(path)
    if "shape" in file:
        return read_sparse_npz(path).csr()
    array = file.array(file.only())
    return array[:, None] if array.ndim == 1 else array


def _bag(path: Path, ids: Ids) -> Matrix:
    try:
        check_memory(30 * path.stat().st_size, str(path))  # an empty list has two bytes, and takes 64
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(Problem(str(path), str(error)[:200], "must be JSON", "correct the file")) from None
    if not isinstance(content, dict) or not all(
        isinstance(words_of_vertex, list) for words_of_vertex in content.values()
    ):
        raise DataError(Problem(str(path), type(content).__name__, "must be {id: [number, ...]}", "correct the file"))
    lengths = np.array([len(words_of_vertex) for words_of_vertex in content.values()], np.int64)
    try:
        flat = np.array([value for words_of_vertex in content.values() for value in words_of_vertex], np.float64)
    except (OverflowError, TypeError, ValueError):
        raise DataError(
            Problem(str(path), "a value that is no number", "lists must have numbers", "number the words from 0 on")
        ) from None
    rows = np.repeat(_numbers_of(path, list(content), ids), lengths)
    words = flat.astype(np.int64)
    if (words != flat).any() or (words < 0).any():
        if lengths.size and (lengths == lengths[0]).all():
            dense = np.zeros((ids.count, int(lengths[0])), np.float32)
            dense[rows, np.tile(np.arange(lengths[0]), lengths.size)] = flat
            return dense
        raise DataError(
            Problem(
                str(path),
                "fractions or negative numbers",
                "words must be whole numbers from 0 on, or all lists must have one length",
                "correct the file",
            )
        )
    width = int(words.max(initial=-1)) + 1
    bag = scipy.sparse.csr_array((np.ones(words.size, np.float32), (rows, words)), shape=(ids.count, width))
    bag.data[:] = 1  # a word that is there twice counts once
    return bag


def _numbers_of(path: Path, names: list[str], ids: Ids) -> np.ndarray:
    """`[n]` number of the vertex of each name.

    Raises:
        DataError: a name is no vertex.
    """
    numbers = ids.numbers(names)
    unknown = np.flatnonzero(numbers < 0)
    if unknown.size:
        shown = [names[int(place)] for place in unknown[:MOST_SHOWN]]
        raise DataError(
            Problem(str(path), shown, f"{unknown.size} ids are no vertices", "correct the file, or dataset.nodes")
        )
    return numbers.astype(np.int64)
