"""Parts of a graph on disk, each a graph of its own (SDT-GNN, section III-B).

With full neighbours, a part holds every edge with an owned end, in its direction: all in-edges of what it owns, and of
the halo what the part knows. A vertex keeps its place in the order of ids, so that an owned one has its in-edges in the
same order as in the whole graph. Types of edges and vertices come along; edge features, which no model reads, do not.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnexp.errors import DataError, Problem
from gnnexp.graph.build import build_graph, index_dtype
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.graph.sparse import SparseRows
from gnnexp.graph.storage.arrays import META, fix, read_folder
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.storage.layout import SPLITS
from gnnexp.graph.storage.writer import ArrayWriter, write_json
from gnnexp.graph.stream import EdgeChunk, EdgeStream
from gnnexp.kernels.graph.scatter import count_held, sort_by_part

KIND, SCHEMA = "part", 2
# Of memory per edge of a part that is being written: about 22 measured on 8 M edges in 2 parts (not kept); with types,
# whose edges are sorted by way of their numbers, about 50 by the arrays that are alive at once.
BYTES_PER_EDGE, BYTES_PER_TYPED_EDGE = 22, 50
# Of what is copied row by row at a time.
_COPY_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a graph; n vertices, owned ones and halo.

    Attributes:
        graph: edges, types, features, labels and splits by local id; splits are of owned vertices only.
        names: `[n]` original ids, ascending (dtype of the whole graph's `indices`).
        owned: `[m]` int64 local ids of the owned vertices, ascending.
    """

    graph: Graph
    names: Tensor
    owned: Tensor

    @property
    def nbytes(self) -> int:
        """Topology and features, as on disk."""
        features = self.graph.features
        held = 0 if features is None else (
            features.nbytes() if isinstance(features, SparseRows) else features.numel() * features.element_size())
        return self.graph.topology_bytes + held


def write_parts(graph: Graph, stream: EdgeStream, partition: Partition, folder: Path, *, full_neighbors: bool) -> None:
    """Write every part of `partition` to `folder/part_<p>`; takes two passes over the stream.

    Memory: 5 to 9 bytes per vertex of the graph, and about 22 per edge of the largest part (50 with types).

    Args:
        graph: whose types and vertex data are cut; its edges are read through `stream`.
        stream: its edges, positions canonical.
        partition: who owns what.
        folder: empty, or to be made; what calls this removes it if it fails.
        full_neighbors: whether a part holds all edges with an owned end. If not: those that the partition gave it,
            in an edge-cut those with both ends owned.

    Raises:
        DataError: the disk has no room for the parts, as far as can be told before.
        OSError: or it is full half-way.
    """
    owners, cut = partition.node_owner.numpy(), partition.edge_owner
    mode = 0 if full_neighbors else 1 if cut is None else 2
    edge_parts = np.empty(0, np.int16) if mode != 2 or cut is None else cut.numpy()
    folder.mkdir(parents=True, exist_ok=True)
    counts = np.zeros(partition.num_parts, np.int64)
    for chunk in stream.chunks():
        count_held(chunk.sources, chunk.destinations, owners, _of(edge_parts, chunk), mode, counts)
    dtype = index_dtype(graph.num_nodes)
    _check_room(graph, counts, dtype, folder)
    for chunk in stream.chunks():
        _spool(chunk, owners, _of(edge_parts, chunk), mode, counts.size, graph.edge_types, folder, dtype)
    places = np.empty(graph.num_nodes, dtype)
    sizes = []
    for part in range(partition.num_parts):
        pairs = _read_spool(_spool_file(folder, "edges", part), 2 * counts[part], dtype).reshape(-1, 2)
        types = None if graph.edge_types is None else _read_spool(
            _spool_file(folder, "types", part), counts[part], np.dtype(np.int32))
        sizes.append(_write_part(graph, owners == part, pairs, types, places, _part_folder(folder, part)))
    write_json(folder / META, {"kind": "parts", "schema": SCHEMA, "arrays": {}, "parts": sizes,
                               "full_neighbors": full_neighbors})


def _of(edge_parts: np.ndarray, chunk: EdgeChunk) -> np.ndarray:
    return edge_parts[chunk.positions] if edge_parts.size else edge_parts


def _spool_file(folder: Path, kind: str, part: int) -> Path:
    return folder / f"{kind}_{part}.bin"


def _part_folder(folder: Path, part: int) -> Path:
    return folder / f"part_{part}"


def _check_room(graph: Graph, counts: np.ndarray, dtype: np.dtype[Any], folder: Path) -> None:
    """Pairs of all parts, which go one after the other, their topology, and every vertex's features once at least."""
    row = 8 if isinstance(graph.features, SparseRows) else 4 * graph.num_features
    edge = 2 * dtype.itemsize + (0 if graph.edge_types is None else 4)
    least = int(counts.sum()) * edge + graph.num_nodes * (row + 2 * dtype.itemsize)
    free = shutil.disk_usage(folder).free
    if least > free:
        raise DataError(Problem(str(folder), f"{free / 2**30:.2f} GiB are free",
                                f"the parts take {least / 2**30:.2f} GiB or more",
                                "make room there, or set GNNEXP_CACHE to another disk"))


