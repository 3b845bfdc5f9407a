"""The `Graph` that a graph of another library becomes, and its options: they are the same for all formats."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gnnexp.datasets.base import check_memory, checked
from gnnexp.datasets.formats.foreign import ForeignEdges, ForeignGraph
from gnnexp.datasets.options import GraphOptions, check_inverse_relations, own_links
from gnnexp.datasets.reading.features import Sparse, feature_rows, one_hot_columns
from gnnexp.datasets.reading.names import GraphNames, ids_file
from gnnexp.datasets.splits.given import without_known
from gnnexp.datasets.splits.held_out import NO_REVERSES, SAME_TYPE, hold_out
from gnnexp.datasets.splits.split import given_split, random_split
from gnnexp.errors import DataError, Problem
from gnnexp.graph.build import CscArrays, build_graph
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.merging import DifferentWeightsError
from gnnexp.graph.sparse import SparseRows
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.storage.layout import SPLITS, arrays_of


@dataclass(kw_only=True, eq=False)
class ForeignOptions(GraphOptions):
    """What happens to edges, splits and features of a graph of another library.

    Attributes:
        split: `auto` takes the split of the file, or draws one if there is none; `given` takes that of the file;
            `random` draws shares of the labelled vertices.
    """

    version: ClassVar[int] = 2  # the first row gave the weight; before: reverses of held-out links stayed in the graph

    split: Literal["auto", "given", "random"] = "auto"

    @property
    def in_both_directions(self) -> bool:
        """Whether an edge without a direction is read as two: merged with it, `symmetrize` adds no further one."""
        return not self.symmetrize or self.duplicates == "merge"


def write_foreign(foreign: ForeignGraph, rules: ForeignOptions, name: str, folder: Path) -> Graph:
    """Write the graph and, next to its arrays, the ids of its vertices and the names of its classes.

    Raises:
        DataError: see `graph_of`.
    """
    graph, names = graph_of(foreign, rules, name)
    with GraphWriter(folder) as writer:
        for array, values in arrays_of(graph).items():
            writer.put(array, values)
        for kind, vertices in foreign.vertices.items():
            ids = np.arange(vertices.count) if vertices.ids is None else vertices.ids
            _save_ids(ids, writer.extra(ids_file(kind)))
        names.write(writer)
        writer.finish_graph(
            name=graph.name, num_classes=graph.num_classes, notes=graph.notes, num_features=graph.num_features
        )
    return open_graph(folder)


def _save_ids(ids: np.ndarray, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"id": ids, "vertex": np.arange(ids.size)}), path)


def graph_of(foreign: ForeignGraph, rules: ForeignOptions, name: str) -> tuple[Graph, GraphNames]:
    """The checked graph, and its names. Vertices are numbered type by type.

    Raises:
        DataError: arrays do not fit together, or a rule of `Graph` is broken.
    """
    if all(edges.reverse is None for edges in foreign.edges):
        check_inverse_relations(rules.inverse_relations, len(foreign.edges))
    target = foreign.target(rules.target)
    labels = _labels(foreign, target)
    splits, drawn = _splits(foreign, rules, target, labels)
    arrays = _edges(foreign, rules)
    counts = [vertices.count for vertices in foreign.vertices.values()]
    types = torch.repeat_interleave(torch.tensor(counts)).int() if len(counts) > 1 else None
    num_classes = 0 if labels is None else _num_classes(labels)
    notes = (
        *foreign.notes,
        *arrays.merged.notes(rules.merge_weights),
        *([f"split drawn by gnnexp, seed {rules.seed}"] * drawn),
    )
    graph = Graph(
        arrays.indptr,
        arrays.indices,
        _features(foreign, rules.sparse),
        None if labels is None else torch.from_numpy(labels),
        num_classes,
        splits,
        edge_types=arrays.types,
        node_types=types,
        edge_weights=arrays.weights,
        name=name,
        notes=notes,
        links={split: torch.from_numpy(pairs) for split, pairs in foreign.links.items()},
    )
    if rules.link_split is not None and foreign.links:
        raise DataError(own_links(rules.link_split))
    reverses = (
        NO_REVERSES if not rules.symmetrize else len(foreign.edges) if _has_inverses(foreign, rules) else SAME_TYPE
    )
    relations = [edges.name for edges in foreign.edges]
    graph = hold_out(graph, rules.link_split, seed=rules.seed, reverses=reverses, names=relations)
    if foreign.links:
        graph = without_known(
            graph,
            reverses=reverses,
            remove=not foreign.keeps_known,
            names=relations,
            why="They stay, because dataset.held_out_edges=keep",
        )
    classes = foreign.vertices[target].classes if target is not None else ()
    return checked(graph, trainable=False), GraphNames(list(foreign.vertices), list(classes), relations)


def _has_inverses(foreign: ForeignGraph, rules: ForeignOptions) -> bool:
    """Whether reverses of edges have types of their own."""
    named = any(edges.reverse is not None for edges in foreign.edges)
    wanted = named or len(foreign.vertices) > 1 if rules.inverse_relations is None else rules.inverse_relations
    return wanted and rules.symmetrize and (named or len(foreign.edges) > 1)


def _edges(foreign: ForeignGraph, rules: ForeignOptions) -> CscArrays:
    starts, edges = foreign.starts, foreign.edges
    total, several = (
        sum(of_type.source.size for of_type in edges),
        len(edges) > 1 or _has_inverses(foreign, rules),
    )
    if not total:
        raise DataError(Problem("dataset.path", "0 edges", "there are no edges", "give at least one"))
    check_memory(40 * total * (1 + rules.symmetrize), f"{total} edges")
    DataError.raise_all([problem for of_type in edges for problem in _end_problems(foreign, of_type)])
    source, destination = (
        np.concatenate([ends.astype(np.int64, copy=False) + starts[kind] for ends, kind in pairs])
        for pairs in (
            [(of_type.source, of_type.types[0]) for of_type in edges],
            [(of_type.destination, of_type.types[1]) for of_type in edges],
        )
    )
    weighted = any(of_type.weight is not None for of_type in edges)
    weights = (
        np.concatenate(
            [
                np.ones(of_type.source.size, np.float32) if of_type.weight is None else of_type.weight
                for of_type in edges
            ]
        )
        if weighted
        else None
    )
    types = (
        np.repeat(np.arange(len(edges), dtype=np.int32), [of_type.source.size for of_type in edges])
        if several
        else None
    )
    try:
        return build_graph(
            source,
            destination,
            foreign.num_nodes,
            types=types,
            symmetrize=rules.symmetrize,
            num_relations=len(edges) if _has_inverses(foreign, rules) else None,
            self_loops=rules.self_loops,
            duplicates=rules.duplicates,
            weights=weights,
            merge_weights=rules.merge_weights,
            by_weight=True,
        )
    except DifferentWeightsError as error:
        raise error.named({vertex: _id(foreign, vertex) for vertex in error.vertices}) from None


def _id(foreign: ForeignGraph, vertex: int) -> str:
    """The user's id of a vertex of the graph."""
    kind, start = next((kind, start) for kind, start in reversed(foreign.starts.items()) if start <= vertex)
    ids = foreign.vertices[kind].ids
    own = vertex - start if ids is None else ids[vertex - start]
    return f"{own}" if len(foreign.vertices) == 1 else f"{kind} {own}"


