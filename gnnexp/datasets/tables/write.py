"""Writes the graph of tables in gnnexp's format, in bounded memory: first vertices, then edges, then their data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.reading.features import Sparse, feature_rows, one_hot_columns
from gnnexp.datasets.reading.names import Column, ids_file
from gnnexp.datasets.splits.times import LinkTimes, Times
from gnnexp.datasets.tables.edges import ENDS
from gnnexp.datasets.tables.engine import Engine
from gnnexp.datasets.tables.features import FeatureForm, Matrix, read_feature_file, read_features
from gnnexp.datasets.tables.ids import Ids, IntegerIds, ids_of_rows
from gnnexp.datasets.tables.layout import TableLayout
from gnnexp.datasets.tables.numbering import named_by_edges, number_edges
from gnnexp.datasets.tables.raw_edges import RawEdges, read_edges
from gnnexp.datasets.tables.spool import Spool
from gnnexp.datasets.tables.vertices import LabelKind, Labels, NoLabel, read_labels
from gnnexp.datasets.tables.written import NoIntegersError
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.graph.build import Duplicates, SelfLoops
from gnnexp.graph.graph import Graph
from gnnexp.graph.merging import DifferentWeightsError, MergedEdges, MergeWeights
from gnnexp.graph.sparse import SparseRows
from gnnexp.graph.storage.external import EdgeRows, EdgeRules, write_csc, write_csc_with_data
from gnnexp.graph.storage.format import GraphWriter
from gnnexp.graph.storage.writer import ArrayWriter

_HELD = 4  # edges in memory before they are sorted take at most this part (1 / 4) of the buffer


@dataclass(frozen=True)
class TableRules:
    """What happens to edges, and how much memory a part of them may take; see `Tables`.

    Attributes:
        weighted: whether edges have the weights of the tables.
    """

    symmetrize: bool
    inverse_relations: bool
    self_loops: SelfLoops
    duplicates: Duplicates
    merge_weights: MergeWeights
    drop: bool
    buffer_bytes: int
    weighted: bool = True


@dataclass(frozen=True, eq=False)
class NumberedTables:
    """Vertices and edges with numbers.

    Attributes:
        ids: ids of the vertices by type, until they are written.
        counts: number of vertices of each type.
        starts: number of the first vertex of each type.
        spools: edges of each table.
        relations: number of types of edges of each table.
        notes: what was left out.
    """

    ids: Mapping[str, Ids]
    counts: Mapping[str, int]
    starts: Mapping[str, int]
    spools: Sequence[Spool]
    relations: Sequence[int]
    notes: Sequence[str]

    @property
    def num_relations(self) -> int:
        """R, of all tables."""
        return sum(self.relations)

    @property
    def num_nodes(self) -> int:
        """V, of all types."""
        return sum(self.counts.values())

    @property
    def has_weights(self) -> bool:
        """Whether a table has weights of edges."""
        return any("weight" in spool.names for spool in self.spools)


def number(
    reader: Engine, layout: TableLayout, rules: TableRules, place: Path, rows: int | None = None
) -> NumberedTables:
    """Number all vertices, and read all edges. Files go to the folder `place`.

    With `rows`, and without a table of vertices, ids are numbers from 0 to `rows` - 1: the rows of a file of features.

    Raises:
        DataError: ids are missing, repeated or unknown, or a type has no vertices. Names rows.
    """
    ids, raw, layout = _read(reader, layout, rules, place)
    for kind in layout.types:
        if kind not in ids:
            counted = None if rows is None or kind in layout.texts else IntegerIds(np.arange(rows))
            ids[kind] = counted or named_by_edges(reader, kind, raw, rules.buffer_bytes, text=kind in layout.texts)
    ids = {kind: ids[kind] for kind in layout.types}
    counts = {kind: part.count for kind, part in ids.items()}
    empty = [kind for kind, count in counts.items() if not count]
    DataError.raise_all(
        [Problem("dataset.nodes", kind, "this type has no vertices", "give its table a row") for kind in empty]
    )
    starts = dict(zip(ids, accumulate(counts.values(), initial=0), strict=False))
    check_memory(24 * sum(counts.values()), "vertices")
    findings, spools, notes = Findings(), [], layout.pointed()
    for part in raw:
        spooled = findings.attempt(
            number_edges, reader, part, ids, starts, place, _held(layout, rules), drop=rules.drop
        )
        if spooled is None:
            continue
        spool, dropped = spooled
        spools.append(spool)
        notes += [_dropped(dropped, part.columns.name)] if dropped else []
    findings.raise_all()
    return NumberedTables(ids, counts, starts, spools, [len(part.relations) for part in layout.edges], notes)


def _held(layout: TableLayout, rules: TableRules) -> int:
    """Most bytes of the edges of a table in memory, before they are sorted."""
    return rules.buffer_bytes // (_HELD * max(1, len(layout.edges)))


def _read(
    reader: Engine, layout: TableLayout, rules: TableRules, place: Path
) -> tuple[dict[str, Ids], list[RawEdges], TableLayout]:
    """The ids of all tables of vertices by type, the edges of all tables, and the layout that fits all rows.

    Raises:
        DataError: ids are missing or repeated. Names rows.
    """
    findings, held = Findings(), _held(layout, rules)
    try:
        form_of = {
            kind: findings.attempt(ids_of_rows, reader, nodes.written, nodes.id, kind, text=kind in layout.texts)
            for kind, nodes in layout.vertices.items()
        }
        tried = [
            findings.attempt(read_edges, reader, columns, layout.texts, place, rules.buffer_bytes, held)
            for columns in layout.edges
        ]
    except NoIntegersError as error:  # what looks like integers in the sample is none further below
        layout = layout.after(reader, error)
    else:
        findings.raise_all()
        return (
            {kind: ids for kind, ids in form_of.items() if ids is not None},
            [edges for edges in tried if edges is not None],
            layout,
        )
    return _read(reader, layout, rules, place)


def _dropped(count: int, table: str) -> str:
    edges = "1 edge" if count == 1 else f"{count} edges"
    return f"dropped {edges} of {table!r} with an unknown end"


def write_ids(graph: NumberedTables, writer: GraphWriter) -> NumberedTables:
    """Write the ids of all vertices. Returns the graph without ids: they may take more memory than edges."""
    for kind, ids in graph.ids.items():
        ids.save(writer.extra(ids_file(kind)))
    return replace(graph, ids={})


def write_edges(
    graph: NumberedTables, rules: TableRules, writer: ArrayWriter, before: Times | None = None
) -> MergedEdges:
    """Write the topology, with types if there are several types of edges, and with weights if tables have them.

    Edges are never all in memory.

    Args:
        graph: the vertices, and the edges of all tables.
        rules: what happens to edges.
        writer: gets the arrays.
        before: the time from which on rows do not count; None: all rows count.

    Raises:
        DataError: there are no edges, or parallel edges have different weights and there is no rule for them.
    """
    spools = graph.spools
    if not any(spool.num_rows for spool in spools):
        raise DataError(Problem("dataset.edges", "0 rows", "there are no edges", "give at least one"))
    weighted = graph.has_weights and rules.weighted
    inverse = graph.num_relations > 1 and rules.inverse_relations and rules.symmetrize
    plain = EdgeRules(
        rules.symmetrize and not inverse, rules.self_loops == "remove", rules.duplicates == "merge", rules.merge_weights
    )
    if weighted or graph.num_relations > 1:
        return write_csc_with_data(
            lambda: _with_data(graph, before, weighted=weighted, inverse=inverse),
            graph.num_nodes,
            plain,
            rules.buffer_bytes,
            writer,
        )

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return ((values["source"], values["destination"]) for values in _rows_before(spools[0], before))

    write_csc(chunks, graph.num_nodes, plain, rules.buffer_bytes, writer)
    return MergedEdges()


def error_with_ids(error: DifferentWeightsError, graph: NumberedTables, folder: Path) -> DataError:
    """The same error with the user's ids, which a folder has as `write_ids` has written them."""
    from pyarrow import parquet

    names = {}
    for vertex in error.vertices:
        kind, start = next((kind, start) for kind, start in [*graph.starts.items()][::-1] if start <= vertex)
        row = parquet.read_table(folder / ids_file(kind), filters=[("vertex", "==", vertex - start)])
        own = row["id"][0].as_py()
        names[vertex] = f"{own}" if len(graph.starts) == 1 else f"{kind} {own}"
    return error.named(names)


