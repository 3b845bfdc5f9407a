"""Tables of GraphStorm with the columns that `Tables` expects: `id`, `label`, `split` and features."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnn_gconstruct.description import FORMAT_FIX, Entry, Feature, Label
from gnnexp.components.packages import is_installed
from gnnexp.datasets.base import check_memory
from gnnexp.datasets.formats.dgl.arrays import USUAL
from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine
from gnnexp.datasets.tables.files import TableFiles
from gnnexp.datasets.tables.scan import SqlTable, TextForm, quoted
from gnnexp.datasets.tables.written import integer_or_text, note_of, numeric, text_sql, with_points
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.files.regular import why_unreadable

_RESERVED, _ROW = ("id", "label", "split"), '"gnnexp row"'
_REAL = ("FLOAT", "DOUBLE")
_CATEGORICAL = "to_categorical"


@dataclass(frozen=True, eq=False)
class Columns:
    """What is taken of a table.

    Attributes:
        table: the table.
        asked: expressions in SQL, with their names.
        categories: names of the features of which each value becomes a column.
        notes: what is left out.
        has_split: whether there is a column `split`.
        rows: what is read, in SQL; empty: the table.
    """

    table: SqlTable
    asked: Sequence[str]
    categories: Sequence[str]
    notes: Sequence[str]
    has_split: bool = False
    rows: str = field(default="")


def rewritten(reader: Engine, columns: Columns, path: Path) -> str:
    """Write the columns to a Parquet file, in the order of the rows: its path.

    Raises:
        DataError: the table is damaged, or has wrong rows.
    """
    kept = reader.keep(f"SELECT {', '.join(columns.asked)} FROM {columns.rows or columns.table.name}", columns.table)
    reader.copy(f"SELECT * FROM {kept}", path)
    return str(path)


def edge_columns(reader: Engine, entry: Entry, place: Path, asked_weight: str | None) -> Columns:
    """What is taken of a table of edges: both ends, and a weight.

    Args:
        reader: what reads tables.
        entry: the table.
        place: folder for tables that are made.
        asked_weight: the column of weights; `auto` finds it; None: none.

    Raises:
        DataError: columns are missing.
    """
    table = _opened(reader, entry, place)
    names = [feature.column for feature in entry.features]
    weights = [name for name in names if name in (USUAL["weight"] if asked_weight == "auto" else (asked_weight,))]
    weight = weights[0] if len(weights) == 1 else None
    ends = [(str(column), end) for column, end in zip(entry.columns, ("source", "destination"), strict=True)]
    asked = [*ends, *([(weight, "weight")] if weight else [])]
    _require(table, entry, [name for name, _ in asked])
    left = [name for name in names if name != weight]
    notes = [f"features of the edges {':'.join(entry.kind)} that are not used: {', '.join(left)}"] if left else []
    values = [
        f"{quoted(name) if role == 'weight' else integer_or_text(reader, table, name, points=False)} AS {role}"
        for name, role in asked
    ]
    return Columns(table, values, [], notes)


def vertex_columns(
    reader: Engine, entry: Entry, label: Label | None, files: Mapping[str, Sequence[Path]], place: Path, *, skip: bool
) -> Columns:
    """What is taken of a table of vertices.

    Args:
        reader: what reads tables.
        entry: the table.
        label: labels to predict, if this type has them.
        files: files with the ids of each split; empty: no column `split`.
        place: folder for tables that are made.
        skip: leave out features whose transform gnnexp does not have. Otherwise they are an error.

    Raises:
        DataError: columns are missing, or a transform is unknown. Names all problems.
    """
    table, findings = _opened(reader, entry, place), Findings()
    [identity] = entry.columns
    features = [feature.column for feature in entry.features]
    _require(table, entry, [*([identity] if identity else []), *([label.column] if label else []), *features])
    named = integer_or_text(reader, table, identity, points=False) if identity else "row_number() OVER () - 1"
    table, notes = _with_points(reader, table, entry, label)
    rows, asked = table.name, [f"{named} AS id"]
    if label is not None:
        written = label.column in table.looks
        value = integer_or_text(reader, table, label.column, points=True) if written else quoted(label.column)
        asked.append(f"{value} AS label")
    if files:
        rows = findings.attempt(_with_split, reader, table, identity, label, place) or rows
        asked.append('"gnnexp split" AS split')
    expressions, categories, of_features = _features(reader, table, entry, findings, skip=skip)
    findings.raise_all()
    if files and not identity:
        raise DataError(Problem(entry.files.key, "no node_id_col", "files of splits name ids", "add node_id_col"))
    left = [other.column for other in entry.labels if other is not label]
    notes = [*notes, *of_features, *([f"{entry.kind[0]}: labels that are not used: {', '.join(left)}"] if left else [])]
    return Columns(table, [*asked, *expressions], categories, notes, bool(files), rows)


def _opened(reader: Engine, entry: Entry, place: Path) -> SqlTable:
    """The table of an entry; ids, classes and categories of a text are as the file writes them.

    Raises:
        DataError: a file is damaged, or is HDF5 and h5py is missing.
    """
    files = _without_hdf5(entry, place) if entry.is_hdf5 else entry.files
    form = TextForm(entry.separator or ",", header=True) if files.format == "text" else None
    table = reader.table(files, form)
    names = [
        *entry.columns,
        *(part.column for part in entry.labels if table.types.get(part.column) not in _REAL),
        *(part.column for part in entry.features if part.kind == _CATEGORICAL),
    ]
    numbers = [part.column for part in entry.features if part.kind != _CATEGORICAL and part.column in table.types]
    written = reader.as_written(table, dict.fromkeys(name for name in names if name in table.types))
    return reader.as_numbers(written, dict.fromkeys(numbers))


def _without_hdf5(entry: Entry, place: Path) -> TableFiles:
    """HDF5 files, written again as Parquet: DuckDB does not read HDF5."""
    if not is_installed("h5py"):
        why = "needs the package h5py, which is not installed"
        raise DataError(Problem(entry.files.key, "hdf5", why, "pip install h5py, or write the tables as Parquet"))
    import h5py
    import pyarrow as pa
    from pyarrow import parquet

    paths = []
    for number, path in enumerate(entry.files.paths):
        try:
            check_memory(path.stat().st_size, str(path))
            with h5py.File(path, "r") as file:
                arrays = {
                    name: np.asarray(values[()]) for name, values in file.items() if isinstance(values, h5py.Dataset)
                }
            table = pa.table({name: _arrow(values) for name, values in arrays.items()})
            paths.append(place / f"hdf5_{'_'.join(entry.kind).encode().hex()}_{number}.parquet")
            parquet.write_table(table, paths[-1])
        except (OSError, ValueError, pa.ArrowException, UnicodeDecodeError) as error:
            wanted = "must be HDF5 with a data set for each column, all of one length"
            raise DataError(Problem(str(path), str(error)[:200], wanted, "write it again")) from None
    return TableFiles(entry.files.key, tuple(paths), "parquet")


def _arrow(values: np.ndarray) -> Any:
    """A column of HDF5: texts, numbers, or a list in each row."""
    import pyarrow as pa

    if values.dtype.kind in "SO":
        return pa.array([text.decode() for text in values])
    return pa.array(values if values.ndim == 1 else list(values))


def _require(table: SqlTable, entry: Entry, names: Iterable[str]) -> None:
    """Check that a table has all columns.

    Raises:
        DataError: it lacks some. Names all of them.
    """
    allowed = f"columns of {entry.files.shown} are {', '.join(table.types)}"
    missing = [name for name in dict.fromkeys(names) if name not in table.types]
    DataError.raise_all(
        [Problem(f"{entry.files.key}: {name}", "missing", allowed, "correct the JSON file") for name in missing]
    )


def _with_points(reader: Engine, table: SqlTable, entry: Entry, label: Label | None) -> tuple[SqlTable, list[str]]:
    """The table, which knows of classes and categories that files write as `1.0`; and notes of them."""
    pointed = [(label.column, "classes")] if label is not None else []
    pointed += [(feature.column, "categories") for feature in entry.features if feature.kind == _CATEGORICAL]
    names = [name for name, _ in pointed if name != entry.columns[0]]
    known = with_points(reader, table, names, late=True)
    return known, [
        note_of(known, name, known.points[name], what) for name, what in dict.fromkeys(pointed) if name in known.points
    ]


def _features(
    reader: Engine, table: SqlTable, entry: Entry, findings: Findings, *, skip: bool
) -> tuple[list[str], list[str], list[str]]:
    """The features in SQL, the names of categories, and notes of what is not used.

    A transform that gnnexp does not have is a problem in `findings`, unless `skip` leaves such features out.
    """
    expressions: list[str] = []
    categories: list[str] = []
    notes: list[str] = []
    for number, feature in enumerate(entry.features):
        name = _name(feature, number, entry)
        try:
            expressions.append(f"{_expression(reader, table, feature, entry)} AS {quoted(name)}")
        except DataError as error:
            findings.problems += [] if skip else error.problems
            notes.append(f"{entry.kind[0]}: the feature {feature.column} (transform {feature.kind}) is not used")
        else:
            categories += [name] if feature.kind == _CATEGORICAL else []
    return expressions, categories, notes


def _name(feature: Feature, number: int, entry: Entry) -> str:
    """A name that no other feature has; categories have the type before it, since `Tables` names them for all types."""
    before = [other for other in entry.features[:number] if other.column == feature.column]
    name = f"{entry.kind[0]}.{feature.column}" if feature.kind == _CATEGORICAL else feature.column
    return f"{name}_{number}" if before or name in _RESERVED else name


def _expression(reader: Engine, table: SqlTable, feature: Feature, entry: Entry) -> str:
    """A feature in SQL.

    Raises:
        DataError: gnnexp does not have the transform, or the column does not fit it.
    """
    column, look = quoted(feature.column), table.look(feature.column)
    is_number, is_list = bool(numeric(table, [feature.column])), look.endswith("]")
    if feature.kind == _CATEGORICAL and not feature.transform.get("separator") and not is_list:
        return f"{text_sql(table, feature.column)}::VARCHAR"
    if feature.column in table.looks:
        column = f"{column}::{look}"
    if feature.kind == "no-op" and is_number:
        width = feature.transform.get("truncate_dim")
        return f"list_slice({column}, 1, {int(width)})" if width and is_list else column
    if feature.kind == "max_min_norm" and is_number and not is_list:
        return _between(reader, table, column, feature.transform)
    raise DataError(
        Problem(
            f"{entry.files.key}: {feature.column}",
            f"{feature.kind} of {look}",
            "gnnexp has no-op and max_min_norm of numbers, and to_categorical",
            "set dataset.transforms=skip to leave such features out, or make rows of numbers of the column",
        )
    )


def _between(reader: Engine, table: SqlTable, column: str, options: Mapping[str, object]) -> str:
    """The column between 0 and 1, as GraphStorm's `max_min_norm`."""
    least, most = reader.rows(f"SELECT min({column})::DOUBLE, max({column})::DOUBLE FROM {table.name}", table)[0]

    def bound(value: float | None, name: str, option: str, choose: Callable[[float, float], float]) -> float:
        if options.get(option) is not None:
            return float(np.asarray(options[option], np.float64).reshape(()))
        computed = 0.0 if value is None else value
        return choose(computed, float(str(options[name]))) if name in options else computed

    low, high = bound(least, "min_bound", "min_val", max), bound(most, "max_bound", "max_val", min)
    spread = high - low if high > low else 1.0
    return f"(least(greatest({column}::DOUBLE, {low!r}::DOUBLE), {high!r}::DOUBLE) - {low!r}::DOUBLE) / {spread!r}"