def _end_problems(foreign: ForeignGraph, edges: ForeignEdges) -> list[Problem]:
    """Problems of ends that are no vertices of their type. The offsets of types would hide them."""
    problems = []
    for role, ends, kind in (
        ("source", edges.source, edges.types[0]),
        ("destination", edges.destination, edges.types[1]),
    ):
        count = foreign.vertices[kind].count
        wrong = np.flatnonzero((ends < 0) | (ends >= count))
        if wrong.size:
            problems.append(
                Problem(
                    f"edges {edges.name}, edge {wrong[0]}, {role}",
                    int(ends[wrong[0]]),
                    f"{kind} has the vertices 0 to {count - 1}; {wrong.size} edges are wrong",
                    "correct the file",
                )
            )
    return problems


def _labels(foreign: ForeignGraph, target: str | None) -> np.ndarray | None:
    """`[V]` classes or real numbers, or `[V, C]`: -1 or NaN for the vertices of other types."""
    if target is None:
        return None
    own = foreign.vertices[target].labels
    assert own is not None
    real = own.dtype.kind == "f"
    if own.ndim == 2 and own.shape[1] == 1 and not (real and np.isin(own[~np.isnan(own)], (0, 1)).all()):
        own = own[:, 0]
    whole = np.full((foreign.num_nodes, *own.shape[1:]), np.nan if real else -1, np.float32 if real else np.int64)
    whole[foreign.starts[target] :][: own.shape[0]] = own
    return whole


