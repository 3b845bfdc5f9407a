"""Scores of links as a table: pairs that a user names by their own ids, or the test links of a graph."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gnnexp.api.predicting.graphs import Target
from gnnexp.api.predicting.ids import OwnIds
from gnnexp.api.trained import TrainedModel
from gnnexp.datasets.base import first_bytes_problem
from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine, engine
from gnnexp.datasets.tables.files import find_files
from gnnexp.datasets.tables.places import WrongRow, refuse_rows
from gnnexp.datasets.tables.roles import AUTO, check_first_line, column, end_columns
from gnnexp.datasets.tables.scan import SqlTable, parquet_file, quoted
from gnnexp.datasets.tables.written import id_of, integer_or_text, integers_in, note_of, text_sql, with_points
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import open_regular
from gnnexp.tasks.pairs import PairTask

if TYPE_CHECKING:
    import pyarrow as pa

_BUFFER_BYTES = 1 << 29
_ENDS = ("source", "destination")


def scored(model: TrainedModel, target: Target, pairs: Path | None, notes: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows `source`, `relation` (if links have some), `destination`, `score` (logit) and `probability`.

    With several types of vertices, `source_type` and `destination_type` say of which type an id is. Links and the ids
    of all vertices are in memory; outputs of vertices are within `train.eval_memory` (`scores_of_links`).

    Args:
        model: a trained model of a task of links.
        target: the graph.
        pairs: a table with a row for each link (`read_pairs`); None: the test links of the graph.
        notes: receives what counts as something else than the table writes.

    Raises:
        DataError: the graph has no test links, or the table has wrong rows.
    """
    import pyarrow as pa

    if pairs is not None:
        links = read_pairs(model, target, pairs, notes)
    elif (test_links := target.links.get("test")) is not None and test_links.shape[0]:
        links = test_links
    else:
        raise DataError(Problem("--links", None, "the graph has no test links", "name your pairs: --links FILE.csv"))
    first = 0
    for scores in model.link_scores(links, target.graph):
        part = links[first : first + scores.size].numpy()
        first += scores.size
        shares = torch.sigmoid(torch.from_numpy(scores).double()).numpy()
        relation = {"relation": _named(model, part[:, 1])} if part.shape[1] == 3 else {}
        yield pa.RecordBatch.from_pydict(
            {
                **_end("source", target.ids, part[:, 0]),
                **relation,
                **_end("destination", target.ids, part[:, -1]),
                "score": scores,
                "probability": shares,
            }
        )


def _end(role: str, ids: OwnIds, numbers: np.ndarray) -> dict[str, Any]:
    found = ids.chosen(numbers)
    return {role if name == "id" else f"{role}_{name}": values for name, values in found.items()}


def _named(model: TrainedModel, relations: np.ndarray) -> np.ndarray:
    """`[n]` names of relations, or their numbers if they have no names."""
    names = np.array(list(model.names.relations), object)
    return names[relations] if names.size else relations


def read_pairs(model: TrainedModel, target: Target, path: Path, notes: list[str]) -> Tensor:
    """`[n, 2 | 3]` links of a table with the ids of sources and destinations and, if links have some, relations.

    Columns have the usual names of tables of edges (`source` and `target`, `relation`, …). With several types of
    vertices, the training links of a relation decide the types of its ends. Otherwise the columns `source_type` and
    `destination_type` do, or an id that only one type has. `notes` receives which columns have integers with `.0`.

    Raises:
        DataError: a column is missing, or a row has an unknown id or relation. Names rows.
    """
    with (
        tempfile.TemporaryDirectory(prefix="gnnexp-") as place,
        engine(Path(place), _BUFFER_BYTES, os.cpu_count() or 1) as reader,
    ):
        files = find_files("--links", Path(), str(path))
        table = reader.table(files)
        columns, named = _columns(table, target.ids.names.types)
        if not _count(reader, table):
            raise DataError(Problem(files.shown, "0 rows", "there are no pairs", "give at least one"))
        kinds = [name for role in _ENDS if (name := f"{role}_type") in table.types]
        names = [*columns.values(), *([named] if named else [])]
        table = with_points(reader, reader.as_written(table, dict.fromkeys([*names, *kinds])), names, late=True)
        relations = _relations(reader, table, named, model)
        ends = [
            _numbers(reader, table, columns[role], _kinds(reader, table, role, target, model, relations), target)
            for role in _ENDS
        ]
        notes += _noted(table, columns.values(), named if _num_relations(model) else None, model, target)
    return torch.from_numpy(np.stack(ends if relations is None else [ends[0], relations, ends[1]], 1))


