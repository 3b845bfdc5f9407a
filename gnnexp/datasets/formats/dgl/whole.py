"""The parts of DistDGL put together again: one graph with the ids that it had before its partitioning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.formats.dgl.arrays import ID, DglArrays, DglEdges
from gnnexp.datasets.formats.dgl.partition_files import FIX, PartConfig, PartFiles, Ranges
from gnnexp.datasets.formats.dgl.reader import ReadRequest, read_files
from gnnexp.datasets.formats.dgl.tensors import read_tensors
from gnnexp.errors import DataError, Problem

_ORIGINAL = "orig_id"
Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class WholeGraph:
    """The graph, and the part that has each vertex.

    Attributes:
        arrays: the graph, with its original ids.
        owners: `[V]` part of each vertex; types follow each other.
        notes: what a user must know.
    """

    arrays: DglArrays
    owners: np.ndarray
    notes: Sequence[str]


class _Rows(NamedTuple):
    """The vertices (or edges) that a part owns, in the order of its data.

    Attributes:
        ids: DistDGL's ids.
        original: ids before the partitioning, or None.
    """

    ids: np.ndarray
    original: np.ndarray | None


def read_whole(config: PartConfig) -> WholeGraph:
    """Read all parts and put them together.

    Raises:
        ConfigError: DGL is not installed.
        DataError: a file is damaged, or parts do not fit together.
    """
    check_memory(2 * sum(file.stat().st_size for file in config.files()), str(config.path))
    parts = [_Part.read(files) for files in config.parts]
    mapped = [_mapping(*pair) for pair in zip(config.mappings, (config.nodes, config.edges), strict=True)]
    nodes = _Numbering.of(
        config.nodes,
        [part.nodes for part in parts],
        mapped[0] or [part.original_nodes for part in parts],
        f"{config.path}: vertices",
    )
    edges = _Numbering.of(
        config.edges,
        [part.edges for part in parts],
        mapped[1] or [part.original_edges for part in parts],
        f"{config.path}: edges",
    )
    data = {kind: nodes.joined(kind, [part.node_data for part in parts]) for kind in config.nodes.of}
    notes = [
        f"{len(parts)} parts of DistDGL ({config.method}) put together. To train with the same parts: python -m "
        "gnnexp.datasets.formats.dgl.save_partition FOLDER dataset.path=…, then partitioner=stored "
        "partitioner.path=FOLDER"
    ]
    if not nodes.known:
        notes.append(
            "the folder has no original ids, so vertices have those of DistDGL: partition_graph returns them "
            "with return_mapping=True; save them there as node_mapping.pt and edge_mapping.pt"
        )
    graph = DglArrays(config.nodes.counts, data, _edges(config, parts, nodes, edges))
    return WholeGraph(graph, nodes.owners(), notes)


def _mapping(path: Path | None, ranges: Ranges) -> list[Tensors]:
    """Original numbers by type, in the order of DistDGL's ids; empty without a file.

    Raises:
        DataError: the file has something else than tensors by type.
    """
    if path is None:
        return []
    content = read_tensors(path)
    named = content if isinstance(content, dict) else dict.fromkeys(list(ranges.of)[:1], content)
    by_name = {":".join(kind) if isinstance(kind, tuple) else str(kind): values for kind, values in named.items()}
    wrong = [
        kind
        for kind, count in ranges.counts.items()
        if (values := by_name.get(kind)) is None
        or values.dtype.kind not in "iu"
        or not _is_order(values.astype(np.int64), count)
    ]
    DataError.raise_all(
        [
            Problem(
                f"{path}: {kind}",
                "missing, or no order",
                f"must be the numbers 0 to {ranges.counts[kind] - 1}, each once",
                "save it again with torch.save",
            )
            for kind in wrong
        ]
    )
    return [{kind: np.asarray(by_name[kind], np.int64) for kind in ranges.of}]


@dataclass(frozen=True, eq=False)
class _Part:
    """A part.

    Attributes:
        nodes, edges: what it owns.
        ends: DistDGL's ids of the sources and destinations of its own edges.
        node_data, edge_data: data by `type/name`, in the order of `nodes` and `edges`.
        original_nodes, original_edges: original ids by type, of DGL's distributed pipeline.
    """

    nodes: _Rows
    edges: _Rows
    ends: tuple[np.ndarray, np.ndarray]
    node_data: Tensors
    edge_data: Tensors
    original_nodes: Tensors
    original_edges: Tensors

    @staticmethod
    def read(files: PartFiles) -> _Part:
        jobs = [ReadRequest(files.graph, 0), *(ReadRequest(file) for file in files[1:] if file is not None)]
        graph, nodes, edges, *more = read_files(jobs)
        original = [more.pop(0) if file is not None else {} for file in files[3:]]
        assert isinstance(graph, DglArrays)
        [own] = list(graph.nodes.values()) if len(graph.nodes) == 1 else [{}]
        if len(graph.edges) != 1:
            raise DataError(
                Problem(str(files.graph), f"{len(graph.edges)} types of edges", "the graph of a part has one", FIX)
            )
        links = graph.edges[0]
        DataError.raise_all(
            [
                Problem(f"{files.graph}: {name}", "missing", "each part has these data", FIX)
                for name, data in ((ID, own), ("inner_node", own), (ID, links.data), ("inner_edge", links.data))
                if name not in data
            ]
        )
        inner_node, inner_edge = own["inner_node"].astype(bool), links.data["inner_edge"].astype(bool)
        ids = own[ID].astype(np.int64)
        ends = (ids[links.source[inner_edge]], ids[links.destination[inner_edge]])
        return _Part(_rows(own, inner_node), _rows(links.data, inner_edge), ends, nodes, edges, *original)


def _rows(data: Tensors, inner: np.ndarray) -> _Rows:
    original = data.get(_ORIGINAL)
    return _Rows(data[ID][inner].astype(np.int64), None if original is None else original[inner].astype(np.int64))


@dataclass(frozen=True, eq=False)
class _Numbering:
    """From DistDGL's ids to a type and the original number in it.

    Attributes:
        ranges: DistDGL's ids.
        rows: what each part owns.
        numbers: `[total]` original number among those of its type, by DistDGL's id.
        known: whether the original numbers are known. Otherwise they have the order of DistDGL's ids.
        key: what this is, for messages.
    """

    ranges: Ranges
    rows: Sequence[_Rows]
    numbers: np.ndarray
    known: bool
    key: str

    @staticmethod
    def of(ranges: Ranges, rows: Sequence[_Rows], original: Sequence[Tensors], key: str) -> _Numbering:
        ids = np.concatenate([part.ids for part in rows])
        if not _is_order(ids, ranges.total):
            raise DataError(
                Problem(
                    key, f"{ids.size} of the parts", f"parts must own the ids 0 to {ranges.total - 1}, each once", FIX
                )
            )
        whole = np.full(ranges.total, -1, np.int64)
        has_all = all(part.original is not None for part in rows)
        for part in rows if has_all else ():
            assert part.original is not None
            whole[part.ids] = part.original
        numbers, known, start = np.empty(ranges.total, np.int64), True, 0
        for kind, count in ranges.counts.items():
            places = ranges.ids(kind)
            recorded = np.concatenate(
                [np.empty(0, np.int64), *(tensors[kind] for tensors in original if kind in tensors)]
            )
            orders = [order for order in (whole[places] - start, whole[places], recorded) if _is_order(order, count)]
            numbers[places] = orders[0] if orders else np.arange(count)  # a single part keeps its order
            known, start = known and (bool(orders) or len(rows) == 1), start + count
        return _Numbering(ranges, rows, numbers, known, key)

    def joined(self, kind: str, data: Sequence[Tensors]) -> dict[str, np.ndarray]:
        """Data of a type by name, in the order of the original numbers.

        Raises:
            DataError: a part lacks data, or has other shapes than the others.
        """
        prefixes = [f"{kind}/"] + ([""] if len(self.ranges.of) == 1 else [])
        names = dict.fromkeys(
            name.removeprefix(prefix)
            for tensors in data
            for name in tensors
            for prefix in prefixes
            if name.startswith(prefix) and "/" not in name.removeprefix(prefix)
        )
        return {
            name: self._rows_of(
                kind,
                name,
                [
                    next((tensors[prefix + name] for prefix in prefixes if prefix + name in tensors), None)
                    for tensors in data
                ],
            )
            for name in names
        }

    def _rows_of(self, kind: str, name: str, data: Sequence[np.ndarray | None]) -> np.ndarray:
        first = next(values_of_part for values_of_part in data if values_of_part is not None)
        out = np.zeros((self.ranges.counts[kind], *first.shape[1:]), first.dtype)
        for number, (values, rows, (low, high)) in enumerate(zip(data, self.rows, self.ranges.of[kind], strict=True)):
            ids = rows.ids[(rows.ids >= low) & (rows.ids < high)]
            if values is None and not ids.size:
                continue
            if values is None or values.shape != (ids.size, *first.shape[1:]):
                raise DataError(
                    Problem(
                        f"{self.key} {kind}, {name}, part {number}",
                        "missing" if values is None else list(values.shape),
                        f"must be {[ids.size, *first.shape[1:]]}",
                        FIX,
                    )
                )
            out[self.numbers[ids]] = values
        return out

    def owners(self) -> np.ndarray:
        """`[total]` part of each, by original number, type by type."""
        owners = []
        for kind, count in self.ranges.counts.items():
            own = np.empty(count, np.int32)
            for part, (low, high) in enumerate(self.ranges.of[kind]):
                own[self.numbers[low:high]] = part
            owners.append(own)
        return np.concatenate(owners)


def _is_order(values: np.ndarray, count: int) -> bool:
    """Whether the values are 0 to count - 1, each once."""
    if values.size != count or (count and (values.min() < 0 or values.max() >= count)):
        return False
    return bool((np.bincount(values, minlength=count) == 1).all())


def _edges(config: PartConfig, parts: Sequence[_Part], nodes: _Numbering, edges: _Numbering) -> list[DglEdges]:
    ids = np.concatenate([part.edges.ids for part in parts])
    ends = [np.empty(ids.size, np.int64), np.empty(ids.size, np.int64)]
    for end, values in zip(ends, zip(*(part.ends for part in parts), strict=True), strict=True):
        end[ids] = np.concatenate(values)
    types = []
    for name in config.edges.of:
        source, relation, destination = name.split(":")
        places = config.edges.ids(name)
        order = edges.numbers[places]
        columns = []
        for end, kind in zip(ends, (source, destination), strict=True):
            column = np.empty(order.size, np.int64)
            column[order] = _typed(config, nodes, end[places], kind, name)
            columns.append(column)
        first, second = columns
        data = edges.joined(name, [part.edge_data for part in parts])
        types.append(DglEdges((source, relation, destination), first, second, data))
    return types


def _typed(config: PartConfig, nodes: _Numbering, ids: np.ndarray, kind: str, name: str) -> np.ndarray:
    """Original numbers of ends, which must be of the type `kind`."""
    ranges = config.nodes.of.get(kind, np.empty((0, 2), np.int64))
    within = np.zeros(ids.size, bool)
    for low, high in ranges:
        within |= (ids >= low) & (ids < high)
    if not within.all():
        raise DataError(
            Problem(
                f"{config.path}: edges {name}",
                f"{int((~within).sum())} ends",
                f"must be vertices of the type {kind}",
                FIX,
            )
        )
    return np.asarray(nodes.numbers[ids])