def _num_classes(labels: np.ndarray) -> int:
    if labels.ndim == 2:
        return int(labels.shape[1])
    return 0 if labels.dtype.kind == "f" else int(labels.max(initial=-1)) + 1  # real numbers have no classes


def _splits(
    foreign: ForeignGraph, rules: ForeignOptions, target: str | None, labels: np.ndarray | None
) -> tuple[Splits, bool]:
    """The split, and whether gnnexp has drawn it.

    Raises:
        DataError: `dataset.split=given`, and there is no split.
    """
    with_splits = [kind for kind, vertices in foreign.vertices.items() if vertices.splits and target in (None, kind)]
    if rules.split == "given" and not with_splits:
        raise DataError(
            Problem(
                "dataset.split", "given", "the file has no split of the labelled vertices", "set dataset.split=random"
            )
        )
    if rules.split != "random" and with_splits:
        starts = foreign.starts
        parts = {
            name: [_numbers(foreign.vertices[kind].splits.get(name)) + starts[kind] for kind in with_splits]
            for name in SPLITS
        }
        return given_split(*(np.concatenate(parts[name]) for name in SPLITS)), False
    if labels is None:
        return given_split(*(np.empty(0, np.int64),) * 3), False
    return random_split(foreign.num_nodes, rules.train, rules.val, seed=rules.seed, among=_labelled(labels)), True


def _labelled(labels: np.ndarray) -> np.ndarray:
    """`[V]` bool: which vertices have a label."""
    if labels.dtype.kind != "f":
        return labels >= 0
    rows: np.ndarray = ~np.isnan(labels.reshape(labels.shape[0], -1)).any(1)
    return rows


def _numbers(part: np.ndarray | None) -> np.ndarray:
    if part is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(part) if part.dtype == bool else part.astype(np.int64)


def _features(foreign: ForeignGraph, sparse: Sparse) -> Tensor | SparseRows | None:
    """`[V, D]`: with several types, the one-hot code of the type, then columns for each type."""
    blocks = [vertices.features for vertices in foreign.vertices.values()]
    if len(blocks) == 1:
        [rows] = blocks
        if rows is None:
            return None
        if isinstance(rows, np.ndarray):
            with warnings.catch_warnings():  # a map of a file is only read
                warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
                return torch.from_numpy(np.ascontiguousarray(rows, np.float32))
        return feature_rows(scipy.sparse.csr_array(rows), sparse, normalize=False)
    counts = [vertices.count for vertices in foreign.vertices.values()]
    codes = one_hot_columns(np.repeat(np.arange(len(counts)), counts)[:, None])
    widened = scipy.sparse.block_diag(
        [
            scipy.sparse.csr_array((count, 0), dtype=np.float32) if block is None else block
            for count, block in zip(counts, blocks, strict=True)
        ],
        format="csr",
    )
    return feature_rows(
        scipy.sparse.csr_array(scipy.sparse.hstack([codes, widened], format="csr")), sparse, normalize=False
    )
