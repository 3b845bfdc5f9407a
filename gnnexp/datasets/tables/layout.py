"""What the tables of a data set hold: types of vertices and edges, and the meaning of each column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnnexp.datasets.reading.names import Column, Columns
from gnnexp.datasets.tables.edges import RELATIONS, EdgeColumns, relation_of
from gnnexp.datasets.tables.engine import Engine
from gnnexp.datasets.tables.files import TableFiles, find_files
from gnnexp.datasets.tables.moments import moment_of, with_fractions
from gnnexp.datasets.tables.roles import AUTO, check_first_line, column, end_columns, is_only_header, words_of
from gnnexp.datasets.tables.scan import REAL, SqlTable, TextForm, path_values, quoted
from gnnexp.datasets.tables.vertices import VertexColumns
from gnnexp.datasets.tables.written import (
    NoIntegersError,
    are_integers,
    as_weights,
    no_numbers,
    note_of,
    numeric,
    with_points,
)
from gnnexp.errors import DataError, Findings, Problem

VERTEX = "vertex"  # the type of vertices of a graph with one type
EDGE = "edges"
_EDGE_KEYS = ("table", "from", "to", "source", "destination", "weight", "relation", "time")
_OPTIONAL = ("weight", "relation")  # null means that there is no such column
# A table, or by type of edges a table, or its keys `_EDGE_KEYS`.
EdgeEntries = str | Mapping[str, str | Mapping[str, str | None]]


@dataclass(frozen=True)
class ColumnOptions:
    """The configuration's words on columns; see `Tables`.

    Times are None if nothing is split by time, and links need one if `links_by_time`.

    Attributes:
        known: the columns of features that a trained model takes, instead of `features` and `categories`. Labels and a
            split may then be missing.
    """

    id: str
    source: str
    destination: str
    weight: str | None
    relation: str | None
    time: str | None
    label: str | None
    target: str | None
    features: Sequence[str] | str | None
    split_column: str | None
    as_text: Sequence[str]
    categories: Sequence[str]
    known: Columns | None = None
    links_by_time: bool = False


@dataclass(frozen=True)
class EdgeTable:
    """A table of edges in the configuration.

    Attributes:
        name: type of the edges.
        files: files of the table.
        types: types of the vertices at both ends.
        source, destination, weight, relation, time: columns, as in the configuration.
    """

    name: str
    files: TableFiles
    types: tuple[str, str]
    source: str
    destination: str
    weight: str | None
    relation: str | None
    time: str | None


@dataclass(frozen=True)
class TableLayout:
    """All tables and the meaning of their columns.

    Attributes:
        vertices: tables of vertices by type; types without a table are not there.
        edges: tables of edges.
        types: all types of vertices: those with tables first, then in the order in which edges name them.
        texts: types of vertices whose ids are taken as texts, because some are no integers.
    """

    vertices: Mapping[str, VertexColumns]
    edges: Sequence[EdgeColumns]
    types: Sequence[str]
    texts: frozenset[str]

    @property
    def relations(self) -> list[str]:
        """Names of the types of edges, in the order of their numbers."""
        if len(self.edges) == 1:
            return self.edges[0].relations
        return [
            one.name if one.relation is None else f"{one.name}/{name}" for one in self.edges for name in one.relations
        ]

    def ids(self) -> list[tuple[SqlTable, str, str]]:
        """Each column of ids: its table, its name, and the type of the vertices."""
        found = [(nodes.written, nodes.id, kind) for kind, nodes in self.vertices.items()]
        return [*found, *((one.table, end, kind) for one in self.edges for end, kind in one.ends)]

    def pointed(self) -> list[str]:
        """Notes of columns of ids and relations with integers that a file writes as `1.0`."""
        found = [(table, name, "ids") for table, name, kind in self.ids() if kind not in self.texts]
        found += [(one.table, one.relation.column, "relations") for one in self.edges if one.relation is not None]
        return [note_of(table, name, table.points[name], what) for table, name, what in found if name in table.points]

    def after(self, reader: Engine, error: NoIntegersError) -> TableLayout:
        """The layout that fits also an id which is no integer, as the sample of rows has them.

        Where files write all ids of a column with `.0`, or none, ids stay integers. Otherwise they are texts.
        """
        before = sum(len(table.points) for table, *_ in self.ids())
        layout = replace(
            self,
            vertices={
                kind: columns.with_points(reader) if kind == error.kind else columns
                for kind, columns in self.vertices.items()
            },
            edges=[columns.with_points(reader, error.kind) for columns in self.edges],
        )
        if sum(len(table.points) for table, *_ in layout.ids()) > before:
            return layout
        return replace(self, texts=self.texts | {error.kind})

    def described(self) -> list[str]:
        """One line for each table: which column means what."""
        lines = []
        for nodes in self.vertices.values():
            parts = [f"id={nodes.id}"]
            roles = (("label", nodes.label), ("split", nodes.split), ("time", nodes.time))
            parts += [f"{role}={column_name}" for role, column_name in roles if column_name]
            parts += [f"features={', '.join(nodes.features)}"] if nodes.features else []
            parts += [f"categories={', '.join(nodes.categories)}"] if nodes.categories else []
            left = [name for name in nodes.table.types if name not in nodes.used]
            parts += [f"not used: {', '.join(left)}"] if left else []
            lines.append(f"{nodes.table.files.paths[0].name}: {'; '.join(parts)}")
        for edges in self.edges:
            parts = [f"source={edges.source}", f"destination={edges.destination}"]
            parts += [f"weight={edges.weight}"] if edges.weight else []
            parts += [f"relation={edges.relation.column}"] if edges.relation else []
            parts += [f"time={edges.time.column}"] if edges.time else []
            left = [name for name in edges.table.types if name not in edges.used]
            parts += [f"not used: {', '.join(left)}"] if left else []
            lines.append(f"{edges.table.files.paths[0].name}: {'; '.join(parts)}")
        return lines


def vertex_tables(folder: Path, nodes: str | Mapping[str, str] | None) -> dict[str, TableFiles]:
    """The files of `dataset.nodes`, by type.

    Raises:
        DataError: files are missing. Names all of them.
    """
    named = {} if nodes is None else {VERTEX: nodes} if isinstance(nodes, str) else dict(nodes)
    findings = Findings()
    is_single = isinstance(nodes, str)
    files_of = {
        kind: findings.attempt(find_files, "dataset.nodes" if is_single else f"dataset.nodes.{kind}", folder, text)
        for kind, text in named.items()
    }
    findings.raise_all()
    return {kind: files for kind, files in files_of.items() if files is not None}


def edge_tables(folder: Path, edges: EdgeEntries, options: ColumnOptions) -> list[EdgeTable]:
    """The files of `dataset.edges`, in order.

    Raises:
        DataError: files are missing. Names all of them.
    """
    named = {EDGE: edges} if isinstance(edges, str) else edges
    findings = Findings()
    tables = []
    for name, entry_of in named.items():
        entry: Mapping[str, str | None] = {"table": entry_of} if isinstance(entry_of, str) else entry_of
        key = "dataset.edges" if isinstance(edges, str) else f"dataset.edges.{name}"
        files = findings.attempt(find_files, key, folder, entry["table"] or "")
        if files is not None:
            tables.append(
                EdgeTable(
                    name,
                    files,
                    (entry.get("from") or VERTEX, entry.get("to") or VERTEX),
                    entry.get("source") or options.source,
                    entry.get("destination") or options.destination,
                    entry.get("weight", options.weight),
                    entry.get("relation", options.relation),
                    (entry.get("time") or options.time) if options.links_by_time else None,
                )
            )
    findings.raise_all()
    return tables


def check_tables(nodes: str | Mapping[str, str] | None, edges: EdgeEntries) -> list[Problem]:
    """Problems of `dataset.nodes` and `dataset.edges` that are visible without files."""
    problems = []
    fix = "set dataset.edges=TABLE, or dataset.edges.TYPE={table: FILE, from: TYPE, to: TYPE}"
    for name, entry in () if isinstance(edges, str) else edges.items():
        if isinstance(entry, str):
            continue
        if not isinstance(entry, Mapping) or "table" not in entry:
            problems.append(Problem(f"dataset.edges.{name}", entry, "needs the key table", fix))
        else:
            problems += [
                Problem(f"dataset.edges.{name}.{key}", value, f"keys are {', '.join(_EDGE_KEYS)}, with texts", fix)
                for key, value in entry.items()
                if key not in _EDGE_KEYS or not (isinstance(value, str) or (key in _OPTIONAL and value is None))
            ]
    if not edges:
        problems.append(Problem("dataset.edges", edges, "needs one table or more", fix))
    if nodes is not None and not nodes:
        problems.append(
            Problem("dataset.nodes", nodes, "must be a table, a table for each type, or null", "set dataset.nodes=null")
        )
    return problems


def find_layout(
    reader: Engine,
    vertices: Mapping[str, TableFiles],
    edges: Sequence[EdgeTable],
    form: TextForm,
    options: ColumnOptions,
) -> TableLayout:
    """What each column means.

    Raises:
        DataError: columns are missing or ambiguous. Names all problems.
    """
    findings = Findings()
    findings.problems += _path_problems([*vertices.values(), *(entry.files for entry in edges)], form)
    tables = {kind: findings.attempt(_opened, reader, files, form, options, kind) for kind, files in vertices.items()}
    read_tables = {kind: table for kind, table in tables.items() if table is not None}
    if len(read_tables) == len(vertices):
        findings.problems += _named_nowhere(read_tables, options)
    nodes = {
        kind: findings.attempt(_vertex_columns, reader, table, kind, options) for kind, table in read_tables.items()
    }
    links = [findings.attempt(_edge_columns, reader, entry, form, options) for entry in edges]
    findings.raise_all()
    known = {kind: columns for kind, columns in nodes.items() if columns is not None}
    read = [columns for columns in links if columns is not None]
    types = dict.fromkeys([*known, *(kind for columns in read for kind in columns.types)])
    layout = TableLayout(_with_one_target(known, options), read, list(types), frozenset())
    texts = {kind for table, name, kind in layout.ids() if not findings.attempt(are_integers, reader, table, name)}
    findings.raise_all()
    return replace(layout, texts=frozenset(texts))


def _opened(reader: Engine, files: TableFiles, form: TextForm, options: ColumnOptions, *kinds: str) -> SqlTable:
    """A table, of which it is clear whether its first line has names; it may name the types of vertices `kinds`."""
    table = reader.table(files, form)
    if form.header is None:
        if is_only_header(reader, table, kinds):
            return reader.table(files, replace(form, header=True))
        check_first_line(table, kinds)
    forced = [name for name in options.as_text if name in table.types]
    return reader.table(files, form, as_text=forced) if forced else table


def _edge_columns(reader: Engine, entry: EdgeTable, form: TextForm, options: ColumnOptions) -> EdgeColumns:
    table = _opened(reader, entry.files, form, options, *entry.types)
    source, destination = ends = end_columns(table, entry.source, entry.destination, entry.types)
    weight = column(table, "weight", entry.weight, needed=False, taken=ends)
    relation = _relation_column(table, entry.relation, [*ends, *([weight] if weight else [])])
    time = column(table, "time", entry.time, needed=True, taken=ends)
    if weight is not None:
        table = as_weights(reader, table, weight)
    table = with_fractions(reader, table, time)
    moment = None if time is None else moment_of(table, time)
    names = [*ends, *([relation] if relation else [])]
    table = with_points(reader, reader.as_written(table, dict.fromkeys(names)), names)
    if relation and entry.relation == AUTO and table.look(relation) not in RELATIONS and relation not in table.points:
        relation = None  # real numbers
    table, values = (table, None) if relation is None else relation_of(reader, table, relation)
    return EdgeColumns(entry.name, table, source, destination, entry.types, weight, values, moment)


def _path_problems(tables: Sequence[TableFiles], form: TextForm) -> list[Problem]:
    """Problems of `dataset.path_columns`."""
    problems = []
    for name in form.path_columns:
        inside = [files for files in tables if any(value is not None for value in path_values(files, name))]
        if not inside:
            problems.append(
                Problem(
                    "dataset.path_columns",
                    name,
                    f"no file is in a folder {name}=…",
                    "correct the name, or the files' folders",
                )
            )
        problems += [
            Problem(
                "dataset.path_columns",
                name,
                f"Arrow files have no such columns: {files.shown}",
                "write them as Parquet",
            )
            for files in inside
            if files.format == "arrow"
        ]
    return problems


def _relation_column(table: SqlTable, asked: str | None, taken: Sequence[str]) -> str | None:
    """The column of relations. A guessed one must have texts or whole numbers, in a text perhaps with `.0`.

    Raises:
        DataError: a column of a typed table has other values.
    """
    name = column(table, "relation", asked, needed=False, taken=taken)
    if name is None or table.types[name] in RELATIONS:
        return name
    if asked == AUTO:
        return name if table.files.format == "text" and table.types[name] in REAL else None
    if table.files.format in ("text", "json"):
        return name
    raise DataError(
        Problem(
            f"{table.files.shown}, column {name}",
            table.types[name],
            "relations are texts or whole numbers",
            "set dataset.relation=null, or another column",
        )
    )


def _named_nowhere(tables: Mapping[str, SqlTable], options: ColumnOptions) -> list[Problem]:
    """Problems of columns that the configuration names and no table of vertices has."""
    if options.known is not None:
        return []
    named = [("label", options.label), ("split_column", options.split_column)]
    named += [("features", name) for name in options.features or () if not isinstance(options.features, str)]
    named += [("categories", name) for name in options.categories]
    columns = [name for table in tables.values() for name in table.types]
    return [
        Problem(
            f"dataset.{key}",
            name,
            f"no table of vertices has this column; columns are {', '.join(columns)}",
            f"set dataset.{key} to one of them",
        )
        for key, name in named
        if name not in (None, AUTO, *columns) and tables
    ]


def _vertex_columns(reader: Engine, table: SqlTable, kind: str, options: ColumnOptions) -> VertexColumns:
    def here(name: str | None) -> str | None:  # with several types, a column may be in the table of another type
        return name if name == AUTO or name in table.types else None

    identity = column(table, "id", options.id, needed=True, usual=() if kind == VERTEX else words_of(kind))
    assert identity is not None
    split = column(table, "split", here(options.split_column), needed=False, taken=(identity,))
    taken = [identity] if split is None else [identity, split]
    known = None if options.known is None else _known_columns(table, options.known.get(kind, ()))
    taken += [] if known is None else [*known[0], *known[1]]
    label = time = None
    if options.target in (None, kind):
        label = column(table, "label", here(options.label), needed=False, taken=taken)
    taken += [] if label is None else [label]
    if options.time is not None and label is not None:
        time = _vertex_time(table, here(options.time), options.time, taken)
        taken.append(time)
    features, categories = known or _chosen_features(table, taken, options)
    _refuse_texts(reader, table, features, may_be_empty=known is not None)
    names = [name for name in (identity, label, split, *categories) if name is not None]
    written = with_points(reader, reader.as_written(table, dict.fromkeys(names)), [identity])
    table = with_fractions(reader, reader.as_numbers(table, features), time)
    return VertexColumns(kind, table, written, identity, label, split, tuple(features), tuple(categories), time)


def _vertex_time(table: SqlTable, name: str | None, asked: str, taken: Sequence[str]) -> str:
    """The column of times by which vertices are split.

    Raises:
        DataError: the table has none.
    """
    time = column(table, "time", name, needed=True, taken=taken)
    if time is not None:
        return time
    raise DataError(
        Problem(
            "dataset.time",
            asked,
            f"{table.files.shown} has no such column, and its labelled vertices are split by time",
            "name a column of both tables, or set dataset.label=null",
        )
    )


def _chosen_features(table: SqlTable, taken: Sequence[str], options: ColumnOptions) -> tuple[list[str], list[str]]:
    """The columns of numbers and those of categories, as the configuration says."""
    categories = [name for name in options.categories if name in table.types]
    if options.features == AUTO:
        without = (*taken, *options.categories)
        return numeric(table, [name for name in table.types if name not in without]), categories
    return [name for name in options.features or () if name in table.types], categories


def _refuse_texts(reader: Engine, table: SqlTable, features: Sequence[str], *, may_be_empty: bool) -> None:
    """Refuse features that are no numbers; without a cell, a column may be of any type if it `may_be_empty`."""
    numbers = numeric(table, features)
    texts = [name for name in features if name not in numbers and not (may_be_empty and _is_empty(reader, table, name))]
    fix = (
        "set dataset.categories=[{}] for one feature per value, or dataset.features=FILE.npy for rows that a model made"
    )
    DataError.raise_all([no_numbers(reader, table, name, f"{fix.format(name)} of texts") for name in texts])


def _is_empty(reader: Engine, table: SqlTable, name: str) -> bool:
    """Whether all cells of a column are empty. Text does not say then that the column has numbers."""
    return not reader.rows(f"SELECT count({quoted(name)}) FROM {table.name}", table)[0][0]


def _known_columns(table: SqlTable, entries: Sequence[Column]) -> tuple[list[str], list[str]]:
    """The columns of numbers and the columns of categories that a trained model takes.

    Raises:
        DataError: the table lacks some of them.
    """
    numbers = [entry["column"] for entry in entries if "column" in entry and "width" in entry]
    categories = [entry["column"] for entry in entries if "values" in entry]
    missing = [name for name in (*numbers, *categories) if name not in table.types]
    DataError.raise_all(
        [
            Problem(
                f"{table.files.shown}, column {name}",
                "missing",
                f"the model was trained with this column; the table has {', '.join(table.types)}",
                "give the table this column",
            )
            for name in missing
        ]
    )
    return numbers, categories


def _with_one_target(vertices: Mapping[str, VertexColumns], options: ColumnOptions) -> Mapping[str, VertexColumns]:
    """The same tables.

    Raises:
        DataError: labels are in the tables of several types, or not in the table of `dataset.target`.
    """
    labelled = [kind for kind, columns in vertices.items() if columns.label is not None]
    if len(labelled) > 1:
        raise DataError(
            Problem(
                "dataset.target",
                None,
                f"the tables of {', '.join(labelled)} have labels",
                f"set dataset.target={labelled[0]}, the type of which classes are predicted",
            )
        )
    if options.target is not None and options.target not in labelled and options.known is None:
        raise DataError(
            Problem(
                "dataset.target",
                options.target,
                f"its table has no column of labels; types with tables are {', '.join(vertices)}",
                "set dataset.label=COLUMN, or another dataset.target",
            )
        )
    return vertices