def _rows_before(spool: Spool, before: Times | None) -> Iterator[dict[str, np.ndarray]]:
    """The columns of all rows, or of those that are older than a time."""
    names = spool.names if before is not None else [name for name in spool.names if name != "time"]
    for chunk in spool.chunks(names):
        values = dict(zip(names, chunk, strict=True))
        older = None if before is None else values["time"] < before.values[0]
        yield values if older is None else {name: column[older] for name, column in values.items()}


def _with_data(graph: NumberedTables, before: Times | None, *, weighted: bool, inverse: bool) -> Iterator[EdgeRows]:
    """All edges with types and weights, and with `inverse` their reverses, which have types of their own."""
    typed = graph.num_relations > 1
    for spool, first in zip(graph.spools, accumulate(graph.relations, initial=0), strict=False):
        for values in _rows_before(spool, before):
            source, destination = (values[end] for end in ENDS)
            types = values.get("relation", np.zeros(source.size, np.int32)) + np.int32(first) if typed else None
            weights = values.get("weight", np.ones(source.size, np.float32)) if weighted else None
            yield EdgeRows(source, destination, types, weights)
            if inverse:
                assert types is not None
                yield EdgeRows(destination, source, types + np.int32(graph.num_relations), weights)


def _types(graph: NumberedTables) -> list[np.ndarray]:
    """`[E]` int32 type of the edges of each table."""
    firsts = accumulate(graph.relations, initial=0)
    return [
        spool.column("relation") + np.int32(first)
        if "relation" in spool.names
        else np.full(spool.num_rows, first, np.int32)
        for spool, first in zip(graph.spools, firsts, strict=False)
    ]


