"""Reads `raw/` of OGB's folder layout, for one type of vertices and edges or several (ogbn-mag)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from gnnexp.datasets.base import check_memory, is_believable, require
from gnnexp.datasets.reading.npz import NpzFile
from gnnexp.datasets.reading.tables import NumberTable
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.files.regular import is_file

FORMAT_FIX = "check that it is the folder of an ogbn-* or ogbl-* dataset"


@dataclass(frozen=True)
class OgbTypes:
    """Types of vertices and edges of a dataset with several.

    Attributes:
        nodes: `[V]` int32 type of each vertex.
        edges: `[E]` int32 relation of each edge.
        num_relations: R, number of relations.
        labelled: name of the type that has labels and splits; empty if none has.
        members: vertices of this type.
        ranges: vertices of each type.
        relation_numbers: `[R]` the dataset's own number of each relation; empty if it has none.
        notes: names of types and relations in their order, for reports.
    """

    nodes: np.ndarray
    edges: np.ndarray
    num_relations: int
    labelled: str
    members: range
    ranges: Mapping[str, range]
    relation_numbers: Sequence[int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class OgbRaw:
    """The content of `raw/`.

    Attributes:
        edges: `[E, 2]` sources and destinations.
        num_nodes: V, number of vertices.
        features: `[V, D]`, or None.
        labels: `[V, c]`, or None.
        edge_features: `[E, D]`, or None.
        key: name of the file in messages.
        types: types of vertices and edges; None if there is one type of vertices.
        relations: `[E]` relation of each edge, if there is one type of vertices and several relations; else None.
        num_relations: R, number of these relations.
    """

    edges: np.ndarray
    num_nodes: int
    features: np.ndarray | None
    labels: np.ndarray | None
    edge_features: np.ndarray | None
    key: str
    types: OgbTypes | None = None
    relations: np.ndarray | None = None
    num_relations: int = 0


def read_table(path: Path, dtype: Literal["int64", "float32", "float64"], high: int | None = None) -> np.ndarray:
    """`[n, k]` numbers of a file. Integers must be from 0 to below `high`."""
    return NumberTable(path, dtype, low=0 if dtype == "int64" else None, high=high).read()


def check_count(num_nodes: int, edges: np.ndarray | None, key: str, findings: Findings) -> None:
    """Check that there are not far more vertices than edges, before arrays of size V are made.

    Raises:
        DataError: there are far more, or edges could not be read; with the findings so far.
    """
    if is_believable(num_nodes, 0 if edges is None else edges.shape[0]):
        return
    if edges is not None:
        findings.problems.append(
            Problem(
                key, f"{num_nodes} vertices with {edges.shape[0]} edges", "must be the number of vertices", FORMAT_FIX
            )
        )
    findings.raise_all()


def read_text(folder: Path, findings: Findings) -> OgbRaw:
    """Read the layout of most datasets: text files. `findings` collects all problems except those of V."""
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
    relations = findings.attempt(_relations, raw / "edge_reltype.csv.gz", rows)
    if edges is None:
        edges, edge_features, relations = np.empty((0, 2), np.int64), None, None
    return OgbRaw(
        edges,
        num_nodes,
        features,
        labels,
        edge_features,
        str(needed[0]),
        relations=relations,
        num_relations=0 if relations is None else int(relations.max(initial=-1)) + 1,
    )


def _relations(path: Path, rows: int | None) -> np.ndarray | None:
    """`[E]` relations of edges of one type of vertices (ogbl-wikikg2); None without the file."""
    if not is_file(path):
        return None
    table = read_table(path, "int64", high=1 << 31)
    if table.shape[1] != 1 or (rows is not None and table.shape[0] != rows):
        raise DataError(Problem(str(path), f"shape {table.shape}", f"must have one column and {rows} rows", FORMAT_FIX))
    return table[:, 0]


def read_binary(folder: Path, *, labelled: bool) -> OgbRaw:
    """Read the layout of ogbn-papers100M: `raw/data.npz` and, if vertices are `labelled`, `raw/node-label.npz`."""
    path = folder / "raw" / "data.npz"
    file, labels = NpzFile(path), NpzFile(folder / "raw" / "node-label.npz") if labelled else None
    file.require("edge_index", "num_nodes_list")
    edges, counts = file.array("edge_index"), file.array("num_nodes_list")
    features = file.array("node_feat") if "node_feat" in file else None
    counted = counts.size == 1 and counts.dtype.kind in "iu" and int(counts.ravel()[0]) > 0
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu" or not counted:
        shown = f"edge_index {edges.dtype} {edges.shape}, num_nodes_list {counts.dtype} {counts.shape}"
        raise DataError(Problem(str(path), shown, "must be [2, E] integers and one count", FORMAT_FIX))
    num_nodes = int(counts.ravel()[0])
    check_memory(24 * num_nodes, f"{path}: {num_nodes} vertices")
    check_count(num_nodes, edges.T, f"{path}: num_nodes_list", Findings())
    if labels is None:
        return OgbRaw(edges.T, num_nodes, features, None, None, str(path))
    values = labels.array("node_label").astype(np.float64)
    if values.size == 0 or values.shape[:1] != (num_nodes,):
        key = f"{labels.path}: node_label"
        raise DataError(Problem(key, values.shape, f"must have {num_nodes} rows", FORMAT_FIX))
    return OgbRaw(edges.T, num_nodes, features, values.reshape(num_nodes, -1), None, str(path))


TYPES, _TRIPLETS = "num-node-dict.csv.gz", "triplet-type-list.csv.gz"
# Names are parts of paths.
_NAME = re.compile(r"\w[\w-]*")


def read_typed(folder: Path, *, labelled: bool) -> OgbRaw:
    """The content of `raw/`. Types and relations have the order of their lists; vertices are ordered by type.

    Args:
        folder: folder of the dataset.
        labelled: whether a type must have labels.

    Raises:
        DataError: names all missing and wrong files.
    """
    raw = folder / "raw"
    require([raw / TYPES, raw / _TRIPLETS], FORMAT_FIX)
    nodes = _node_types(raw / TYPES)
    triplets = _triplets(raw / _TRIPLETS, nodes)
    findings = Findings()
    edges = [findings.attempt(_edges, raw, triplet, nodes) for triplet in triplets]
    known = [pairs for pairs in edges if pairs is not None]
    together = np.concatenate(known) if len(known) == len(edges) else None
    check_count(sum(map(len, nodes.values())), together, str(raw / TYPES), findings)
    features = findings.attempt(_features, raw, nodes)
    found_labels = findings.attempt(_labels, raw, nodes) if labelled else (None, "")
    numbers = [] if labelled else findings.attempt(_relation_numbers, raw, triplets)
    findings.raise_all()
    assert found_labels is not None and together is not None and numbers is not None
    sizes = [len(members) for members in nodes.values()]
    labels, of_type = found_labels
    types = OgbTypes(
        nodes=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
        edges=np.repeat(np.arange(len(known), dtype=np.int32), [len(pairs) for pairs in known]),
        num_relations=len(known),
        labelled=of_type,
        members=nodes.get(of_type, range(0)),
        ranges=nodes,
        relation_numbers=numbers,
        notes=(
            f"types of vertices, in this order: {', '.join(nodes)}",
            f"relations, in this order: {', '.join('-'.join(triplet) for triplet in triplets)}",
        ),
    )
    return OgbRaw(together, sum(sizes), features, labels, None, str(raw / _TRIPLETS), types)


def _node_types(path: Path) -> dict[str, range]:
    """The range of vertices of each type, by name of the type. The file has a line of names and a line of counts."""
    rows = NumberTable(path).words()
    names, counts = rows if len(rows) == 2 else ([], [])
    sound = len(names) == len(counts) == len(set(names)) > 0 and all(map(_NAME.fullmatch, names))
    if not sound or not all(count.isdecimal() and len(count) < 16 for count in counts):
        raise DataError(Problem(str(path), str(rows)[:80], "must be a line of names and one of counts", FORMAT_FIX))
    sizes = [int(count) for count in counts]
    check_memory(24 * sum(sizes), f"{path}: {sum(sizes)} vertices")
    starts = np.cumsum([0, *sizes]).tolist()
    return {name: range(*ends) for name, ends in zip(names, pairwise(starts), strict=True)}


def _triplets(path: Path, nodes: Mapping[str, range]) -> list[list[str]]:
    """For each relation: type of heads, name of the relation, type of tails."""
    rows = NumberTable(path).words()
    wrong = [row for row in rows if len(row) != 3 or not {row[0], row[2]} <= set(nodes) or not _NAME.fullmatch(row[1])]
    if wrong or not rows or len(set(map(tuple, rows))) < len(rows):
        allowed = f"must be head, relation and tail, each once, of the types {', '.join(nodes)}"
        raise DataError(Problem(str(path), str(wrong or rows)[:80], allowed, FORMAT_FIX))
    return rows


def _edges(raw: Path, triplet: list[str], nodes: Mapping[str, range]) -> np.ndarray:
    """`[n, 2]` edges of one relation, as ids among all vertices."""
    path = raw / "relations" / "___".join(triplet) / "edge.csv.gz"
    require([path], FORMAT_FIX)
    head, tail = nodes[triplet[0]], nodes[triplet[2]]
    pairs = read_table(path, "int64", high=max(len(head), len(tail)))
    if pairs.size == 0:
        return np.empty((0, 2), np.int64)
    if pairs.shape[1] != 2 or (pairs.max(axis=0) >= (len(head), len(tail))).any():
        shown = f"{pairs.shape[1]} columns up to {pairs.max(axis=0).tolist()}"
        allowed = f"must be two columns, below {len(head)} and {len(tail)}"
        raise DataError(Problem(str(path), shown, allowed, FORMAT_FIX))
    pairs += (head.start, tail.start)
    return pairs


def _relation_numbers(raw: Path, triplets: Sequence[Sequence[str]]) -> list[int]:
    """The dataset's own number of each relation, which its links use (ogbl-biokg); empty if it has none."""
    numbers = []
    for triplet in triplets:
        path = raw / "relations" / "___".join(triplet) / "edge_reltype.csv.gz"
        if not is_file(path):
            return []
        first = next(NumberTable(path, "int64", low=0, high=1 << 31).chunks(1), None)
        if first is not None:
            numbers.append(int(first[0, 0]))
    # ogbn-mag has zeros everywhere.
    return numbers if sorted(numbers) == list(range(len(triplets))) else []


