"""Which table of a folder has edges, and which has vertices, found by the names of their columns and files."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnexp.components.texts import hydra_text
from gnnexp.datasets.looking.places import tables_at
from gnnexp.datasets.looking.text import FIRST, is_unnamed, read_tables
from gnnexp.datasets.reading.content import JSON_FACTOR, content_of, start_of
from gnnexp.datasets.reading.npz import NpzFile, open_npy
from gnnexp.datasets.tables.engine import Engine, engine
from gnnexp.datasets.tables.roles import AUTO, NAMES, PAIRS, column, plain, words_of
from gnnexp.datasets.tables.scan import SqlTable
from gnnexp.datasets.tables.scan import quoted as in_sql
from gnnexp.datasets.tables.vertices import SPLIT_WORDS
from gnnexp.datasets.tables.written import numeric
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import parse_json

_MEMORY = 1 << 29
_FIRST = 1000
_MOST_CLASSES = 200
_MOST_JSON = 1 << 30
_BEGIN_LISTS = re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"[^"]*"\s*:\s*\[')
# Parts of the names of files whose columns have no names.
_OF_NODES = ("node", "vert", "label", "class", "target", "categor", "attribute", "feature")


@dataclass(frozen=True)
class _Found:
    """Tables of a folder by what they hold."""

    edges: Mapping[str, SqlTable]
    nodes: Mapping[str, SqlTable]
    rows: Sequence[Path]
    texts: Mapping[str, str]  # how the configuration names each table


def guess_tables(place: Path, named: Path) -> tuple[list[str], dict[str, int]] | None:
    """Overrides of `dataset=tables` for a table or a folder of tables; None if there is none.

    Also columns that may be classes, with the number of their values in the first rows.

    Args:
        place: the tables that are read.
        named: the place that the overrides name: `place`, or the place of which that is a sample.

    Raises:
        DataError: a table cannot be read, or it is not clear which tables have edges.
    """
    folder = named if named.is_dir() else named.parent
    with tempfile.TemporaryDirectory() as scratch, engine(Path(scratch), _MEMORY, os.cpu_count() or 1) as reader:
        sorted_tables, form = _sorted(reader, place)
        if not sorted_tables.edges and not sorted_tables.nodes:
            return None
        if not sorted_tables.edges:
            raise DataError(
                Problem(
                    "PATH",
                    str(place),
                    "no table has two columns for the ends of edges "
                    f"({', '.join('/'.join(pair) for pair in PAIRS[:4])}, …)",
                    "name them: gnnexp run dataset=tables dataset.edges=FILE dataset.source=COLUMN "
                    "dataset.destination=COLUMN",
                )
            )
        overrides = [
            "dataset=tables",
            f"dataset.path={hydra_text(str(folder))}",
            *form,
            *_overrides(reader, sorted_tables),
        ]
        return overrides, _classes(reader, sorted_tables.nodes)


def _classes(reader: Engine, nodes: Mapping[str, SqlTable]) -> dict[str, int]:
    """Columns of texts or whole numbers with few values, and how many."""
    found = {}
    for table in nodes.values():
        for name, kind in table.types.items():
            if kind in ("VARCHAR", "BOOLEAN", "BIGINT", "INTEGER") and plain(name) not in NAMES["id"]:
                values, rows = _values(reader, table, name)
                if 2 <= values <= min(_MOST_CLASSES, rows // 2):
                    found[name] = values
    return found


def _values(reader: Engine, table: SqlTable, name: str) -> tuple[int, int]:
    """Different values and all values in the first rows of a column."""
    first = f"(SELECT {in_sql(name)} AS value FROM {table.name} LIMIT {FIRST})"
    values, rows = reader.rows(f"SELECT count(DISTINCT value), count(value) FROM {first}", table)[0]
    return values, rows


def _sorted(reader: Engine, place: Path) -> tuple[_Found, list[str]]:
    """The tables of a place by what they hold, and overrides for how texts are written."""
    places, others = tables_at(place)
    rows = [path for path in others if path.suffix in (".npy", ".npz") and _is_matrix(path)]
    bags = [source for source in places if source.text.endswith(".json") and _names_lists(source.files.paths[0])]
    rows += [source.files.paths[0] for source in bags]
    tables, form = read_tables(reader, [source for source in places if source not in bags])
    groups: dict[str, dict[str, SqlTable]] = {"edges": {}, "nodes": {}, "": {}}
    for name, table in tables.items():
        groups[_group(reader, name, table)][name] = table
    edges, nodes = groups["edges"], groups["nodes"]
    for name, table in groups[""].items():
        ends = [name for name in table.types for kind in nodes if plain(name) in words_of(kind)]
        if len(ends) != 2:
            raise DataError(
                Problem(
                    table.files.shown,
                    list(table.types),
                    "it is not clear whether this table has vertices or edges",
                    "rename its columns (id; source and target), move it away, or "
                    "name the tables yourself: docs/howto/dataset.md",
                )
            )
        edges[name] = table
    return _Found(edges, nodes, rows, {source.name: source.text for source in places}), form


def _group(reader: Engine, place: str, table: SqlTable) -> str:
    """`edges` or `nodes`, by the names of columns; empty if neither fits."""
    names = {plain(name) for name in table.types}
    if any({first, second} <= names for first, second in PAIRS):
        return "edges"
    if names & {*NAMES["id"]} or any(name.endswith("_id") for name in names if len(names) == 1):
        return "nodes"
    identities = [name for name in names if name.endswith("_id") or name == "id"]
    if len(identities) == 1:
        return "nodes"
    kinds = list(table.types.values())
    if is_unnamed(table):
        return _group_of_unnamed(reader, place, table)
    two_ends = len(identities) == 2 or (len(kinds) == 2 and kinds[0] == kinds[1])
    return "edges" if two_ends else ""


def _group_of_unnamed(reader: Engine, place: str, table: SqlTable) -> str:
    """By the name of the file, or by the types of the columns: two of one type are ends, a third is a weight."""
    kinds = list(table.types.values())
    if any(word in place for word in _OF_NODES):
        different, rows = _values(reader, table, next(iter(table.types)))
        return "nodes" if different == rows else ""
    return "edges" if len(kinds) in (2, 3) and kinds[0] == kinds[1] else ""


def _is_matrix(path: Path) -> bool:
    if path.suffix == ".npy":
        return open_npy(path).ndim == 2
    return "indptr" in NpzFile(path)


def _names_lists(path: Path) -> bool:
    """Whether a JSON file is `{id: [number, ...]}`.

    Raises:
        DataError: it begins so, and is too large for the memory.
    """
    if path.stat().st_size > _MOST_JSON or not _BEGIN_LISTS.match(start_of(path)):
        return False
    text = content_of(path, JSON_FACTOR)
    try:
        content = parse_json(text)
    except ValueError:
        return False
    return isinstance(content, dict) and bool(content) and all(isinstance(names, list) for names in content.values())


def _overrides(reader: Engine, tables: _Found) -> list[str]:
    edges, nodes, lines = tables.edges, tables.nodes, list[str]()
    if len(nodes) == 1:
        [(name, table)] = nodes.items()
        lines += [f"dataset.nodes={hydra_text(tables.texts[name])}", *_of_nodes(reader, table)]
    elif nodes:
        entries = (f"{kind}: {hydra_text(tables.texts[kind])}" for kind in nodes)
        lines.append(f"dataset.nodes={{{', '.join(entries)}}}")
    if len(edges) == 1 and len(nodes) < 2:
        [(name, table)] = edges.items()
        lines += [f"dataset.edges={hydra_text(tables.texts[name])}", *_of_edges(table)]
    else:
        entries = (f"{kind}: {{{', '.join(_entry(reader, tables, kind))}}}" for kind in edges)
        lines.append(f"dataset.edges={{{', '.join(entries)}}}")
    if len(tables.rows) == 1 and len(nodes) < 2:
        lines.append(f"dataset.features={hydra_text(tables.rows[0].name)}")
    if any(_has_split(reader, table) for table in nodes.values()):
        lines.append("dataset.split=column")
    if any(_has_empty_cells(reader, table) for table in nodes.values()):
        lines.append("dataset.empty=mean")
    return lines


def _of_nodes(reader: Engine, table: SqlTable) -> list[str]:
    """The columns of the only table of vertices, where their names do not say it."""
    names = list(table.types)
    if is_unnamed(table):
        few = len(names) == 2 and _values(reader, table, names[1])[0] <= _MOST_CLASSES
        return [f"dataset.id={names[0]}", *([f"dataset.label={names[1]}"] if few else [])]
    identities = [name for name in names if plain(name).endswith("_id")]
    known = any(plain(name) in NAMES["id"] for name in names)
    return [] if known or len(identities) != 1 else [f"dataset.id={hydra_text(identities[0])}"]


def _of_edges(table: SqlTable) -> list[str]:
    """The columns of the only table of edges, where it has more than two without names."""
    names = list(table.types)
    if not is_unnamed(table) or len(names) == 2:
        return []
    return [f"dataset.{key}={name}" for key, name in zip(("source", "destination", "weight"), names, strict=True)]


def _has_split(reader: Engine, table: SqlTable) -> bool:
    """Whether a column has the words of a split and nothing else."""
    names = [name for name in table.types if plain(name) in NAMES["split"] and table.types[name] == "VARCHAR"]
    if len(names) != 1:
        return False
    words = reader.rows(
        f"SELECT DISTINCT trim(lower({in_sql(names[0])})) FROM {table.name} "
        f"WHERE {in_sql(names[0])} IS NOT NULL LIMIT {len(SPLIT_WORDS) + 1}",
        table,
    )
    return bool(words) and all(word in SPLIT_WORDS for (word,) in words)


def _has_empty_cells(reader: Engine, table: SqlTable) -> bool:
    """Whether numbers are missing in columns that may be features."""
    names = [
        name
        for name in numeric(table, list(table.types))
        if plain(name) not in {*NAMES["id"], *NAMES["label"], *NAMES["split"]}
    ]
    real = [name for name in names if not table.types[name].endswith("]")]
    if not real:
        return False
    missing = " OR ".join(f"{in_sql(name)} IS NULL OR isnan({in_sql(name)}::DOUBLE)" for name in real)
    return bool(reader.rows(f"SELECT count(*) FROM {table.name} WHERE {missing}", table)[0][0])


def _entry(reader: Engine, tables: _Found, place: str) -> list[str]:
    """The keys of a table of edges between types of vertices.

    The types follow from the names of the columns, or from their first ids, which are all of one type.
    """
    table, nodes = tables.edges[place], tables.nodes
    keys = [f"table: {hydra_text(tables.texts[place])}"]
    by_name = [(name, kind) for name in table.types for kind in nodes if plain(name) in words_of(kind)]
    if len(by_name) == 2:
        ends = by_name
    else:
        plain_names = {plain(name): name for name in table.types}
        names = next(
            ([plain_names[end] for end in pair] for pair in PAIRS if {*pair} <= {*plain_names}), list(table.types)[:2]
        )
        ends = [(name, _type_of(reader, table, name, nodes) if len(nodes) > 1 else "") for name in names]
    for end, key, (name, kind) in zip(("from", "to"), ("source", "destination"), ends, strict=False):
        keys += [f"{end}: {hydra_text(kind)}"] * bool(kind and len(nodes) > 1) + [f"{key}: {hydra_text(name)}"]
    return keys


def _type_of(reader: Engine, table: SqlTable, name: str, nodes: Mapping[str, SqlTable]) -> str:
    """The only type that has the first ids of a column; empty if none or several have them.

    If no type has all of them, as in a sample of the tables, it is the only type that has some.
    """
    some, every = [], []
    for kind, vertices in nodes.items():
        identity = column(vertices, "id", AUTO, needed=True, usual=words_of(kind))
        first = (
            f"(SELECT {in_sql(name)}::VARCHAR AS id FROM {table.name} WHERE {in_sql(name)} IS NOT NULL LIMIT {_FIRST})"
        )
        known_ids = f"(SELECT {in_sql(str(identity))}::VARCHAR FROM {vertices.name})"
        known, rows = reader.rows(f"SELECT count(*) FILTER (id IN {known_ids}), count(*) FROM {first}", table)[0]
        some += [kind] if known else []
        every += [kind] if known == rows else []
    kinds = every or some
    return kinds[0] if len(kinds) == 1 else ""
