"""`metadata.yaml` of GraphBolt, and the files that it names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.formats.dgl.tensors import read_tensors
from gnnexp.datasets.reading.content import start_of
from gnnexp.datasets.reading.npz import open_npy
from gnnexp.errors import DataError, Problem
from gnnexp.files.foreign_yaml import ALLOWED, MAX_BYTES, excess_of, parse_yaml
from gnnexp.files.inside import place_inside
from gnnexp.files.regular import is_file, why_unreadable

FORMAT_FIX = "see https://www.dgl.ai/dgl_docs/stochastic_training/ondisk-dataset-specification.html"
_NAME = "metadata.yaml"
_GRAPH = re.compile(rb"^graph(_topology)?\s*:", re.MULTILINE)
_PREPARED = Path("preprocessed") / _NAME
_PREPARED_FIX = (
    "put the raw metadata.yaml (with `graph`) into the folder again, or save the edges as in docs/howto/formats.md"
)
_SETS = ("train_set", "validation_set", "test_set")
_SEEDS = ("seeds", "seed_nodes", "node_pairs")
_ONE_TYPE, _ONE_RELATION = "_N", "_N:_E:_N"


@dataclass(frozen=True)
class EdgeType:
    """A type of edges, and the file of its edges."""

    types: tuple[str, str, str]
    format: str
    path: Path


@dataclass(frozen=True, eq=False)
class SetOfTask:
    """A set of a task for one type.

    Attributes:
        type: type of the vertices or edges; None: the only one.
        seeds: `[n]` vertices, or `[n, 2]` pairs.
        data: all data by name.
    """

    type: str | None
    seeds: np.ndarray
    data: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Metadata:
    """The content of `metadata.yaml`.

    Attributes:
        path: the file.
        folder: where the paths in it begin.
        counts: number of vertices of each type.
        edge_types: types of edges.
        content: everything.
        notes: what a user must know.
    """

    path: Path
    folder: Path
    counts: Mapping[str, int]
    edge_types: Sequence[EdgeType]
    content: Mapping[str, Any]
    notes: Sequence[str] = field(default=())

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks; a task without a name has its number."""
        return [str(one.get("name", number)) for number, one in enumerate(self.content.get("tasks") or ())]

    def _place(self, entry: Mapping[str, Any]) -> Path:
        return place_inside(self.path, entry["path"], FORMAT_FIX)

    def files(self) -> list[Path]:
        """All files that `metadata.yaml` names, each once."""
        entries = [*(self.content.get("feature_data") or ()), *(self.content["graph"].get("feature_data") or ())]
        entries += [
            data
            for task in self.content.get("tasks") or ()
            for name in _SETS
            for entry in task.get(name) or ()
            for data in entry["data"]
        ]
        paths = [edge_type.path for edge_type in self.edge_types] + [self._place(entry) for entry in entries]
        return list(dict.fromkeys(paths))

    def edges(self, edge_type: EdgeType) -> tuple[np.ndarray, np.ndarray]:
        """Sources and destinations of a type of edges.

        Raises:
            DataError: the file is missing or damaged, or has another shape.
        """
        if edge_type.format == "csv":
            return _read_csv(edge_type.path)
        values = _array(edge_type.path, edge_type.format)
        if values.ndim != 2 or values.shape[0] != 2 or values.dtype.kind not in "iu":
            raise DataError(
                Problem(
                    str(edge_type.path),
                    f"{values.dtype} {list(values.shape)}",
                    "edges must be whole numbers [2, E]",
                    FORMAT_FIX,
                )
            )
        return values[0], values[1]

    def features(self, domain: str) -> dict[str, dict[str, np.ndarray]]:
        """Data of `node` or `edge` by type and name; those of `.npy` files stay on the disk.

        Raises:
            DataError: a file is missing or damaged.
        """
        only = _ONE_TYPE if domain == "node" else _ONE_RELATION
        known = list(self.counts) if domain == "node" else [":".join(edge_type.types) for edge_type in self.edge_types]
        by_type: dict[str, dict[str, np.ndarray]] = {}
        for entry in (*(self.content.get("feature_data") or ()), *(self.content["graph"].get("feature_data") or ())):
            if entry["domain"] != domain:
                continue
            kind = str(entry.get("type") or only)
            if kind not in known:
                raise DataError(
                    Problem(
                        f"{self.path}: feature_data {entry['name']}", kind, f"types are {', '.join(known)}", FORMAT_FIX
                    )
                )
            by_type.setdefault(kind, {})[str(entry["name"])] = _array(self._place(entry), entry["format"])
        return by_type

    def sets(self, task: str) -> dict[str, list[SetOfTask]]:
        """The sets of a task.

        Raises:
            DataError: a file is missing or damaged, or a set has no items.
        """
        entry = self.content["tasks"][self.tasks.index(task)]
        return {
            name: [self._set(one, f"{self.path}: {task}, {name}") for one in entry.get(name) or ()] for name in _SETS
        }

    def _set(self, entry: Mapping[str, Any], key: str) -> SetOfTask:
        data = {}
        for place, part in enumerate(entry["data"]):
            name = str(part.get("name") or ("seeds", "labels")[min(place, 1)])
            data[name] = _array(self._place(part), part["format"])
        seeds = next((data[name] for name in _SEEDS if name in data), None)
        whole = seeds is not None and seeds.dtype.kind in "iu" and (seeds.ndim == 1 or seeds.shape[1:] == (2,))
        if seeds is None or not whole:
            said = f"has {', '.join(data)}" if seeds is None else f"{seeds.dtype} {list(seeds.shape)}"
            raise DataError(Problem(key, said, "needs seeds: vertices [n], or pairs [n, 2]", FORMAT_FIX))
        return SetOfTask(entry.get("type"), np.asarray(seeds), data)

    def place_of(self, kind: str | None, key: str) -> int:
        """The number of a type of edges.

        Raises:
            DataError: there is no such type.
        """
        names = [":".join(edge_type.types) for edge_type in self.edge_types]
        if kind is None and len(names) == 1:
            return 0
        if kind not in names:
            raise DataError(Problem(key, kind, f"types of edges are {', '.join(names)}", FORMAT_FIX))
        return names.index(kind)


