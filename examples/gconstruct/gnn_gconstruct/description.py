"""GraphStorm's JSON file for `gconstruct.construct_graph`: which tables have vertices and edges.

The format: https://graphstorm.readthedocs.io/en/latest/cli/graph-construction/single-machine-gconstruct.html
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnexp.datasets.reading.content import json_that_has
from gnnexp.datasets.tables.files import Format, TableFiles
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.files.regular import is_file, why_unreadable

FORMAT_FIX = "see https://graphstorm.readthedocs.io/en/latest/cli/graph-construction/single-machine-gconstruct.html"
_FORMATS: Mapping[str, Format | None] = {"csv": "text", "parquet": "parquet", "json": "json", "hdf5": None}
_WORDS = [b'"nodes"', b'"edges"', b'"files"']
_SPLITS = {"train": "train", "valid": "val", "test": "test"}
# What GraphStorm takes for labels without shares.
_SHARES = (0.8, 0.1, 0.1)


@dataclass(frozen=True)
class Feature:
    """A feature: its column, and what becomes of it (`transform` with its `name`; without a name: no-op)."""

    column: str
    transform: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Name of the transform."""
        return str(self.transform.get("name") or "no-op")


@dataclass(frozen=True)
class Label:
    """Labels of vertices.

    Attributes:
        column: the column.
        shares: shares for training, validation and test.
        files: files with the ids of `train`, `val` and `test`; empty if the split is by shares.
        id_column: column of the ids in Parquet files.
    """

    column: str
    shares: tuple[float, ...]
    files: Mapping[str, Sequence[Path]]
    id_column: str | None


@dataclass(frozen=True)
class Entry:
    """A table of vertices or edges.

    Attributes:
        kind: type of the vertices, or `source`, relation and `destination` of the edges.
        files: its files.
        is_hdf5: whether the files are HDF5.
        separator: separator of columns in text.
        columns: column of ids (vertices; None: numbers of rows), or of both ends (edges).
        features: features.
        labels: labels of vertices.
        notes: what gnnexp leaves out.
    """

    kind: tuple[str, ...]
    files: TableFiles
    is_hdf5: bool
    separator: str | None
    columns: tuple[str | None, ...]
    features: Sequence[Feature]
    labels: Sequence[Label]
    notes: Sequence[str]


@dataclass(frozen=True)
class Description:
    """The tables that a JSON file describes."""

    path: Path
    nodes: Sequence[Entry]
    edges: Sequence[Entry]

    def files(self) -> list[Path]:
        """All files, each once."""
        paths = [path for entry in (*self.nodes, *self.edges) for path in entry.files.paths]
        paths += [path for node in self.nodes for label in node.labels for ids in label.files.values() for path in ids]
        return list(dict.fromkeys(paths))


def _description_in(place: Path) -> Path | None:
    """GraphStorm's JSON file: `place`, or the only one in this folder; None if there is none."""
    candidates = [place] if place.suffix == ".json" else sorted(place.glob("*.json")) if place.is_dir() else []
    files = [file for file in candidates if is_file(file) and _is_description(json_that_has(file, _WORDS))]
    return files[0] if len(files) == 1 else None


def _is_description(content: object) -> bool:
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in ("nodes", "edges")):
        return False
    return bool(content["edges"]) and all(
        isinstance(entry, dict) and "files" in entry and ("node_type" in entry or "relation" in entry)
        for entry in (*content["nodes"], *content["edges"])
    )


def read_description(place: Path) -> Description:
    """The tables of a JSON file, or of the only one in a folder.

    Raises:
        DataError: there is no such file, it does not fit the format, or tables are missing. Names all problems.
    """
    path = _description_in(place)
    if path is None:
        reason = None if place.is_dir() else why_unreadable(place) or "lacks nodes or edges"
        value = str(reason or "no JSON file with nodes and edges, or several")
        raise DataError(Problem(str(place), value, "must be a JSON file of GraphStorm's gconstruct", FORMAT_FIX))
    content: Any = json_that_has(path, _WORDS)
    findings = Findings()
    nodes = [findings.attempt(_entry, path, "nodes", number, entry) for number, entry in enumerate(content["nodes"])]
    edges = [findings.attempt(_entry, path, "edges", number, entry) for number, entry in enumerate(content["edges"])]
    findings.raise_all()
    description = Description(path, [entry for entry in nodes if entry], [entry for entry in edges if entry])
    kinds = [entry.kind for entry in (*description.nodes, *description.edges)]
    said = "is there more than once: gnnexp needs all columns of a type in one set of files"
    twice = [kind for kind in dict.fromkeys(kinds) if kinds.count(kind) > 1]
    DataError.raise_all([Problem(str(path), ":".join(kind), said, "join the tables") for kind in twice])
    return description


