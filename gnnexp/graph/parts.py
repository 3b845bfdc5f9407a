"""Parts of a graph on disk; each part is a separate graph (SDT-GNN, section III-B).

With full neighbours, a part holds every edge with at least one owned end: all in-edges of its owned vertices, and some
in-edges of its halo. The vertices of a part have the same order as in the whole graph. So the in-edges of an owned
vertex have the same order too. A part keeps edge types and weights, but no edge features, because no model reads them.
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
from gnnexp.graph.storage.writer import ArrayWriter, write_json_to_disk
from gnnexp.graph.stream import EdgeChunk, EdgeStream
from gnnexp.kernels.graph.scatter import count_held, sort_by_part

KIND, SCHEMA = "part", 2
# Memory per edge of a part while it is written. Without types about 22 bytes were measured on 8 M edges in 2 parts (the
# measurement is not stored). With types it is about 50 bytes, the sum of the arrays in use at the same time: such edges
# are sorted by their numbers.
BYTES_PER_EDGE, BYTES_PER_TYPED_EDGE = 22, 50
# Bytes of feature rows that are copied at a time.
_COPY_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a graph with n vertices: the owned vertices and the halo.

    Attributes:
        graph: edges, types, features, labels and splits by local id; splits contain owned vertices only.
        names: `[n]` original ids of the vertices, ascending, in the data type of the whole graph's `indices`.
        owned: `[m]` int64 local ids of the owned vertices, ascending.
    """

    graph: Graph
    names: Tensor
    owned: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of topology and features, as on disk."""
        features = self.graph.features
        return self.graph.topology_bytes + (0 if features is None else features.nbytes)


def write_parts(graph: Graph, stream: EdgeStream, partition: Partition, folder: Path, *, full_neighbors: bool) -> None:
    """Write every part of `partition` to `folder/part_<p>`; takes two passes over the stream.

    Takes 5 to 9 bytes per vertex of the graph, and about 22 bytes per edge of the largest part (50 with types).

    Args:
        graph: graph whose types and vertex data are divided; its edges are read from `stream`.
        stream: edges of the graph, with canonical positions.
        partition: owner of each vertex, and in a vertex-cut of each edge.
        folder: empty or missing folder for the parts; the caller removes it if this function fails.
        full_neighbors: whether a part holds all edges with an owned end. If not, it holds the edges that it owns; in an
            edge-cut these are the edges with two owned ends.

    Raises:
        DataError: the disk has too little room for the parts, by an estimate before the first write.
        OSError: the disk became full while parts were written.
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
        _spool(chunk, owners, _of(edge_parts, chunk), mode, counts.size, graph, folder, dtype)
    places = np.empty(graph.num_nodes, dtype)
    sizes = []
    for part in range(partition.num_parts):
        pairs = _read_spool(_spool_file(folder, "edges", part), 2 * counts[part], dtype).reshape(-1, 2)
        data = {
            kind: _read_spool(_spool_file(folder, kind, part), counts[part], values.dtype)
            for kind, values in _edge_data(graph).items()
        }
        sizes.append(
            _write_part(
                graph, owners == part, pairs, data.get("types"), data.get("weights"), places, _part_folder(folder, part)
            )
        )
    write_json_to_disk(
        folder / META,
        {"kind": "parts", "schema": SCHEMA, "arrays": {}, "parts": sizes, "full_neighbors": full_neighbors},
    )


def _of(edge_parts: np.ndarray, chunk: EdgeChunk) -> np.ndarray:
    return edge_parts[chunk.positions] if edge_parts.size else edge_parts


def _edge_data(graph: Graph) -> dict[str, np.ndarray]:
    """Edge data that parts keep, by the name of the parameter of `build_graph`."""
    held = {"types": graph.edge_types, "weights": graph.edge_weights}
    return {kind: values.numpy() for kind, values in held.items() if values is not None}


def _spool_file(folder: Path, kind: str, part: int) -> Path:
    return folder / f"{kind}_{part}.bin"


def _part_folder(folder: Path, part: int) -> Path:
    return folder / f"part_{part}"


def _check_room(graph: Graph, counts: np.ndarray, dtype: np.dtype[Any], folder: Path) -> None:
    """Raise DataError if the disk lacks room for all edge pairs, the topology of all parts, and the features once."""
    row = 8 if isinstance(graph.features, SparseRows) else 4 * graph.num_features
    edge = 2 * dtype.itemsize + 4 * len(_edge_data(graph))
    least = int(counts.sum()) * edge + graph.num_nodes * (row + 2 * dtype.itemsize)
    free = shutil.disk_usage(folder).free
    if least > free:
        raise DataError(
            Problem(
                str(folder),
                f"{free / 2**30:.2f} GiB are free",
                f"the parts take {least / 2**30:.2f} GiB or more",
                "make room there, or set GNNEXP_CACHE to another disk",
            )
        )


def _spool(
    chunk: EdgeChunk,
    owners: np.ndarray,
    edge_parts: np.ndarray,
    mode: int,
    num_parts: int,
    graph: Graph,
    folder: Path,
    dtype: np.dtype[Any],
) -> None:
    """Append the edges of a chunk, with types and weights, to the files of the parts that hold them."""
    counts = np.zeros(num_parts, np.int64)
    count_held(chunk.sources, chunk.destinations, owners, edge_parts, mode, counts)
    ends = np.cumsum(counts)
    order = np.empty(int(ends[-1]), np.int64)
    sort_by_part(chunk.sources, chunk.destinations, owners, edge_parts, mode, ends - counts, order)
    rows = {"edges": np.stack([chunk.sources[order], chunk.destinations[order]], axis=1).astype(dtype, copy=False)}
    rows |= {kind: values[chunk.positions][order] for kind, values in _edge_data(graph).items()}
    for part in np.flatnonzero(counts).tolist():
        for kind, values in rows.items():
            with _spool_file(folder, kind, part).open("ab") as file:
                file.write(values[ends[part] - counts[part] : ends[part]].data)