def _noted(table: SqlTable, ends: Iterable[str], named: str | None, model: TrainedModel, target: Target) -> list[str]:
    """Notes of columns whose integers are written as `1.0`, where the model's ids and relations are integers."""
    found = [(name, "ids") for name in dict.fromkeys(ends) if not all(target.ids.texts)]
    found += [(named, "relations")] if named is not None and integers_in(_relation_names(model)) is not None else []
    return [note_of(table, name, table.points[name], what) for name, what in found if name in table.points]


def check_pairs(path: Path) -> None:
    """Check the columns of a table of pairs, before the model is loaded.

    Raises:
        DataError: it is no such table.
    """
    with open_regular(path) as file:
        problem = first_bytes_problem(path, file)
    DataError.raise_all([] if problem is None else [problem])
    with tempfile.TemporaryDirectory(prefix="gnnexp-") as place, engine(Path(place), _BUFFER_BYTES, 1) as reader:
        _columns(reader.table(find_files("--links", Path(), str(path))), None)


def _columns(table: SqlTable, types: Sequence[str] | None) -> tuple[dict[str, str], str | None]:
    """The columns of both ends, by role, and that of the relation.

    Raises:
        DataError: columns are missing or ambiguous.
    """
    try:
        if types is not None:
            check_first_line(table, types)
        columns = dict(zip(_ENDS, end_columns(table, AUTO, AUTO, ("", "")), strict=True))
        return columns, column(table, "relation", AUTO, needed=False, taken=columns.values())
    except DataError as error:
        fix = "give the table a first line with the names source, destination and, for several relations, relation"
        raise DataError([replace(problem, fix=fix) for problem in error.problems]) from None


def _count(reader: Engine, table: SqlTable) -> int:
    return int(reader.rows(f"SELECT count(*) FROM {table.name}", table)[0][0])


def _relations(reader: Engine, table: SqlTable, named: str | None, model: TrainedModel) -> np.ndarray | None:
    """`[n]` relation of each row; None if links have no relations.

    Raises:
        DataError: the column is missing, or has unknown names. Names rows.
    """
    count = _num_relations(model)
    if not count:
        return None
    names = _relation_names(model)
    if named is None:
        if count == 1:
            return np.zeros(_count(reader, table), np.int64)
        raise DataError(
            Problem(
                table.files.shown,
                list(table.types),
                f"links have {count} relations, and no column has a usual name of the relation",
                f"add a column relation, with {', '.join(names[:20])}",
            )
        )
    value = quoted(named) if integers_in(names) is None else text_sql(table, named)
    kept = reader.keep(f"SELECT {value}::VARCHAR AS value, row_number() OVER () - 1 AS number FROM {table.name}", table)
    codes = reader.codes(kept, reader.numbered(names), table)
    _refuse(reader, table, kept, named, codes < 0, "is no relation of the model", f"use {', '.join(names[:20])}")
    return codes


def _num_relations(model: TrainedModel) -> int:
    assert isinstance(model.task, PairTask)
    return model.task.num_relations


def _relation_names(model: TrainedModel) -> list[str]:
    """The relations of links as texts, in the order of their numbers."""
    count = _num_relations(model)
    return list(model.names.relations)[:count] or [str(number) for number in range(count)]


