"""Which file of a folder has edges, and which has vertices, found by the names of their columns."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnexp.datasets.reading.npz import NpzFile, open_npy
from gnnexp.datasets.tables.engine import Engine, Table, engine
from gnnexp.datasets.tables.engine import quoted as in_sql
from gnnexp.datasets.tables.files import TableFiles, format_of
from gnnexp.datasets.tables.roles import AUTO, NAMES, PAIRS, column, plain, words_of
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file

_MEMORY = 1 << 29
_FIRST = 1000
_ROWS, _MOST_CLASSES = 100_000, 200
_MOST_JSON = 1 << 30


@dataclass(frozen=True)
class _Found:
    """Tables of a folder by what they hold."""

    edges: Mapping[str, Table]
    nodes: Mapping[str, Table]
    rows: Sequence[Path]


def guess_tables(place: Path) -> tuple[list[str], dict[str, int]] | None:
    """Overrides of `dataset=tables` for a table or a folder of tables; None if there is none.

    Also columns that may be classes, with the number of their values in the first rows.

    Raises:
        DataError: a table cannot be read, or it is not clear which tables have edges.
    """
    folder = place if place.is_dir() else place.parent
    files = [one for one in (sorted(place.iterdir()) if place.is_dir() else [place]) if is_file(one)]
    with tempfile.TemporaryDirectory() as scratch, engine(Path(scratch), _MEMORY, os.cpu_count() or 1) as reader:
        found = _sorted(reader, files)
        if not found.edges and not found.nodes:
            return None
        if not found.edges:
            raise DataError(Problem("PATH", str(place), "no table has two columns for the ends of edges "
                                    f"({', '.join('/'.join(pair) for pair in PAIRS[:4])}, …)",
                                    "name them: gnnexp run dataset=tables dataset.edges=FILE dataset.source=COLUMN "
                                    "dataset.destination=COLUMN"))
        overrides = ["dataset=tables", f"dataset.path={quoted(str(folder))}", *_overrides(reader, found)]
        return overrides, _classes(reader, found.nodes)


def quoted(text: str) -> str:
    """A text as a value of an override."""
    plain_signs = all(one.isalnum() or one in "._-/+@" for one in text)
    return text if plain_signs and text else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _classes(reader: Engine, nodes: Mapping[str, Table]) -> dict[str, int]:
    """Columns of texts or whole numbers with few values, and how many."""
    found = {}
    for table in nodes.values():
        for name, kind in table.types.items():
            if kind not in ("VARCHAR", "BOOLEAN", "BIGINT", "INTEGER") or plain(name) in NAMES["id"]:
                continue
            first = f"(SELECT {in_sql(name)} AS value FROM {table.name} LIMIT {_ROWS})"
            values, rows = reader.rows(f"SELECT count(DISTINCT value), count(value) FROM {first}", table)[0]
            if 2 <= values <= min(_MOST_CLASSES, rows // 2):
                found[name] = values
    return found


def _sorted(reader: Engine, files: Sequence[Path]) -> _Found:
    edges: dict[str, Table] = {}
    nodes: dict[str, Table] = {}
    others: dict[str, Table] = {}
    rows: list[Path] = []
    for path in files:
        if path.suffix in (".npy", ".npz"):
            rows += [path] if _is_matrix(path) else []
        elif path.suffix == ".json" and _names_lists(path):
            rows.append(path)
        elif (kind := format_of(path)) is not None:
            table = reader.table(TableFiles("PATH", (path,), kind))
            {"edges": edges, "nodes": nodes, "": others}[_group(table)][path.name.split(".")[0]] = table
    for name, table in others.items():
        ends = [one for one in table.types for kind in nodes if plain(one) in words_of(kind)]
        if len(ends) != 2:
            raise DataError(Problem(table.files.shown, list(table.types), "it is not clear whether this table has "
                                    "vertices or edges", "rename its columns (id; source and target), move it away, or "
                                    "name the tables yourself: docs/howto/dataset.md"))
        edges[name] = table
    return _Found(edges, nodes, rows)


def _group(table: Table) -> str:
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
    two_ends = len(identities) == 2 or (len(kinds) == 2 and kinds[0] == kinds[1])
    return "edges" if two_ends else ""


def _is_matrix(path: Path) -> bool:
    if path.suffix == ".npy":
        return open_npy(path).ndim == 2
    return "indptr" in NpzFile(path)


def _names_lists(path: Path) -> bool:
    """Whether a JSON file is `{id: [number, ...]}`."""
    if path.stat().st_size > _MOST_JSON:
        return False
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and bool(content) and all(isinstance(one, list) for one in content.values())


def _overrides(reader: Engine, found: _Found) -> list[str]:
    edges, nodes = found.edges, found.nodes
    lines: list[str] = []
    if len(nodes) == 1 and not _typed(found):
        lines.append(f"dataset.nodes={quoted(next(iter(nodes.values())).files.paths[0].name)}")
    elif nodes:
        entries = (f"{kind}: {quoted(table.files.paths[0].name)}" for kind, table in nodes.items())
        lines.append(f"dataset.nodes={{{', '.join(entries)}}}")
    if len(edges) == 1 and not _typed(found):
        lines.append(f"dataset.edges={quoted(next(iter(edges.values())).files.paths[0].name)}")
    else:
        entries = (f"{kind}: {{{', '.join(_entry(reader, table, nodes))}}}" for kind, table in edges.items())
        lines.append(f"dataset.edges={{{', '.join(entries)}}}")
    if len(found.rows) == 1 and not _typed(found):
        lines.append(f"dataset.features={quoted(found.rows[0].name)}")
    return lines


def _typed(found: _Found) -> bool:
    return len(found.nodes) > 1


def _entry(reader: Engine, table: Table, nodes: Mapping[str, Table]) -> list[str]:
    """The keys of a table of edges between types of vertices.

    The types follow from the names of the columns, or from their first ids, which are all of one type.
    """
    keys = [f"table: {quoted(table.files.paths[0].name)}"]
    by_name = [(name, kind) for name in table.types for kind in nodes if plain(name) in words_of(kind)]
    if len(by_name) == 2:
        ends = by_name
    else:
        names = next(([one for one in table.types if plain(one) in pair] for pair in PAIRS
                      if {*pair} <= {plain(one) for one in table.types}), list(table.types)[:2])
        ends = [(name, _type_of(reader, table, name, nodes)) for name in names]
    for end, key, (name, kind) in zip(("from", "to"), ("source", "destination"), ends, strict=False):
        keys += [f"{end}: {kind}"] * bool(kind) + [f"{key}: {quoted(name)}"]
    return keys


def _type_of(reader: Engine, table: Table, name: str, nodes: Mapping[str, Table]) -> str:
    """The only type that has the first ids of a column; empty if none or several have them."""
    found = []
    for kind, vertices in nodes.items():
        identity = column(vertices, "id", AUTO, needed=True, usual=words_of(kind))
        first = (f"(SELECT {in_sql(name)}::VARCHAR AS id FROM {table.name} WHERE {in_sql(name)} IS NOT NULL "
                 f"LIMIT {_FIRST})")
        there = f"(SELECT {in_sql(str(identity))}::VARCHAR FROM {vertices.name})"
        if reader.rows(f"SELECT count(*) FROM {first} WHERE id NOT IN {there}", table)[0][0] == 0:
            found.append(kind)
    return found[0] if len(found) == 1 else ""

