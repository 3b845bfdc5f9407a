"""The JSON file of a folder that `dgl.distributed.partition_graph` wrote: where parts are, and which ids they have.

DistDGL renumbers vertices and edges so that each part has one range of ids for each type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gnnexp.datasets.reading.content import json_that_has
from gnnexp.errors import DataError, Problem
from gnnexp.files.inside import place_inside
from gnnexp.files.regular import is_file, why_unreadable

_KEYS = {"num_parts", "node_map", "edge_map", "part-0"}
_WORDS = [f'"{key}"'.encode() for key in sorted(_KEYS)]
_ONE_TYPE, _ONE_RELATION = "_N", "_N:_E:_N"
_MAPPINGS = ("node_mapping.pt", "edge_mapping.pt")
FIX = "make the partition again with dgl.distributed.partition_graph"


class PartFiles(NamedTuple):
    """Files of a part. The last two are only there if DGL's distributed pipeline kept the original ids."""

    graph: Path
    nodes: Path
    edges: Path
    original_nodes: Path | None
    original_edges: Path | None


@dataclass(frozen=True, eq=False)
class Ranges:
    """DistDGL's ids of the vertices (or edges) of all types: `[P, 2]` first and end for each type.

    Attributes:
        of: ranges of the parts by type, in the order of the types.
    """

    of: Mapping[str, np.ndarray]

    @property
    def counts(self) -> dict[str, int]:
        """Number of vertices (or edges) of each type."""
        return {kind: int((ranges[:, 1] - ranges[:, 0]).sum()) for kind, ranges in self.of.items()}

    @property
    def total(self) -> int:
        """Number of all of them."""
        return sum(self.counts.values())

    def ids(self, kind: str) -> np.ndarray:
        """DistDGL's ids of a type, part by part."""
        return np.concatenate([np.arange(first, end) for first, end in self.of[kind]])

    def problems(self, key: str) -> list[Problem]:
        """Problems if the ranges do not cover 0, 1, … without gaps."""
        ranges = np.concatenate(list(self.of.values()))
        ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
        ranges = ranges[ranges[:, 0] != ranges[:, 1]]
        covers = ranges.size and ranges[0, 0] == 0 and (ranges[1:, 0] == ranges[:-1, 1]).all()
        return (
            []
            if covers and (ranges[:, 0] < ranges[:, 1]).all()
            else [Problem(key, "gaps or overlaps", "ranges must cover all ids once", FIX)]
        )


@dataclass(frozen=True, eq=False)
class PartConfig:
    """A partition.

    Attributes:
        path: the JSON file.
        method: how DGL made it.
        parts: the files of each part.
        mappings: files with the original ids of vertices and edges: what `partition_graph` returns with
            `return_mapping=True`, under the names that GraphStorm gives them; None if they are not there.
        nodes: ids of the vertices by type.
        edges: ids of the edges by type, as `source:relation:destination`.
    """

    path: Path
    method: str
    parts: Sequence[PartFiles]
    mappings: tuple[Path | None, Path | None]
    nodes: Ranges
    edges: Ranges

    def files(self) -> list[Path]:
        """The JSON file and all others."""
        found = [self.path, *(file for part in self.parts for file in part), *self.mappings]
        return [file for file in found if file is not None]


def partition_config_in(place: Path) -> Path | None:
    """The JSON file of a partition: `place`, or the only one in this folder; None if there is none."""
    candidates = [place] if place.suffix == ".json" else sorted(place.glob("*.json")) if place.is_dir() else []
    found = [
        one for one in candidates if is_file(one) and isinstance(content := _json(one), dict) and set(content) >= _KEYS
    ]
    return found[0] if len(found) == 1 else None


def read_partition_config(place: Path) -> PartConfig:
    """The partition of a folder or a JSON file.

    Raises:
        DataError: there is no such file, or it does not fit itself.
    """
    path = partition_config_in(place)
    if path is None:
        reason = None if place.is_dir() else why_unreadable(place) or "lacks num_parts, node_map, edge_map or part-0"
        raise DataError(
            Problem(
                str(place),
                str(reason or "no JSON file with num_parts and node_map, or several"),
                "must be a folder of dgl.distributed.partition_graph",
                "set dataset.path to its JSON file",
            )
        )
    content: Any = _json(path)
    try:
        config = _config(path, content)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(
            Problem(
                str(path),
                f"{type(error).__name__}: {error}"[:200],
                "must have the keys that partition_graph writes",
                FIX,
            )
        ) from None
    DataError.raise_all([*config.nodes.problems(f"{path}: node_map"), *config.edges.problems(f"{path}: edge_map")])
    DataError.raise_all(
        [
            Problem(str(file), str(why_unreadable(file) or ""), "this file of a part is needed", FIX)
            for part in config.parts
            for file in part[:3]
            if not is_file(file)
        ]
    )
    wrong = [name for name in config.edges.of if len(name.split(":")) != 3]
    if wrong:
        raise DataError(
            Problem(
                f"{path}: edge_map",
                ", ".join(wrong),
                "types of edges must be source:relation:destination",
                "convert the file with DGL's tools/change_etype_to_canonical_etype.py",
            )
        )
    return config


def _json(path: Path) -> object:
    return json_that_has(path, _WORDS)


def _config(path: Path, content: Mapping[str, Any]) -> PartConfig:
    count = int(content["num_parts"])
    if not 1 <= count <= len(content):
        raise ValueError(f"num_parts {count}")
    nodes = _ranges(content["node_map"], content.get("ntypes", {}), _ONE_TYPE, count)
    edges = _ranges(content["edge_map"], content.get("etypes", {}), _ONE_RELATION, count)
    for name, ranges in (("num_nodes", nodes), ("num_edges", edges)):
        if ranges.total != content.get(name, ranges.total):
            raise ValueError(f"{name} {content[name]}, but the ranges have {ranges.total}")
    parts = [_files(path, content[f"part-{number}"]) for number in range(count)]
    mappings = [file if is_file(file := path.with_name(name)) else None for name in _MAPPINGS]
    return PartConfig(path, str(content.get("part_method", "DGL")), parts, (mappings[0], mappings[1]), nodes, edges)


def _files(path: Path, entry: Mapping[str, str]) -> PartFiles:
    graph, nodes, edges = (place_inside(path, entry[key], FIX) for key in ("part_graph", "node_feats", "edge_feats"))
    original = [one if is_file(one := graph.with_name(name)) else None for name in ("orig_nids.dgl", "orig_eids.dgl")]
    return PartFiles(graph, nodes, edges, *original)


def _ranges(content: Any, numbers: Mapping[str, int], only: str, count: int) -> Ranges:  # noqa: ANN401
    """Ranges by type, in the order of the types' numbers. Old files have the ends only, or no types."""
    by_type: Mapping[str, Any] = content if isinstance(content, dict) else {only: content}
    by_type = {only if kind == "_E" and len(by_type) == 1 else kind: bounds for kind, bounds in by_type.items()}
    ranges = {}
    for kind in sorted(by_type, key=lambda name: numbers.get(name, 0)):
        values = np.array(by_type[kind], np.int64)
        if values.ndim == 1:
            values = np.stack([np.append(0, values[:-1]), values], axis=1)
        if values.shape != (count, 2):
            raise ValueError(f"{kind} has ranges of the shape {list(values.shape)}")
        ranges[kind] = values
    return Ranges(ranges)
