"""Which column means what. A meaning is guessed from a column's name, if only one column has such a name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gnnexp.datasets.tables.engine import Engine
from gnnexp.datasets.tables.scan import SqlTable
from gnnexp.errors import DataError, Problem

AUTO = "auto"
PAIRS = (
    ("src", "dst"),
    ("source", "target"),
    ("source", "destination"),
    ("source", "dest"),
    ("from", "to"),
    ("head", "tail"),
    ("u", "v"),
    ("id_1", "id_2"),
    ("id1", "id2"),
    ("node1", "node2"),
    ("node_1", "node_2"),
    ("start", "end"),
    ("subject", "object"),
    ("src_id", "dst_id"),
    ("source_id", "target_id"),
    ("source_id", "destination_id"),
    ("from_id", "to_id"),
    ("fromnodeid", "tonodeid"),
    ("from_node", "to_node"),
    ("start_id", "end_id"),
    ("source_node", "target_node"),
    ("i", "j"),
    ("citing", "cited"),
)
NAMES = {
    "id": ("id", "node_id", "node", "vertex", "vertex_id", "nodeid", "nid", "key", "name"),
    "label": ("label", "labels", "class", "y", "target", "category", "subject"),
    "weight": ("weight", "edge_weight", "weights", "w"),
    "split": ("split", "fold", "subset", "set", "partition"),
    "relation": ("relation", "rel", "edge_type", "predicate", "rel_type", "etype"),
    "time": ("time", "timestamp", "date", "datetime", "time_stamp", "date_time", "created_at", "year", "ts"),
}


def plain(name: str) -> str:
    """A column's name in lower case, with single underscores for all other signs."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def words_of(kind: str) -> tuple[str, ...]:
    """Names of a column that has ids of a type of vertices: for `papers`, also `paper` and `paper_id`."""
    stems = dict.fromkeys((plain(kind), plain(kind).removesuffix("s")))
    return (*stems, *(f"{stem}_id" for stem in stems))


def column(
    table: SqlTable,
    role: str,
    asked: str | None,
    *,
    needed: bool,
    taken: Iterable[str] = (),
    usual: Sequence[str] = (),
) -> str | None:
    """The column of a role.

    Args:
        table: the table.
        role: a key of `NAMES`; the configuration has it as `dataset.<role>`.
        asked: a column's name, `auto` (guessed), or None (no column).
        needed: whether the table must have the column.
        taken: columns that have other roles.
        usual: further names of this role, which come before those of `NAMES`.

    Raises:
        DataError: the column is missing, or more than one may be meant.
    """
    if asked is None:
        return None
    if asked != AUTO:
        _require(table, role, [asked])
        return asked
    left = [name for name in table.types if name not in set(taken)]
    first = {*map(plain, usual), NAMES[role][0]}
    candidates = [name for name in left if plain(name) in {*NAMES[role], *first}]
    best = [name for name in candidates if plain(name) in first]
    candidates = (
        best if role == "id" and len(best) == 1 else candidates
    )  # a table with "id" and "name" has its ids in "id"
    if len(candidates) == 1:
        return candidates[0]
    if not candidates and not needed:
        return None
    said = (
        f"{len(candidates)} columns may be the {role}: {candidates}"
        if candidates
        else f"no column has a usual name of the {role}"
    )
    raise DataError(Problem(table.files.shown, list(table.types), said, f"set dataset.{role}=COLUMN"))


def end_columns(table: SqlTable, source: str, destination: str, types: tuple[str, str]) -> tuple[str, str]:
    """The columns of both ends of an edge between vertices of two `types`.

    Raises:
        DataError: they are missing, or more than one pair may be meant.
    """
    for key, name_of_end in (("source", source), ("destination", destination)):
        _require(table, key, [name_of_end] if name_of_end != AUTO else [])
    if AUTO not in (source, destination):
        return source, destination
    by_name = {plain(name): name for name in table.own}
    typed = (
        []
        if types[0] == types[1]
        else [(first, second) for first in words_of(types[0]) for second in words_of(types[1])]
    )
    pairs = [*typed, *PAIRS]
    candidates = [(by_name[first], by_name[second]) for first, second in pairs if {first, second} <= set(by_name)]
    candidates = [pair for pair in candidates if source in (AUTO, pair[0]) and destination in (AUTO, pair[1])]
    if len(candidates) == 1:
        return candidates[0]
    columns = table.own
    if not candidates and len(columns) == 2:
        return columns[0], columns[1]
    said = (
        f"{len(candidates)} pairs of columns may be the ends"
        if candidates
        else "no two columns have usual names of ends"
    )
    raise DataError(Problem(table.files.shown, columns, said, "set dataset.source=COLUMN dataset.destination=COLUMN"))


def _usual(kinds: Sequence[str]) -> set[str]:
    return {name for names in (*NAMES.values(), *PAIRS, *map(words_of, kinds)) for name in names}


def is_only_header(reader: Engine, table: SqlTable, kinds: Sequence[str]) -> bool:
    """Whether a text has one line, and that has names of columns. DuckDB may take it as data."""
    if table.files.format != "text" or not all(re.fullmatch(r"column\d+", name) for name in table.own):
        return False
    rows = reader.rows(f"SELECT * FROM {table.name} LIMIT 2", table)
    return len(rows) == 1 and any(plain(str(cell)) in _usual(kinds) for cell in rows[0])


def check_first_line(table: SqlTable, kinds: Sequence[str] = ()) -> None:
    """Check that the first line of a text has names of columns, where `dataset.header` does not say so.

    Raises:
        DataError: that is not clear (`has_usual_names`).
    """
    if not has_usual_names(table, kinds):
        raise DataError(
            Problem(
                table.files.shown,
                list(table.types),
                "it is not clear whether the first line has the names of columns, or data",
                "set dataset.header=true or false",
            )
        )


def has_usual_names(table: SqlTable, kinds: Sequence[str] = ()) -> bool:
    """Whether it is clear that the first line of a table has names of columns, or has none.

    If all columns are texts, DuckDB takes the first line as names. It may be data, unless a column has a usual name.
    Columns may also be named after the types of vertices `kinds`.
    """
    usual = _usual(kinds)
    texts = table.files.format == "text" and {table.types[name] for name in table.own} == {"VARCHAR"}
    return not texts or any(plain(name) in usual or plain(name).endswith("_id") for name in table.own)


def _require(table: SqlTable, key: str, names: Sequence[str]) -> None:
    """Check that a table has all columns.

    Raises:
        DataError: it has not. Names all missing columns.
    """
    missing = [name for name in names if name not in table.types]
    if missing:
        raise DataError(
            [
                Problem(
                    f"dataset.{key}",
                    name,
                    f"{table.files.shown} has no such column; it has {', '.join(table.types)}",
                    f"set dataset.{key} to one of them",
                )
                for name in missing
            ]
        )
