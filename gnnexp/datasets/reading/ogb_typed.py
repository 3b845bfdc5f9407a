"""OGB's folder layout of datasets with several kinds of vertices and edges (ogbn-mag)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from gnnexp.datasets.base import check_memory, require
from gnnexp.datasets.reading.ogb_raw import FORMAT_FIX, OgbRaw, OgbTypes, check_count, read_table
from gnnexp.datasets.reading.tables import Table
from gnnexp.errors import DataError, Problem
from gnnexp.files.findings import Findings
from gnnexp.files.regular import is_file

TYPES, _TRIPLETS = "num-node-dict.csv.gz", "triplet-type-list.csv.gz"
# Names are parts of paths.
_NAME = re.compile(r"\w[\w-]*")


def read_typed(folder: Path) -> OgbRaw:
    """All of `raw/`: types and relations in the order of their lists, vertices of a type after those of the last.

    Raises:
        DataError: all that is missing or wrong.
    """
    raw = folder / "raw"
    require([raw / TYPES, raw / _TRIPLETS], FORMAT_FIX)
    nodes = _node_types(raw / TYPES)
    triplets = _triplets(raw / _TRIPLETS, nodes)
    findings = Findings()
    edges = [findings.attempt(_edges, raw, triplet, nodes) for triplet in triplets]
    found = [pairs for pairs in edges if pairs is not None]
    together = np.concatenate(found) if len(found) == len(edges) else None
    check_count(sum(map(len, nodes.values())), together, str(raw / TYPES), findings)
    features = findings.attempt(_features, raw, nodes)
    labelled = findings.attempt(_labels, raw, nodes)
    findings.raise_all()
    assert labelled is not None and together is not None
    sizes = [len(members) for members in nodes.values()]
    labels, of_type = labelled
    types = OgbTypes(
        nodes=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
        edges=np.repeat(np.arange(len(found), dtype=np.int32), [len(pairs) for pairs in found]),
        num_relations=len(found),
        labelled=of_type,
        members=nodes[of_type],
        notes=(f"types of vertices, in this order: {', '.join(nodes)}",
               f"relations, in this order: {', '.join('-'.join(triplet) for triplet in triplets)}"),
    )
    return OgbRaw(together, sum(sizes), features, labels, None, str(raw / _TRIPLETS), types)


def _node_types(path: Path) -> dict[str, range]:
    """The vertices of each type by its name, from a line of names and a line of counts."""
    rows = Table(path).words()
    names, counts = rows if len(rows) == 2 else ([], [])
    sound = len(names) == len(counts) == len(set(names)) > 0 and all(map(_NAME.fullmatch, names))
    if not sound or not all(count.isdecimal() and len(count) < 16 for count in counts):
        raise DataError(Problem(str(path), str(rows)[:80], "must be a line of names and one of counts", FORMAT_FIX))
    sizes = [int(count) for count in counts]
    check_memory(24 * sum(sizes), f"{path}: {sum(sizes)} vertices")
    starts = np.cumsum([0, *sizes]).tolist()
    return {name: range(*ends) for name, ends in zip(names, pairwise(starts), strict=True)}


def _triplets(path: Path, nodes: Mapping[str, range]) -> list[list[str]]:
    """Head's type, relation, tail's type of every relation."""
    rows = Table(path).words()
    wrong = [row for row in rows
             if len(row) != 3 or not {row[0], row[2]} <= set(nodes) or not _NAME.fullmatch(row[1])]
    if wrong or not rows or len(set(map(tuple, rows))) < len(rows):
        allowed = f"must be head, relation and tail, each once, of the types {', '.join(nodes)}"
        raise DataError(Problem(str(path), str(wrong or rows)[:80], allowed, FORMAT_FIX))
    return rows


def _edges(raw: Path, triplet: list[str], nodes: Mapping[str, range]) -> np.ndarray:
    """`[n, 2]` of one relation, in the ids of all vertices."""
    path = raw / "relations" / "___".join(triplet) / "edge.csv.gz"
    require([path], FORMAT_FIX)
    head, tail = nodes[triplet[0]], nodes[triplet[2]]
    pairs = read_table(path, "int64", high=max(len(head), len(tail)))
    if pairs.size == 0:
        return np.empty((0, 2), np.int64)
    if pairs.shape[1] != 2 or (pairs.max(axis=0) >= (len(head), len(tail))).any():
        found = f"{pairs.shape[1]} columns up to {pairs.max(axis=0).tolist()}"
        allowed = f"must be two columns, below {len(head)} and {len(tail)}"
        raise DataError(Problem(str(path), found, allowed, FORMAT_FIX))
    pairs += (head.start, tail.start)
    return pairs


def _features(raw: Path, nodes: Mapping[str, range]) -> np.ndarray | None:
    """`[V, D]`: rows of the types that have any, zeros of the others; D is that of the widest."""
    found = dict(_tables(raw, "node-feat", nodes, "float32"))
    if not found:
        return None
    num_nodes, width = sum(map(len, nodes.values())), max(table.shape[1] for table in found.values())
    check_memory(4 * num_nodes * width, f"features {num_nodes} x {width} of {raw}")
    rows = np.zeros((num_nodes, width), np.float32)
    for name, table in found.items():
        rows[nodes[name].start : nodes[name].stop, : table.shape[1]] = table
    return rows


def _labels(raw: Path, nodes: Mapping[str, range]) -> tuple[np.ndarray, str]:
    """`[V, c]`, NaN but for the one type that has labels, and its name."""
    found = dict(_tables(raw, "node-label", nodes, "float64"))
    if len(found) != 1:
        allowed = "must have the folder of one type of vertices, with its labels"
        raise DataError(Problem(str(raw / "node-label"), sorted(found), allowed, FORMAT_FIX))
    (name, table), = found.items()
    labels = np.full((sum(map(len, nodes.values())), table.shape[1]), np.nan)
    labels[nodes[name].start : nodes[name].stop] = table
    return labels, name


def _tables(
    raw: Path, kind: str, nodes: Mapping[str, range], dtype: Literal["float32", "float64"]
) -> Iterator[tuple[str, np.ndarray]]:
    """By type: the tables of those that have one."""
    for name, members in nodes.items():
        path = raw / kind / name / f"{kind}.csv.gz"
        if is_file(path):
            table = read_table(path, dtype)
            if table.shape[0] != len(members):
                raise DataError(Problem(str(path), f"{table.shape[0]} rows", f"must have {len(members)}", FORMAT_FIX))
            yield name, table
