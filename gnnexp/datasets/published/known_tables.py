"""Folders of tables in known forms: MUSAE's data sets, ego networks of SNAP, and data sets of the Hugging Face Hub."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnnexp.components.texts import hydra_text
from gnnexp.datasets.reading.content import endings
from gnnexp.datasets.tables.files import tables_in
from gnnexp.datasets.tables.roles import NAMES, PAIRS, plain
from gnnexp.datasets.tables.vertices import SPLIT_WORDS, first_word
from gnnexp.errors import DataError, Problem
from gnnexp.files.foreign_yaml import parse_yaml
from gnnexp.files.regular import is_file, read_limited

_TARGETS = ("target", "ml_target", "page_type", "mature")  # columns of classes of MUSAE's data sets
_MOST_CLASSES = 200
_README_BYTES, _HEADER = 1 << 20, 1 << 16
_SHARD = re.compile(r"^(?P<stem>.+?)-\d{5}-of-\d{5}\.parquet$")


def known_tables(place: Path) -> list[str] | None:
    """Overrides of `dataset=tables` for a place of a known form; None for any other place.

    Raises:
        DataError: the place has a graph in each row.
    """
    try:
        return _musae(place) or _ego(place) or _hugging_face(place)
    except (OSError, csv.Error):  # what cannot be read is said by the code that reads it
        return None


# --- MUSAE (Rozemberczki et al., Journal of Complex Networks 2021), and other sets of this author ---------------------
def _musae(folder: Path) -> list[str] | None:
    """`NAME_edges.csv`, `NAME_target.csv` and `NAME_features.json` or `NAME.json`, next to files that describe them."""
    if not folder.is_dir():
        return None
    names = [path.name.removesuffix("_edges.csv") for path in sorted(folder.glob("*_edges.csv")) if is_file(path)]
    if len(names) != 1 or not is_file(folder / f"{names[0]}_target.csv"):
        return None
    [name] = names
    words = [
        name_of_file for name_of_file in (f"{name}_features.json", f"{name}.json") if is_file(folder / name_of_file)
    ]
    if len(words) != 1:
        return None
    target = f"{name}_target.csv"
    lines = [
        _path(folder),
        f"dataset.nodes={hydra_text(target)}",
        f"dataset.edges={hydra_text(f'{name}_edges.csv')}",
        f"dataset.features={hydra_text(words[0])}",
    ]
    columns, values = _csv(folder / target)
    # Edges of the sets of Twitch name vertices by the column `new_id`.
    lines += ["dataset.id=new_id"] if "new_id" in columns else []
    label = next((target for target in _TARGETS if target in columns), None)
    if label is None or len(values[label]) > _MOST_CLASSES:  # numbers of visits of Wikipedia's pages are no classes
        return [*lines, "dataset.label=null"] if label else lines
    return [*lines, f"dataset.label={label}"]


def _csv(path: Path) -> tuple[list[str], dict[str, set[str]]]:
    """The columns of a small table, and the different values of each, up to a limit."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.DictReader(file)
        columns = list(rows.fieldnames or ())
        values: dict[str, set[str]] = {name: set() for name in columns}
        for row in rows:
            for name in _TARGETS:
                if name in values and len(values[name]) <= _MOST_CLASSES:
                    values[name].add(row[name] or "")
    return columns, values


def _path(folder: Path) -> str:
    return f"dataset.path={hydra_text(str(folder))}"


# --- SNAP: ego-Facebook and others ------------------------------------------------------------------------------------
def _ego(place: Path) -> list[str] | None:
    """`EGO.edges` next to `EGO.feat`: features of the friends of one person. Circles overlap, and are not read."""
    if endings(place) != ".edges" or not is_file(place):
        return None
    features = place.with_name(f"{place.name.removesuffix('.gz').removesuffix('.edges')}.feat")
    if not is_file(features):
        return None
    with features.open(encoding="utf-8", errors="replace") as file:
        width = len(file.readline().split())
    first = f"column{0:0{len(str(width - 1))}d}"  # as DuckDB names columns without names
    return [
        _path(place.parent),
        f"dataset.edges={hydra_text(place.name)}",
        f"dataset.nodes={hydra_text(features.name)}",
        f"dataset.id={first}",
        "dataset.label=null",
        "dataset.header=false",
        "dataset.delimiter=' '",
    ]