def link_times(whole: Graph, graph: NumberedTables, layout: TableLayout, rules: TableRules) -> Times:
    """`[E]` the time of each edge: the earliest of the rows that name its link.

    Raises:
        DataError: tables have times of different kinds.
    """
    columns = [column.time for column in layout.edges if column.time is not None]
    if len({(column.dtype, column.dated) for column in columns}) > 1:
        raise DataError(
            Problem(
                "dataset.time",
                [column.column for column in columns],
                "tables of edges have times of different kinds",
                "give all of them dates, or all of them whole numbers",
            )
        )
    link_times_of, back = LinkTimes(whole, columns[0].dtype), graph.num_relations * rules.inverse_relations
    for spool, types in zip(graph.spools, _types(graph), strict=True):
        source, destination, times = (spool.column(name) for name in (*ENDS, "time"))
        link_times_of.add(source, destination, types, times)
        if rules.symmetrize:
            link_times_of.add(destination, source, types + np.int32(back), times)
    return Times(link_times_of.values, columns[0].column, columns[0].dated)


def table_labels(
    reader: Engine, layout: TableLayout, graph: NumberedTables, label_kind: LabelKind, no_label: NoLabel
) -> Labels | None:
    """`[V]` labels of all vertices, -1 or NaN for types without labels; None if no table has labels."""
    for kind, nodes in layout.vertices.items():
        if nodes.label is not None:
            labels = read_labels(reader, nodes, label_kind, no_label)
            real = labels.values.dtype.kind == "f"
            values = np.full(graph.num_nodes, np.nan if real else -1, labels.values.dtype)
            values[graph.starts[kind] : graph.starts[kind] + labels.values.size] = labels.values
            return labels._replace(values=values)
    return None


def table_features(
    reader: Engine,
    layout: TableLayout,
    graph: NumberedTables,
    form: FeatureForm,
    file: Path | None,
    sparse: Sparse,
) -> tuple[Tensor | SparseRows | None, dict[str, list[Column]], list[str]]:
    """`[V, D]` features, what the columns of each type are, and what to note.

    With one type of vertices, rows are the columns of its table, or a file. With several types, each type has columns
    of its own, after a one-hot code of the type.
    """
    names: dict[str, list[Column]] = {kind: [] for kind in graph.counts}
    notes: list[str] = []
    matrices = {
        kind: read_features(reader, nodes, graph.counts[kind], form, names[kind], notes)
        for kind, nodes in layout.vertices.items()
    }
    if len(graph.ids) == 1:
        [(kind, ids)] = graph.ids.items()
        rows = matrices.get(kind) if file is None else read_feature_file(file, ids, form, names[kind])
        return (None if rows is None else _rows(rows, sparse)), names, notes
    counts = [*graph.counts.values()]
    types = np.repeat(np.arange(len(counts)), counts)
    blocks = [matrices.get(kind) for kind in graph.counts]
    widened = scipy.sparse.block_diag(
        [
            scipy.sparse.csr_array((count, 0), dtype=np.float32) if block is None else block
            for count, block in zip(counts, blocks, strict=True)
        ],
        format="csr",
    )
    return _rows(scipy.sparse.hstack([one_hot_columns(types[:, None]), widened], format="csr"), sparse), names, notes


def _rows(rows: Matrix, sparse: Sparse) -> Tensor | SparseRows:
    if isinstance(rows, np.ndarray):
        return torch.from_numpy(rows)
    return feature_rows(scipy.sparse.csr_array(rows), sparse, normalize=False)


def write_rows(
    graph: NumberedTables, features: Tensor | SparseRows | None, labels: Labels | None, writer: GraphWriter
) -> int | None:
    """Write features, labels and types of vertices. Returns D if features are sparse."""
    if len(graph.counts) > 1:
        types = np.arange(len(graph.counts), dtype=np.int32)
        writer.put("node_types", np.repeat(types, [*graph.counts.values()]))
    if labels is not None:
        writer.put("labels", labels.values)
    if isinstance(features, SparseRows):
        for name in ("indptr", "columns", "values"):
            writer.put(f"features_{name}", getattr(features, name))
        return features.num_columns
    if features is not None:
        writer.put("features", features)
    return None


def no_splits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Empty splits."""
    empty = torch.empty(0, dtype=torch.int64)
    return empty, empty, empty