def metadata_in(place: Path) -> Path | None:
    """GraphBolt's `metadata.yaml` of a folder: the raw one, or that of the prepared form; None if there is none."""
    candidates = [place / _NAME, place / _PREPARED] if place.is_dir() else [place] if place.name == _NAME else []
    for one in candidates:
        content = _content(one)
        if isinstance(content, dict) and ({"graph", "graph_topology"} & set(content)):
            return one
    return None


def read_metadata(place: Path) -> Metadata:
    """The metadata of a folder, or of a `metadata.yaml`.

    Raises:
        DataError: it is missing or damaged, or only GraphBolt's prepared form is there.
    """
    path = metadata_in(place)
    if path is None:
        raise DataError(
            Problem(
                str(place),
                "no metadata.yaml with a graph" if place.is_dir() else str(why_unreadable(place) or ""),
                "must be a folder of GraphBolt's OnDiskDataset",
                FORMAT_FIX,
            )
        )
    content = _content(path)
    assert isinstance(content, dict)
    if "graph" not in content:
        raise DataError(
            Problem(
                str(path),
                "graph_topology",
                "the prepared graph is a pickled object of GraphBolt, which gnnexp does not load",
                _PREPARED_FIX,
            )
        )
    try:
        return _metadata(path, content)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise DataError(
            Problem(str(path), f"{type(error).__name__}: {error}"[:200], "must have GraphBolt's keys", FORMAT_FIX)
        ) from None


def _content(path: Path) -> object:
    """What the file says; None if it is missing, or no YAML.

    Raises:
        DataError: it may be GraphBolt's, and exceeds a limit of YAML.
    """
    content = start_of(path, MAX_BYTES + 1) if is_file(path) else b""
    if _GRAPH.search(content) and (excess := excess_of(content)):
        raise DataError(Problem(str(path), excess, ALLOWED, FORMAT_FIX))
    try:
        return parse_yaml(content)
    except ValueError:
        return None


def _metadata(path: Path, content: Mapping[str, Any]) -> Metadata:
    graph = content["graph"]
    counts = {str(entry.get("type") or _ONE_TYPE): int(entry["num"]) for entry in graph["nodes"]}
    edges = []
    for entry in graph["edges"]:
        source, relation, destination = str(entry.get("type") or _ONE_RELATION).split(":")
        if source not in counts or destination not in counts or entry["format"] not in ("csv", "numpy"):
            raise ValueError(f"edges {entry}")
        place = place_inside(path, entry["path"], FORMAT_FIX)
        edges.append(EdgeType((source, relation, destination), entry["format"], place))
    if len(counts) != len(graph["nodes"]) or min(counts.values()) < 0:
        raise ValueError(f"nodes {graph['nodes']}")
    metadata = Metadata(path, path.parent, counts, edges, content)
    metadata.files()  # all entries have their keys
    left = {str(entry.get("domain")) for entry in content.get("feature_data") or ()} - {"node", "edge"}
    notes = [f"features of the domain {', '.join(sorted(left))} are not used"] if left else []
    return Metadata(path, path.parent, counts, edges, content, notes)


def _array(path: Path, kind: object) -> np.ndarray:
    """The array in a `.npy` file, or the tensor in a file of `torch.save`.

    Raises:
        DataError: the file is missing or damaged, or has something else.
    """
    if kind == "numpy":
        return open_npy(path)
    if kind != "torch":
        raise DataError(Problem(str(path), kind, "formats are numpy and torch", FORMAT_FIX))
    values = read_tensors(path)
    if not isinstance(values, np.ndarray):
        raise DataError(
            Problem(
                str(path),
                type(values).__name__,
                "must be one dense tensor",
                "save it again with torch.save(tensor, path)",
            )
        )
    return values


def _read_csv(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The two columns of a text without a header."""
    import pyarrow as pa
    from pyarrow import csv

    if why := why_unreadable(path):
        raise DataError(Problem(str(path), why.reason, "this file is needed", FORMAT_FIX))
    check_memory(path.stat().st_size, str(path))
    if not path.stat().st_size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    names = ["source", "destination"]
    try:
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(column_names=names),
            convert_options=csv.ConvertOptions(column_types={name: pa.int64() for name in names}, null_values=[]),
        )
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            Problem(
                str(path), str(error)[:200], "must be two columns of whole numbers without a header", "correct the file"
            )
        ) from None
    return table.column(0).to_numpy(), table.column(1).to_numpy()