def _with_split(reader: Engine, table: SqlTable, identity: str | None, label: Label | None, place: Path) -> str:
    """The rows of a table with the split of each, in SQL.

    Raises:
        DataError: a file of ids is damaged, names unknown ids, or has ids of another split.
    """
    import pyarrow as pa
    from pyarrow import parquet

    if identity is None or label is None:
        return table.name
    named = [
        (text, split) for split, paths in label.files.items() for path in paths for text in _ids(path, label.id_column)
    ]
    file = place / "splits.parquet"
    texts = {key: pa.array([row[at] for row in named], pa.string()) for at, key in enumerate(("id", "split"))}
    parquet.write_table(pa.table(texts), file)
    split = reader.table(TableFiles("splits", (file,), "parquet"))
    shown = ", ".join(str(paths[0]) for paths in label.files.values())
    own = f"SELECT {quoted(identity)}::VARCHAR FROM {table.name}"
    for sql, said in (
        (f"SELECT id FROM {split.name} WHERE id NOT IN ({own})", "are no vertices"),
        (f"SELECT id FROM {split.name} GROUP BY id HAVING count(*) > 1", "are there more than once"),
    ):
        wrong = [row[0] for row in reader.rows(f"{sql} LIMIT {MOST_SHOWN}", split)]
        if wrong:
            raise DataError(Problem(shown, wrong, f"these ids {said}", "correct custom_split_filenames"))
    kept = reader.keep(f"SELECT *, row_number() OVER () AS {_ROW} FROM {table.name}", table)
    return (
        f'(SELECT n.*, s.split AS "gnnexp split" FROM {kept} n LEFT JOIN {split.name} s ON '
        f"n.{quoted(identity)}::VARCHAR = s.id ORDER BY n.{_ROW})"
    )


def _ids(path: Path, column: str | None) -> list[str]:
    """Ids of a split: a JSON value in each line, or a column of a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    if why := why_unreadable(path):
        raise DataError(Problem(str(path), why.reason, "this file of ids is needed", FORMAT_FIX))
    check_memory(8 * path.stat().st_size, str(path))
    try:
        if path.suffix == ".parquet":
            table = parquet.read_table(path)
            values = table.column(column if column is not None else 0).to_pylist()
        else:
            values = [json.loads(line) for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    except (OSError, ValueError, KeyError, RecursionError, pa.ArrowException) as error:
        raise DataError(
            Problem(str(path), str(error)[:200], "must have an id in each line, or be Parquet", FORMAT_FIX)
        ) from None
    if not all(isinstance(value, str | int) for value in values):
        raise DataError(Problem(str(path), "other values", "ids must be whole numbers or texts", FORMAT_FIX))
    return [str(value) for value in values]
