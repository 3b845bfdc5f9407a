"""A user's own graph from tables: vertices and edges with named columns, and ids of any integers or texts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from gnnexp.datasets.base import Dataset, check_memory, data_folder
from gnnexp.datasets.splits.split import check_fractions, given_split, random_split
from gnnexp.datasets.tables.edges import EdgeColumns, numbered, read_integers, read_texts
from gnnexp.datasets.tables.engine import Engine, Table, TextForm, engine
from gnnexp.datasets.tables.files import TableFiles, find_files
from gnnexp.datasets.tables.ids import Ids, are_integers, ids_of_rows, named_integers, named_texts
from gnnexp.datasets.tables.roles import AUTO, column, ends, require
from gnnexp.datasets.tables.spool import Spool
from gnnexp.datasets.tables.vertices import (
    Labels,
    VertexColumns,
    numeric,
    read_features,
    read_labels,
    read_splits,
)
from gnnexp.errors import ConfigError, DataError, Findings, Problem
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.storage.external import EdgeRules, write_csc
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.storage.layout import SPLITS

_VERTEX = "vertex"


@dataclass(kw_only=True, eq=False)
class Tables(Dataset):
    """A graph from a table of edges and, if there is one, a table of vertices.

    Tables are CSV, TSV, JSON lines, Parquet or Arrow: a file, a folder of shards, or a pattern. Names of files are
    relative to `path`. A column that is `auto` is found by its name; `null` means that there is none.

    Attributes:
        name: name of the graph.
        path: folder of the tables; null = `$GNNEXP_DATA/tables`.
        edges: table of edges.
        nodes: table with a row for each vertex; null = vertices are those that edges name.
        id: column of ids in `nodes`.
        source: column of sources' ids in `edges`.
        destination: column of destinations' ids.
        weight: column of edge weights.
        label: column of classes in `nodes`: names or whole numbers.
        features: columns of numbers in `nodes`; `auto` = all without another role.
        split: `random` shares of the labelled vertices, or the words of a column of `nodes` (`split=column`).
        split_column: this column.
        train: share of training vertices (`split=random`).
        val: share of validation vertices (`split=random`); the rest is test.
        seed: seed of the split.
        on_unknown: what happens to edges that name an unknown vertex: `error`, or `drop`, which is counted.
        as_text: columns that are read as text, whatever they look like.
        delimiter: separator of columns in text; null = found.
        header: whether text begins with a line of names; null = found.
        encoding: encoding of text.
        symmetrize: add the reverse of each edge.
        self_loops: `keep` or `remove`.
        duplicates: `merge` or `keep` parallel edges.
        buffer_bytes: memory for a part of the edges at a time.
    """

    unkeyed: ClassVar[frozenset[str]] = frozenset({"path", "buffer_bytes"})

    name: str = "tables"
    path: str | None = None
    edges: str = "edges.csv"
    nodes: str | None = None
    id: str = AUTO
    source: str = AUTO
    destination: str = AUTO
    weight: str | None = AUTO
    label: str | None = AUTO
    features: list[str] | Literal["auto"] | None = "auto"
    split: Literal["random", "column"] = "random"
    split_column: str = AUTO
    train: float = 0.6
    val: float = 0.2
    seed: int = 0
    on_unknown: Literal["error", "drop"] = "error"
    as_text: list[str] = field(default_factory=list)
    delimiter: str | None = None
    header: bool | None = None
    encoding: Literal["utf-8", "utf-16", "latin-1"] = "utf-8"
    symmetrize: bool = True
    self_loops: Literal["keep", "remove"] = "remove"
    duplicates: Literal["merge", "keep"] = "merge"
    buffer_bytes: int = 1 << 29

    def __post_init__(self) -> None:
        check_fractions(train=self.train, val=self.val)
        rules = (
            ("split", self.split == "random" or self.nodes is not None, "needs a table of vertices",
             "set dataset.nodes=TABLE, or dataset.split=random"),
            ("delimiter", self.delimiter is None or len(self.delimiter) == 1, "one character, or null",
             "set dataset.delimiter=null"),
            ("buffer_bytes", self.buffer_bytes >= 1 << 26, "64 MiB or more", "set dataset.buffer_bytes=536870912"),
        )
        ConfigError.raise_all([Problem(f"dataset.{name}", getattr(self, name), allowed, fix)
                               for name, holds, allowed, fix in rules if not holds])

    @property
    def at_hand(self) -> bool:
        """False: tables may be large, so the configuration is checked first."""
        return False

    def sources(self) -> list[Path]:
        """All files of all tables."""
        return [path for files in self._files().values() for path in files.paths]

    def _files(self) -> dict[str, TableFiles]:
        folder = data_folder(self.path, "tables")
        findings = Findings()
        named = {"dataset.edges": self.edges} | ({} if self.nodes is None else {"dataset.nodes": self.nodes})
        found = {key: findings.attempt(find_files, key, folder, text) for key, text in named.items()}
        findings.raise_all()
        return {key: files for key, files in found.items() if files is not None}

    def load(self) -> Graph:
        """The graph in memory."""
        with tempfile.TemporaryDirectory() as folder:
            self.generate(Path(folder) / "graph")
            return open_graph(Path(folder) / "graph", mmap=False)

    def generate(self, folder: Path) -> Graph:
        """Write the graph, and the ids of its vertices next to it (`ids_vertex.parquet`), in bounded memory."""
        files = self._files()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place, \
                engine(Path(place), self.buffer_bytes, 2) as reader:
            edges, nodes = self._columns(reader, files)
            self._write(reader, edges, nodes, Path(place), folder)
        return open_graph(folder)

    def _columns(self, reader: Engine, files: Mapping[str, TableFiles]) -> tuple[EdgeColumns, VertexColumns | None]:
        """What each column means.

        Raises:
            DataError: a column is missing or ambiguous. Names all problems.
        """
        findings = Findings()
        edges = findings.attempt(self._edge_columns, reader, files["dataset.edges"])
        nodes = None
        if "dataset.nodes" in files:
            nodes = findings.attempt(self._vertex_columns, reader, files["dataset.nodes"])
        findings.raise_all()
        assert edges is not None
        return edges, nodes

    def _table(self, reader: Engine, files: TableFiles) -> Table:
        form = TextForm(self.delimiter, self.header, self.encoding)
        table = reader.table(files, form)
        forced = [name for name in self.as_text if name in table.types]
        return reader.table(files, form, as_text=forced) if forced else table

    def _edge_columns(self, reader: Engine, files: TableFiles) -> EdgeColumns:
        table = self._table(reader, files)
        source, destination = ends(table, self.source, self.destination)
        weight = column(table, "weight", self.weight, needed=False, taken=(source, destination))
        return EdgeColumns("edges", table, source, destination, (_VERTEX, _VERTEX), weight)

    def _vertex_columns(self, reader: Engine, files: TableFiles) -> VertexColumns:
        table = self._table(reader, files)
        identity = column(table, "id", self.id, needed=True)
        assert identity is not None
        split = None
        if self.split == "column":
            split = column(table, "split", self.split_column, needed=True, taken=(identity,))
        taken = [identity] if split is None else [identity, split]
        label = column(table, "label", self.label, needed=False, taken=taken)
        taken += [] if label is None else [label]
        if self.features == AUTO:
            features = numeric(table, [name for name in table.types if name not in taken])
        else:
            features = list(self.features or ())
            require(table, "features", features)
        return VertexColumns(_VERTEX, table, identity, label, split, tuple(features))

    def _write(
        self, reader: Engine, edges: EdgeColumns, nodes: VertexColumns | None, place: Path, folder: Path
    ) -> None:
        spool, ids, dropped = self._numbered(reader, edges, nodes, place)
        notes = [f"{dropped} edges to unknown vertices were dropped"] if dropped else []
        labels = None if nodes is None or nodes.label is None else read_labels(reader, nodes)
        splits = self._splits(reader, nodes, ids.count, labels)
        notes += [f"split drawn by gnnexp, seed {self.seed}"] if labels is not None and self.split == "random" else []
        with GraphWriter(folder) as writer:
            self._write_edges(spool, ids.count, writer)
            if nodes is not None and nodes.features:
                read_features(reader, nodes, writer.array("features", (ids.count, len(nodes.features)), np.float32))
            if labels is not None:
                writer.put("labels", labels.values)
            for name in SPLITS:
                writer.put(name, getattr(splits, name))
            ids.save(writer.extra(f"ids_{_VERTEX}.parquet"))
            writer.finish_graph(name=self.name, num_classes=0 if labels is None else len(labels.classes), notes=notes)

    def _numbered(self, reader: Engine, edges: EdgeColumns, nodes: VertexColumns | None, place: Path
                  ) -> tuple[Spool, Ids, int]:
        """Edges between numbers of vertices, the ids of the vertices, and how many edges were dropped."""
        named = [(edges.table, edges.source), (edges.table, edges.destination)]
        text = not all(are_integers(*one) for one in [*named, *([] if nodes is None else [(nodes.table, nodes.id)])])
        ids: Ids | None = None if nodes is None else ids_of_rows(reader, nodes.table, nodes.id, text=text)
        raw = read_texts(reader, edges) if text else read_integers(reader, edges, place)
        if ids is None and raw.spool is None:
            ids = named_texts(reader, [(edges.table, raw.rows, end) for end in ("source", "destination")])
        elif ids is None:
            assert raw.spool is not None
            low, high = (pick(one[side] for one in raw.span) for side, pick in ((0, min), (1, max)))
            ids = named_integers(raw.spool.chunks(("source", "destination")), low, high, 2 * raw.spool.num_rows)
        check_memory(24 * ids.count, f"{ids.count} vertices")
        spool, dropped = numbered(reader, raw, {_VERTEX: ids}, place, drop=self.on_unknown == "drop")
        return spool, ids, dropped

    def _write_edges(self, spool: Spool, num_nodes: int, writer: GraphWriter) -> None:
        if not spool.num_rows:
            raise DataError(Problem("dataset.edges", self.edges, "has no edges", "give at least one row"))
        if "weight" in spool.names:
            arrays = build_graph(spool.column("source"), spool.column("destination"), num_nodes,
                                 symmetrize=self.symmetrize, self_loops=self.self_loops, duplicates=self.duplicates,
                                 weights=spool.column("weight"), key="dataset.edges")
            assert arrays.weights is not None
            for name, values in (("indptr", arrays.indptr), ("indices", arrays.indices),
                                 ("edge_weights", arrays.weights)):
                writer.put(name, values)
            return
        rules = EdgeRules(self.symmetrize, self.self_loops == "remove", self.duplicates == "merge")

        def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            return ((source, destination) for source, destination in spool.chunks(("source", "destination")))

        write_csc(chunks, num_nodes, rules, self.buffer_bytes, writer)

    def _splits(self, reader: Engine, nodes: VertexColumns | None, num_nodes: int, labels: Labels | None) -> Splits:
        if nodes is not None and nodes.split is not None:
            found = read_splits(reader, nodes)
            return given_split(found["train"], found["val"], found["test"])
        if labels is None:
            return Splits(*(torch.empty(0, dtype=torch.int64),) * 3)
        return random_split(num_nodes, self.train, self.val, seed=self.seed, among=labels.values >= 0)
