"""What is under `raw/` in OGB's folder layout, of datasets with one kind of vertices and edges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from gnnexp.datasets.base import believable, check_memory, require
from gnnexp.datasets.reading.npz import NpzFile
from gnnexp.datasets.reading.tables import Table
from gnnexp.errors import DataError, Problem
from gnnexp.files.findings import Findings

FORMAT_FIX = "check that it is the folder of an ogbn-* or ogbl-* dataset"


@dataclass(frozen=True)
class OgbTypes:
    """What a dataset with several kinds of vertices and edges has more.

    Attributes:
        nodes: `[V]` int32 type of every vertex.
        edges: `[E]` int32 relation of every edge.
        num_relations: R.
        labelled: name of the type that has labels and splits.
        members: its vertices.
        notes: which vertices and relations are which.
    """

    nodes: np.ndarray
    edges: np.ndarray
    num_relations: int
    labelled: str
    members: range
    notes: tuple[str, ...]


@dataclass(frozen=True)
class OgbRaw:
    """Edges `[E, 2]`, V, and what else there is.

    Attributes:
        key: the file that messages name.
        types: None for one kind of vertices and edges.
    """

    edges: np.ndarray
    num_nodes: int
    features: np.ndarray | None
    labels: np.ndarray | None
    edge_features: np.ndarray | None
    key: str
    types: OgbTypes | None = None


def read_table(path: Path, dtype: Literal["int64", "float32", "float64"], high: int | None = None) -> np.ndarray:
    """`[n, k]` of a file; whole numbers must be from 0 to below `high`."""
    return Table(path, dtype, low=0 if dtype == "int64" else None, high=high).read()


def check_count(num_nodes: int, edges: np.ndarray | None, key: str, findings: Findings) -> None:
    """Check that the vertices are not far more than the edges, before arrays of their number are made.

    Raises:
        DataError: they are, or nobody can tell because the edges could not be read; with what was found before.
    """
    if believable(num_nodes, 0 if edges is None else edges.shape[0]):
        return
    if edges is not None:
        findings.problems.append(Problem(key, f"{num_nodes} vertices with {edges.shape[0]} edges", "must be the number "
                                         "of vertices", FORMAT_FIX))
    findings.raise_all()


def read_text(folder: Path, findings: Findings) -> OgbRaw:
    """The layout of most: text files. Problems of all but V are found by `findings`."""
    raw = folder / "raw"
    needed = [raw / "edge.csv.gz", raw / "num-node-list.csv.gz"]
    require(needed, FORMAT_FIX)
    counts = read_table(needed[1], "int64")
    if counts.size != 1 or int(counts[0, 0]) == 0:
        raise DataError(Problem(str(needed[1]), counts.tolist(), "must be one number of vertices", FORMAT_FIX))
    num_nodes = int(counts[0, 0])
    check_memory(24 * num_nodes, f"{needed[1]}: {num_nodes} vertices")

    def read_edges() -> np.ndarray:
        edges = read_table(needed[0], "int64", high=num_nodes)
        if edges.shape[1] != 2:
            raise DataError(Problem(str(needed[0]), f"{edges.shape[1]} columns", "must have two columns", FORMAT_FIX))
        return edges

    def optional(name: str, dtype: Literal["float32", "float64"], rows: int | None) -> np.ndarray | None:
        path = raw / f"{name}.csv.gz"
        if not path.is_file():
            return None
        table = read_table(path, dtype)
        if rows is not None and table.shape[0] != rows:
            raise DataError(Problem(str(path), f"{table.shape[0]} rows", f"must have {rows}", FORMAT_FIX))
        return table

    edges = findings.attempt(read_edges)
    check_count(num_nodes, edges, str(needed[1]), findings)
    rows = None if edges is None else edges.shape[0]
    features = findings.attempt(optional, "node-feat", "float32", num_nodes)
    labels = findings.attempt(optional, "node-label", "float64", num_nodes)
    edge_features = findings.attempt(optional, "edge-feat", "float32", rows)
    if edges is None:
        edges, edge_features = np.empty((0, 2), np.int64), None
    return OgbRaw(edges, num_nodes, features, labels, edge_features, str(needed[0]))


def read_binary(folder: Path) -> OgbRaw:
    """The layout of ogbn-papers100M: `raw/data.npz` and `raw/node-label.npz`."""
    path = folder / "raw" / "data.npz"
    file, labels = NpzFile(path), NpzFile(folder / "raw" / "node-label.npz")
    file.require("edge_index", "num_nodes_list")
    edges, counts = file.array("edge_index"), file.array("num_nodes_list")
    features = file.array("node_feat") if "node_feat" in file else None
    counted = counts.size == 1 and counts.dtype.kind in "iu" and int(counts.ravel()[0]) > 0
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu" or not counted:
        found = f"edge_index {edges.dtype} {edges.shape}, num_nodes_list {counts.dtype} {counts.shape}"
        raise DataError(Problem(str(path), found, "must be [2, E] integers and one count", FORMAT_FIX))
    num_nodes = int(counts.ravel()[0])
    check_memory(24 * num_nodes, f"{path}: {num_nodes} vertices")
    check_count(num_nodes, edges.T, f"{path}: num_nodes_list", Findings())
    values = labels.array("node_label").astype(np.float64)
    if values.size == 0 or values.shape[:1] != (num_nodes,):
        key = f"{labels.path}: node_label"
        raise DataError(Problem(key, values.shape, f"must have {num_nodes} rows", FORMAT_FIX))
    return OgbRaw(edges.T, num_nodes, features, values.reshape(num_nodes, -1), None, str(path))