def _features(raw: Path, nodes: Mapping[str, range]) -> np.ndarray | None:
    """`[V, D]` features, zeros for types without features. D is the largest width of a type."""
    tables = dict(_tables(raw, "node-feat", nodes, "float32"))
    if not tables:
        return None
    num_nodes, width = sum(map(len, nodes.values())), max(table.shape[1] for table in tables.values())
    check_memory(4 * num_nodes * width, f"features {num_nodes} x {width} of {raw}")
    rows = np.zeros((num_nodes, width), np.float32)
    for name, table in tables.items():
        rows[nodes[name].start : nodes[name].stop, : table.shape[1]] = table
    return rows


def _labels(raw: Path, nodes: Mapping[str, range]) -> tuple[np.ndarray, str]:
    """`[V, c]` labels, and the name of the only type that has labels. Other vertices have NaN."""
    found = dict(_tables(raw, "node-label", nodes, "float64"))
    if len(found) != 1:
        allowed = "must have the folder of one type of vertices, with its labels"
        raise DataError(Problem(str(raw / "node-label"), sorted(found), allowed, FORMAT_FIX))
    ((name, table),) = found.items()
    labels = np.full((sum(map(len, nodes.values())), table.shape[1]), np.nan)
    labels[nodes[name].start : nodes[name].stop] = table
    return labels, name


def _tables(
    raw: Path, kind: str, nodes: Mapping[str, range], dtype: Literal["float32", "float64"]
) -> Iterator[tuple[str, np.ndarray]]:
    """Name and table of each type that has a table."""
    for name, members in nodes.items():
        path = raw / kind / name / f"{kind}.csv.gz"
        if is_file(path):
            table = read_table(path, dtype)
            if table.shape[0] != len(members):
                raise DataError(Problem(str(path), f"{table.shape[0]} rows", f"must have {len(members)}", FORMAT_FIX))
            yield name, table