def _kinds(
    reader: Engine, table: SqlTable, role: str, target: Target, model: TrainedModel, relations: np.ndarray | None
) -> np.ndarray | None:
    """`[n]` type of the end `role` of each row, -1 if it is not known; None with one type of vertices.

    Raises:
        DataError: a type is unknown. Names rows.
    """
    types = list(target.ids.names.types)
    if not target.ids.several_types:
        return None
    name = f"{role}_type"
    if name in table.types:
        kept = reader.keep(
            f"SELECT {quoted(name)}::VARCHAR AS value, row_number() OVER () - 1 AS number FROM {table.name}", table
        )
        codes = reader.codes(kept, reader.numbered(types), table)
        _refuse(reader, table, kept, name, codes < 0, "is no type of vertices", f"use {', '.join(types)}")
        return codes
    of_vertices, trained = model.graph.node_types, model.graph.links["train"]
    if relations is None or of_vertices is None:
        return np.full(_count(reader, table), -1, np.int64)
    end = trained[:, 0 if role == "source" else -1]
    by_relation = np.full(_num_relations(model), -1, np.int64)
    for relation in range(by_relation.size):
        kinds_of_end = torch.unique(of_vertices[end[trained[:, 1] == relation]])
        by_relation[relation] = int(kinds_of_end[0]) if kinds_of_end.numel() == 1 else -1
    return np.asarray(by_relation[relations], np.int64)


def _numbers(reader: Engine, table: SqlTable, name: str, kinds: np.ndarray | None, target: Target) -> np.ndarray:
    """`[n]` vertex of each row's id.

    Raises:
        DataError: an id is missing, unknown, or in several types. Names rows.
    """
    ids, kept = target.ids, {}
    for text in {*target.ids.texts}:
        value = id_of(table, name, text=True) if text else integer_or_text(reader, table, name, points=True)
        kept[text] = reader.keep(
            f"SELECT ({value})::VARCHAR AS value, row_number() OVER () - 1 AS number FROM {table.name}", table
        )
    if ids.are_numbers:
        known = [f"SELECT range::VARCHAR AS value, range AS code FROM range({ids.num_nodes})"]
    else:
        known = [
            f"SELECT id::VARCHAR AS value, vertex + {start} AS code FROM {parquet_file(ids.file(kind))}"
            for kind, start in zip(ids.names.types, ids.starts, strict=False)
        ]
    codes = [
        reader.codes(kept[text], reader.keep(column, table), table)
        for text, column in zip(ids.texts, known, strict=True)
    ]
    choices = np.stack(codes, 1)
    if kinds is not None:  # only the type that is known
        places = np.arange(choices.shape[1])
        choices = np.where((kinds[:, None] < 0) | (kinds[:, None] == places), choices, -1)
    matches, shown = (choices >= 0).sum(1), kept[max(kept)]
    _refuse(reader, table, shown, name, matches == 0, "is the id of no vertex", "correct the id, or leave the row out")
    _refuse(
        reader,
        table,
        shown,
        name,
        matches > 1,
        "is the id of vertices of several types",
        "add the columns source_type and destination_type",
    )
    return np.asarray(choices.max(1), np.int64)


def _refuse(reader: Engine, table: SqlTable, kept: str, name: str, wrong: np.ndarray, said: str, fix: str) -> None:
    """Refuse the rows that are `wrong` `[n]`.

    Raises:
        DataError: there are some. Names rows.
    """
    rows = np.flatnonzero(wrong)
    if not rows.size:
        return
    shown = ", ".join(map(str, rows[:MOST_SHOWN].tolist()))
    values = dict(reader.rows(f"SELECT number, value FROM {kept} WHERE number IN ({shown})", table))
    first = [WrongRow(row, name, values[row], said) for row in rows[:MOST_SHOWN].tolist()]
    refuse_rows(reader, table, first, rows.size, fix)