# --- Hugging Face Hub -------------------------------------------------------------------------------------------------
def _hugging_face(folder: Path) -> list[str] | None:
    """Parquet shards of vertices and of edges: configurations of `README.md`, folders, or shards by name in `data`."""
    if not folder.is_dir():
        return None
    tables = _configurations(folder) or _shards(folder)
    edges, nodes = [], []
    for name, paths in tables.items():
        columns = _columns(paths[0])
        if "edge_index" in columns:
            raise DataError(
                Problem(
                    str(paths[0]),
                    columns,
                    "each row is a graph; gnnexp trains on one graph",
                    "write the vertices and the edges of all graphs into two tables",
                )
            )
        plain_names = {plain(column) for column in columns}
        if any({*pair} <= plain_names for pair in PAIRS) or "edge" in name:
            edges.append(paths)
        elif plain_names & {*NAMES["id"]} or "node" in name or "vert" in name:
            nodes.append(paths)
    texts = [_text(folder, paths) for paths in (*edges, *nodes)]
    if len(edges) != 1 or len(nodes) > 1 or len(tables) != len(texts) or None in texts:
        return None
    lines = [_path(folder), f"dataset.edges={hydra_text(str(texts[0]))}"]
    lines += [f"dataset.nodes={hydra_text(str(texts[1]))}"] if nodes else []
    splits = {SPLIT_WORDS.get(first_word(path)) for paths in nodes for path in paths}
    return [*lines, "dataset.split=files"] if len(splits) > 1 and None not in splits else lines


def _configurations(folder: Path) -> dict[str, list[Path]]:
    """The files of each configuration in the first lines of `README.md`; empty if there are none."""
    try:
        text = read_limited(folder / "README.md", _README_BYTES).decode("utf-8-sig")
        header = text.split("---", 2)[1] if text.startswith("---") else ""
        content = parse_yaml(header.encode()) if len(header) <= _HEADER else None
    except (OSError, ValueError):
        return {}
    tables: dict[str, list[Path]] = {}
    configs = content.get("configs") if isinstance(content, dict) else None
    for entry in configs if isinstance(configs, list) else ():
        if isinstance(entry, dict):
            paths = [
                path for pattern in _patterns(entry.get("data_files")) for path in sorted(_matches(folder, pattern))
            ]
            tables[str(entry.get("config_name"))] = [path for path in dict.fromkeys(paths) if is_file(path)]
    return {name: paths for name, paths in tables.items() if paths and all(path.suffix == ".parquet" for path in paths)}


def _patterns(entry: object) -> list[str]:
    """The patterns of `data_files`: a text, or a list of texts and of `{split: NAME, path: ...}`."""
    entries = [one.get("path") if isinstance(one, Mapping) else one for one in _listed(entry)]
    return [text for one in entries for text in _listed(one) if isinstance(text, str)]


def _listed(entry: object) -> list[object]:
    return entry if isinstance(entry, list) else [entry]


def _matches(folder: Path, pattern: str) -> list[Path]:
    """Files inside of a folder."""
    if pattern.startswith(("/", "~")) or ".." in Path(pattern).parts or pattern.count("**") > 1:
        return []
    try:
        return list(folder.glob(pattern))
    except (ValueError, NotImplementedError):  # no pattern
        return []


def _shards(folder: Path) -> dict[str, list[Path]]:
    """Numbered Parquet shards in the folders below: a folder is a table, except `data`, where names tell tables."""
    tables: dict[str, list[Path]] = {}
    for inner in sorted(entry for entry in (*folder.iterdir(), *folder.glob("data/*")) if entry.is_dir()):
        for path in tables_in(inner):
            shard = _SHARD.match(path.name)
            if shard is None:
                continue
            own = inner.name == "data" and shard["stem"].lower() not in SPLIT_WORDS
            tables.setdefault(shard["stem"] if own else inner.name, []).append(path)
    return tables


def _columns(path: Path) -> list[str]:
    from pyarrow import ArrowException, parquet

    try:
        return list(parquet.read_schema(path).names)
    except (ArrowException, OSError):
        return []


def _text(folder: Path, paths: Sequence[Path]) -> str | None:
    """How `dataset.nodes` names these files: one file, a folder or a pattern; None if none of them fits."""
    inner, wanted = paths[0].parent, sorted(paths)
    relative = inner.relative_to(folder)
    if len(paths) == 1:
        return str(relative / paths[0].name)
    if relative.parts and [*tables_in(inner)] == wanted:
        return str(relative)
    pattern = f"{re.split(r'-[0-9]', paths[0].name)[0]}-*.parquet"
    return str(relative / pattern) if sorted(inner.glob(pattern)) == wanted else None