def _read_spool(path: Path, count: int, dtype: np.dtype[Any]) -> np.ndarray:
    """The `count` numbers that were appended to a file; removes the file."""
    values = np.fromfile(path, dtype) if count else np.empty(0, dtype)
    assert values.size == count, "every edge that was counted is there"
    path.unlink(missing_ok=True)
    return values


def _write_part(
    graph: Graph,
    mine: np.ndarray,
    pairs: np.ndarray,
    types: np.ndarray | None,
    weights: np.ndarray | None,
    places: np.ndarray,
    folder: Path,
) -> dict[str, int]:
    """Write one part from its edges `pairs` `[n, 2]` by original ids; returns its sizes.

    `mine` `[V]` bool marks the owned vertices, `places` `[V]` is working memory.
    """
    held = mine.copy()
    held[pairs.reshape(-1)] = True
    names = np.flatnonzero(held).astype(places.dtype)
    places[names] = np.arange(names.size, dtype=places.dtype)
    local = places[pairs]
    arrays = build_graph(local[:, 0], local[:, 1], names.size, types=types, weights=weights, duplicates="keep")
    owned = np.flatnonzero(mine[names])
    with GraphWriter(folder / "graph") as writer:
        writer.put("indptr", arrays.indptr)
        writer.put("indices", arrays.indices)
        for name, values in (("edge_types", arrays.types), ("edge_weights", arrays.weights)):
            if values is not None:
                writer.put(name, values)
        _cut_features(graph, names, writer)
        for name, rows in (("labels", graph.labels), ("node_types", graph.node_types)):
            if rows is not None:
                writer.put(name, rows[torch.from_numpy(names.astype(np.int64))])
        for split in SPLITS:
            members = getattr(graph.splits, split).numpy()
            writer.put(split, np.sort(places[members[mine[members]]]).astype(np.int64))
        writer.finish_graph(
            name=f"{graph.name}, {folder.name}",
            num_classes=graph.num_classes,
            notes=graph.notes,
            num_features=graph.num_features,
        )
    with ArrayWriter(folder / "ids") as ids:
        ids.put("names", names)
        ids.put("owned", owned)
        ids.finish({"kind": KIND, "schema": SCHEMA})
    train = graph.splits.train.numpy()
    return {
        "vertices": int(names.size),
        "owned": int(owned.size),
        "edges": int(pairs.shape[0]),
        "train": int(mine[train].sum()),
    }


def _cut_features(graph: Graph, names: np.ndarray, writer: GraphWriter) -> None:
    """Copy the feature rows of the vertices `names` to the part, in pieces."""
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
    """Sizes of one part.

    Attributes:
        vertices: number of vertices, owned ones and halo.
        owned: number of owned vertices.
        edges: number of edges that the part holds.
        train: number of owned training vertices.
    """

    vertices: int
    owned: int
    edges: int
    train: int


@dataclass(frozen=True)
class Parts:
    """All parts of a graph, on disk.

    Attributes:
        folder: folder that `write_parts` filled.
        sizes: sizes of every part.
        full_neighbors: whether each part holds all in-edges of its owned vertices.
    """

    folder: Path
    sizes: tuple[PartSizes, ...]
    full_neighbors: bool

    def open(self, part: int) -> Part:
        """A part, memory-mapped.

        Raises:
            DataError: the part is missing or damaged.
        """
        place = _part_folder(self.folder, part)
        graph = open_graph(place / "graph")
        arrays = read_folder(place / "ids", KIND, SCHEMA).tensors()
        names, owned = arrays.get("names"), arrays.get("owned")
        counts = None if names is None or owned is None else (names.numel(), owned.numel(), graph.num_edges)
        sizes = self.sizes[part]
        if names is None or owned is None or counts != (sizes.vertices, sizes.owned, sizes.edges):
            wanted = f"must have the vertices, owned vertices and edges of {sizes}"
            raise DataError(Problem(str(place), str(counts), wanted, fix(self.folder)))
        return Part(graph, names, owned)


def open_parts(folder: Path) -> Parts:
    """The parts that `write_parts` wrote.

    Raises:
        DataError: the parts are missing or damaged.
    """
    meta = read_folder(folder, "parts", SCHEMA).meta
    try:
        sizes = tuple(PartSizes(**{name: int(size) for name, size in entry.items()}) for entry in meta["parts"])
        return Parts(folder, sizes, bool(meta["full_neighbors"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            Problem(
                str(folder / META), f"{type(error).__name__}: {error}", "must say the size of every part", fix(folder)
            )
        ) from None


def in_memory(part: Part) -> Part:
    """The part with its topology and ids in RAM; features, labels and splits stay mapped."""
    mapped = part.graph
    arrays = {name: getattr(mapped, name) for name in ("indptr", "indices", "edge_types", "edge_weights")}
    graph = replace(mapped, **{name: values.clone() for name, values in arrays.items() if values is not None})
    return Part(graph, part.names.clone(), part.owned.clone())