def _entry(path: Path, section: str, number: int, entry: Mapping[str, Any]) -> Entry:
    key = f"{path}: {section}[{number}]"
    try:
        return _parsed(path.parent, key, entry, is_node=section == "nodes")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            Problem(key, f"{type(error).__name__}: {error}"[:200], "must have GraphStorm's keys", FORMAT_FIX)
        ) from None


def _parsed(folder: Path, key: str, entry: Mapping[str, Any], *, is_node: bool) -> Entry:
    form = entry.get("format") or {}
    paths = _paths(folder, key, entry["files"])
    name = str(form.get("name") or {".h5": "hdf5"}.get(paths[0].suffix, paths[0].suffix[1:])).lower()
    if name not in _FORMATS:
        raise ValueError(f"format {name}")
    files = TableFiles(key, tuple(paths), _FORMATS[name] or "parquet")
    kind = (str(entry["node_type"]),) if is_node else tuple(str(part) for part in entry["relation"])
    columns = (entry.get("node_id_col"),) if is_node else (entry["source_id_col"], entry["dest_id_col"])
    if len(kind) != (1 if is_node else 3):
        raise ValueError(f"relation {list(kind)}")
    features = [
        Feature(str(column), part.get("transform") or part)
        for part in entry.get("features") or ()
        for column in ([part["feature_col"]] if isinstance(part["feature_col"], str) else part["feature_col"])
    ]
    labels, notes = [], []
    for part in entry.get("labels") or ():
        task = str(part.get("task_type"))
        if is_node and task in ("classification", "regression"):
            labels.append(_label(folder, key, part))
        else:
            shares = f", shares {part['split_pct']}" if "split_pct" in part else ""
            notes.append(
                f"{':'.join(kind)}: the task {task}{shares} of the file is not used"
                + ("; dataset.link_split holds out links" if task == "link_prediction" else "")
            )
    return Entry(kind, files, name == "hdf5", form.get("separator"), columns, features, labels, notes)


def _label(folder: Path, key: str, entry: Mapping[str, Any]) -> Label:
    shares = tuple(map(float, entry.get("split_pct") or _SHARES))
    if len(shares) != 3 or min(shares) < 0 or sum(shares) > 1 + 1e-9:
        raise ValueError(f"split_pct {list(shares)}")
    given = entry.get("custom_split_filenames") or {}
    column = given.get("column")
    files = {name: _paths(folder, key, given[other]) for other, name in _SPLITS.items() if given.get(other)}
    return Label(str(entry["label_col"]), shares, files, column[0] if isinstance(column, list) else column)


def _paths(folder: Path, key: str, named: str | Sequence[str]) -> list[Path]:
    """The files: relative names belong to the folder of the JSON file or, as in GraphStorm, to the current one.

    Raises:
        DataError: there are none.
    """
    files: list[Path] = []
    for text in [named] if isinstance(named, str) else named:
        places = [folder / text, Path(text)]
        here = next((path for path in places if is_file(path)), None)
        folders = [path for path in places if path.is_dir()]
        if here is not None:
            files.append(here)
        elif folders:
            files += [path for path in folders[0].iterdir() if is_file(path) and not path.name.startswith((".", "_"))]
        else:
            matches = [sorted(glob.glob(str(path))) for path in places] if "*" in text else []  # noqa: PTH207
            files += [Path(path) for path in next((names for names in matches if names), [])]
        if not files:
            raise DataError(Problem(key, text, f"no such file: {places[0]}", "correct `files`, or put the file there"))
    return sorted(dict.fromkeys(files))
