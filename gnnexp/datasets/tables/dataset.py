"""A user's own graph from tables: vertices and edges with named columns, and ids of any integers or texts."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np

from gnnexp.datasets.base import Dataset, data_folder, require
from gnnexp.datasets.reading.features import Sparse
from gnnexp.datasets.reading.names import Columns, Names, ids_file, is_of_names
from gnnexp.datasets.splits.held_out import NO_REVERSES, SAME_TYPE, LinkSplit, check_link_split, hold_out
from gnnexp.datasets.splits.split import check_fractions, given_split, random_split
from gnnexp.datasets.tables.engine import Engine, TextForm, engine
from gnnexp.datasets.tables.features import FILES, Empty, FeatureForm, NewValues, rows_of_file
from gnnexp.datasets.tables.files import TableFiles
from gnnexp.datasets.tables.layout import (
    Asked,
    EdgeEntries,
    EdgeTable,
    Layout,
    check_tables,
    edge_tables,
    find_layout,
    vertex_tables,
)
from gnnexp.datasets.tables.roles import AUTO
from gnnexp.datasets.tables.vertices import Labels, read_splits
from gnnexp.datasets.tables.write import (
    Numbered,
    Rules,
    features_of,
    labels_of,
    no_splits,
    number,
    write_edges,
    write_rows,
)
from gnnexp.errors import ConfigError, Findings, Problem
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.storage.layout import SPLITS, arrays_of


@dataclass(kw_only=True, eq=False)
class Tables(Dataset):
    """A graph from a table of edges and, if there is one, a table of vertices.

    Tables are CSV, TSV, JSON lines, Parquet or Arrow: a file, a folder of shards, or a pattern. Names of files are
    relative to `path`. A column that is `auto` is found by its name; `null` means that there is none.

    Attributes:
        name: name of the graph.
        path: folder of the tables; null = `$GNNEXP_DATA/tables`.
        edges: table of edges, or a table for each type of edges: `{TYPE: {table: FILE, from: TYPE, to: TYPE}}`, where
            `from` and `to` are types of vertices; `source`, `destination` and `weight` may name its columns.
        nodes: table with a row for each vertex, or a table for each type of vertices: `{TYPE: FILE}`. Vertices of a
            type without a table are those that edges name.
        id: column of ids in `nodes`.
        source: column of sources' ids in `edges`.
        destination: column of destinations' ids.
        weight: column of edge weights.
        label: column of classes in `nodes`: names or whole numbers.
        target: type of the vertices with labels; null = the only one.
        features: columns of numbers, or of lists of numbers, in `nodes`; `auto` = all without another role. Or a file
            next to the tables: `.npy`, `.npz`, or `.json` with `{id: [number, ...]}`.
        categories: columns of `nodes` of which each value becomes a feature (one-hot).
        empty: what replaces missing numbers: `error` refuses them, `mean` of their column, `zero`.
        standardize: give each column of numbers the mean 0 and the standard deviation 1, over all vertices.
        new_values: for predictions on other tables: `error` refuses categories and words that the model was not
            trained with, `zero` gives them no feature.
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
        nulls: words in text that mean an empty cell.
        sparse: whether features of several types are stored as sparse rows (true), dense (false), or by size (auto).
        symmetrize: add the reverse of each edge.
        inverse_relations: the reverse of an edge of type r has type R + r; null = if there are several types of
            vertices.
        self_loops: `keep` or `remove`.
        duplicates: `merge` or `keep` parallel edges.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
        buffer_bytes: memory for a part of the edges at a time.
    """

    unkeyed: ClassVar[frozenset[str]] = frozenset({"path", "buffer_bytes"})

    name: str = "tables"
    path: str | None = None
    edges: EdgeEntries = "edges.csv"
    nodes: str | Mapping[str, str] | None = None
    id: str = AUTO
    source: str = AUTO
    destination: str = AUTO
    weight: str | None = AUTO
    label: str | None = AUTO
    target: str | None = None
    features: list[str] | str | None = AUTO
    categories: list[str] = field(default_factory=list)
    empty: Empty = "error"
    standardize: bool = False
    new_values: NewValues = "error"
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
    sparse: Sparse = "auto"
    nulls: list[str] = field(default_factory=lambda: [""])
    symmetrize: bool = True
    inverse_relations: bool | None = None
    self_loops: Literal["keep", "remove"] = "remove"
    duplicates: Literal["merge", "keep"] = "merge"
    link_split: LinkSplit = None
    buffer_bytes: int = 1 << 29

    def __post_init__(self) -> None:
        self._known: Columns | None = None
        check_fractions(train=self.train, val=self.val)
        check_link_split(self.link_split)
        rules = (
            ("split", self.split == "random" or self.nodes is not None, "needs a table of vertices",
             "set dataset.nodes=TABLE, or dataset.split=random"),
            ("features", not isinstance(self.features, str) or self.features == AUTO
             or Path(self.features).suffix in FILES, f"auto, null, [COLUMN, ...], or a file ({', '.join(FILES)})",
             "set dataset.features=auto"),
            ("delimiter", self.delimiter is None or len(self.delimiter) == 1, "one character, or null",
             "set dataset.delimiter=null"),
            ("buffer_bytes", self.buffer_bytes >= 1 << 26, "64 MiB or more", "set dataset.buffer_bytes=536870912"),
        )
        problems = [Problem(f"dataset.{name}", getattr(self, name), allowed, fix)
                    for name, holds, allowed, fix in rules if not holds]
        ConfigError.raise_all(problems + check_tables(self.nodes, self.edges))

    def like(self, names: Names) -> Self:
        """See `Dataset.like`. A model of a graph without columns of features takes any tables."""
        made = copy.copy(self)
        made._known = names.columns or None
        return made

    def options(self) -> dict[str, object]:
        """Constructor arguments that decide the graph, and the columns of a trained model (`like`)."""
        return super().options() if self._known is None else {**super().options(), "known": self._known}

    @property
    def at_hand(self) -> bool:
        """False: tables may be large, so the configuration is checked first."""
        return False

    def sources(self) -> list[Path]:
        """All files of all tables."""
        vertices, edges = self._files()
        tables = [path for files in (*vertices.values(), *(one.files for one in edges)) for path in files.paths]
        rows = self._feature_file()
        return tables if rows is None else [*tables, rows]

    def _files(self) -> tuple[dict[str, TableFiles], list[EdgeTable]]:
        folder, findings = data_folder(self.path, "tables"), Findings()
        vertices = findings.attempt(vertex_tables, folder, self.nodes)
        edges = findings.attempt(edge_tables, folder, self.edges, self._asked())
        findings.raise_all()
        assert vertices is not None and edges is not None
        return vertices, edges

    def _asked(self) -> Asked:
        split = self.split_column if self.split == "column" else None
        return Asked(self.id, self.source, self.destination, self.weight, self.label, self.target, self.features,
                     split, self.as_text, self.categories, self._known)

    def load(self) -> Graph:
        """The graph in memory."""
        with tempfile.TemporaryDirectory() as folder:
            self.generate(Path(folder) / "graph")
            return open_graph(Path(folder) / "graph", mmap=False)

    def generate(self, folder: Path) -> Graph:
        """Write the graph and, next to its arrays, the ids of its vertices and the names of its classes."""
        vertices, edges = self._files()
        folder.parent.mkdir(parents=True, exist_ok=True)
        form = TextForm(self.delimiter, self.header, self.encoding, self.nulls)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place, \
                engine(Path(place), self.buffer_bytes, os.cpu_count() or 1) as reader:
            layout = find_layout(reader, vertices, edges, form, self._asked())
            if self.link_split is None:
                self._write(reader, layout, Path(place), folder)
            else:
                whole = Path(place) / "whole"
                self._write(reader, layout, Path(place), whole)
                self._hold_out(layout, whole, folder)
        return open_graph(folder)

    def _hold_out(self, layout: Layout, whole: Path, folder: Path) -> None:
        """Write the graph in `whole` to `folder` without the held-out links. All edges are in memory."""
        reverses = (NO_REVERSES if not self.symmetrize else
                    len(layout.edges) if len(layout.edges) > 1 and self._inverse(layout) else SAME_TYPE)
        graph = hold_out(open_graph(whole), self.link_split, seed=self.seed, reverses=reverses)
        with GraphWriter(folder) as writer:
            for name, values in arrays_of(graph).items():
                writer.put(name, values)
            for path in whole.iterdir():
                if is_of_names(path):
                    shutil.copyfile(path, writer.extra(path.name))
            writer.finish_graph(name=graph.name, num_classes=graph.num_classes, notes=graph.notes,
                                num_features=graph.num_features)

    def _inverse(self, layout: Layout) -> bool:
        return len(layout.types) > 1 if self.inverse_relations is None else self.inverse_relations

    def _write(self, reader: Engine, layout: Layout, place: Path, folder: Path) -> None:
        file = self._feature_file()
        rules = Rules(self.symmetrize, self._inverse(layout), self.self_loops, self.duplicates,
                      self.on_unknown == "drop", self.buffer_bytes)
        graph = number(reader, layout, rules, place, None if file is None else rows_of_file(file))
        form = FeatureForm(self.categories, self.empty, self.standardize, self._known, self.new_values)
        features, columns = features_of(reader, layout, graph, form, file, self.sparse)
        labels = labels_of(reader, layout, graph)
        if self._known is not None and labels is not None and not labels.classes:
            labels = None  # a column without any label: the classes are to be predicted
        splits = self._splits(reader, layout, graph, labels)
        drawn = labels is not None and self.split == "random"
        names = Names(list(graph.ids), [] if labels is None else labels.classes,
                      [one.name for one in layout.edges], columns)
        with GraphWriter(folder) as writer:
            write_edges(graph, rules, writer)
            width = write_rows(graph, features, labels, writer)
            for name in SPLITS:
                writer.put(name, getattr(splits, name))
            for kind, ids in graph.ids.items():
                ids.save(writer.extra(ids_file(kind)))
            names.write(writer)
            writer.finish_graph(
                name=self.name, num_classes=0 if labels is None else len(labels.classes), num_features=width,
                notes=[*layout.described(), *graph.notes, *([f"split drawn by gnnexp, seed {self.seed}"] * drawn)])

    def _feature_file(self) -> Path | None:
        """The file of `dataset.features`, if that is a file and no list of columns."""
        if not isinstance(self.features, str) or self.features == AUTO:
            return None
        path = data_folder(self.path, "tables") / self.features
        require([path], "correct dataset.features: auto, null, [COLUMN, ...], or a file next to the tables")
        return path

    def _splits(self, reader: Engine, layout: Layout, graph: Numbered, labels: Labels | None) -> Splits:
        given = [(kind, nodes) for kind, nodes in layout.vertices.items() if nodes.split is not None]
        if given:
            parts: dict[str, list[np.ndarray]] = {name: [np.empty(0, np.int64)] for name in SPLITS}
            for kind, nodes in given:
                for name, found in read_splits(reader, nodes).items():
                    parts[name].append(found + graph.starts[kind])
            return given_split(*(np.concatenate(parts[name]) for name in SPLITS))
        if labels is None:
            return Splits(*no_splits())
        return random_split(graph.num_nodes, self.train, self.val, seed=self.seed, among=labels.values >= 0)