def _spool(
    chunk: EdgeChunk, owners: np.ndarray, edge_parts: np.ndarray, mode: int, num_parts: int, types: Tensor | None,
    folder: Path, dtype: np.dtype[Any],
) -> None:
    """A chunk's edges and their types, of `types` `[E]`, to the files of the parts that hold them."""
    counts = np.zeros(num_parts, np.int64)
    count_held(chunk.sources, chunk.destinations, owners, edge_parts, mode, counts)
    ends = np.cumsum(counts)
    order = np.empty(int(ends[-1]), np.int64)
    sort_by_part(chunk.sources, chunk.destinations, owners, edge_parts, mode, ends - counts, order)
    rows = {"edges": np.stack([chunk.sources[order], chunk.destinations[order]], axis=1).astype(dtype, copy=False)}
    if types is not None:
        rows["types"] = types.numpy()[chunk.positions][order]
    for part in np.flatnonzero(counts).tolist():
        for kind, values in rows.items():
            with _spool_file(folder, kind, part).open("ab") as file:
                file.write(values[ends[part] - counts[part] : ends[part]].data)


def _read_spool(path: Path, count: int, dtype: np.dtype[Any]) -> np.ndarray:
    """What was appended, `count` numbers; the file is removed."""
    values = np.fromfile(path, dtype) if count else np.empty(0, dtype)
    assert values.size == count, "every edge that was counted is there"
    path.unlink(missing_ok=True)
    return values


def _write_part(
    graph: Graph, mine: np.ndarray, pairs: np.ndarray, types: np.ndarray | None, places: np.ndarray, folder: Path
) -> dict[str, int]:
    """One part, from its edges by original ids; `mine` `[V]` says what it owns, `places` `[V]` is room to work in."""
    held = mine.copy()
    held[pairs.reshape(-1)] = True
    names = np.flatnonzero(held).astype(places.dtype)
    places[names] = np.arange(names.size, dtype=places.dtype)
    local = places[pairs]
    arrays = build_graph(local[:, 0], local[:, 1], names.size, types=types, duplicates="keep")
    owned = np.flatnonzero(mine[names])
    with GraphWriter(folder / "graph") as writer:
        writer.put("indptr", arrays.indptr)
        writer.put("indices", arrays.indices)
        if arrays.types is not None:
            writer.put("edge_types", arrays.types)
        _cut_features(graph, names, writer)
        for name, rows in (("labels", graph.labels), ("node_types", graph.node_types)):
            if rows is not None:
                writer.put(name, rows[torch.from_numpy(names.astype(np.int64))])
        for split in SPLITS:
            members = getattr(graph.splits, split).numpy()
            writer.put(split, np.sort(places[members[mine[members]]]).astype(np.int64))
        writer.finish_graph(name=f"{graph.name}, {folder.name}", num_classes=graph.num_classes, notes=graph.notes,
                            num_features=graph.num_features)
    with ArrayWriter(folder / "ids") as ids:
        ids.put("names", names)
        ids.put("owned", owned)
        ids.finish({"kind": KIND, "schema": SCHEMA})
    train = graph.splits.train.numpy()
    return {"vertices": int(names.size), "owned": int(owned.size), "edges": int(pairs.shape[0]),
            "train": int(mine[train].sum())}


def _cut_features(graph: Graph, names: np.ndarray, writer: GraphWriter) -> None:
    """Rows of the mapped features, copied in pieces."""
    features = graph.features
    if features is None:
        return
    if isinstance(features, SparseRows):
        rows = features.rows(torch.from_numpy(names))
        for name, values in (("indptr", rows.indptr), ("columns", rows.columns), ("values", rows.values)):
            writer.put(f"features_{name}", values)
        return
    target = writer.array("features", (names.size, features.shape[1]), np.float32)
    source, step = features.numpy(), max(1, _COPY_BYTES // max(1, 4 * features.shape[1]))
    for start in range(0, names.size, step):
        target[start : start + step] = source[names[start : start + step]]


@dataclass(frozen=True)
class PartSizes:
    """Of one part.

    Attributes:
        vertices: owned ones and halo.
        owned: those that it owns.
        edges: that it holds.
        train: training vertices that it owns.
    """

    vertices: int
    owned: int
    edges: int
    train: int


@dataclass(frozen=True)
class Parts:
    """All parts of a graph, on disk.

    Attributes:
        folder: of `write_parts`.
        sizes: of every part.
        full_neighbors: whether each holds all in-edges of what it owns.
    """

    folder: Path
    sizes: tuple[PartSizes, ...]
    full_neighbors: bool

    def open(self, part: int) -> Part:
        """A part, mapped.

        Raises:
            DataError: it is missing or damaged.
        """
        place = _part_folder(self.folder, part)
        graph = open_graph(place / "graph")
        arrays = read_folder(place / "ids", KIND, SCHEMA).tensors()
        names, owned = arrays.get("names"), arrays.get("owned")
        found = None if names is None or owned is None else (names.numel(), owned.numel(), graph.num_edges)
        sizes = self.sizes[part]
        if names is None or owned is None or found != (sizes.vertices, sizes.owned, sizes.edges):
            wanted = f"must have the vertices, owned vertices and edges of {sizes}"
            raise DataError(Problem(str(place), str(found), wanted, fix(self.folder)))
        return Part(graph, names, owned)


def open_parts(folder: Path) -> Parts:
    """The parts that `write_parts` wrote.

    Raises:
        DataError: they are missing or damaged.
    """
    meta = read_folder(folder, "parts", SCHEMA).meta
    try:
        sizes = tuple(PartSizes(**{name: int(size) for name, size in entry.items()}) for entry in meta["parts"])
        return Parts(folder, sizes, bool(meta["full_neighbors"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(Problem(str(folder / META), f"{type(error).__name__}: {error}", "must say the size of every "
                                "part", fix(folder))) from None


def in_memory(part: Part) -> Part:
    """With its topology and ids in RAM; features, labels and splits stay mapped."""
    mapped = part.graph
    types = None if mapped.edge_types is None else mapped.edge_types.clone()
    graph = replace(mapped, indptr=mapped.indptr.clone(), indices=mapped.indices.clone(), edge_types=types)
    return Part(graph, part.names.clone(), part.owned.clone())
