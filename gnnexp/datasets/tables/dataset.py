"""A user's own graph from tables: vertices and edges with named columns, and ids of any integers or texts."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np

from gnnexp.datasets.base import WrittenDataset, data_folder, require
from gnnexp.datasets.options import GraphOptions, check_inverse_relations
from gnnexp.datasets.published.known_tables import known_tables
from gnnexp.datasets.reading.names import Columns, GraphNames, is_of_names
from gnnexp.datasets.splits.held_out import (
    NO_REVERSES,
    SAME_TYPE,
    hold_out,
    hold_out_by_time,
)
from gnnexp.datasets.splits.split import given_split, random_split
from gnnexp.datasets.splits.times import Times, parts_by_time
from gnnexp.datasets.tables.engine import Engine, engine
from gnnexp.datasets.tables.features import FILES, FeatureForm, NewValues, rows_of_file
from gnnexp.datasets.tables.files import TableFiles
from gnnexp.datasets.tables.layout import (
    ColumnOptions,
    EdgeEntries,
    EdgeTable,
    TableLayout,
    check_tables,
    edge_tables,
    find_layout,
    vertex_tables,
)
from gnnexp.datasets.tables.moments import check_days, moment_of, read_times
from gnnexp.datasets.tables.roles import AUTO
from gnnexp.datasets.tables.scaling import Empty
from gnnexp.datasets.tables.scan import TextForm, path_values
from gnnexp.datasets.tables.vertices import LabelKind, Labels, NoLabel, read_splits, splits_of_files
from gnnexp.datasets.tables.write import (
    NumberedTables,
    TableRules,
    error_with_ids,
    link_times,
    no_splits,
    number,
    table_features,
    table_labels,
    write_edges,
    write_ids,
    write_rows,
)
from gnnexp.errors import ConfigError, Findings, Problem
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.merging import DifferentWeightsError
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.storage.layout import SPLITS, arrays_of


@dataclass(kw_only=True, eq=False)
class Tables(GraphOptions, WrittenDataset):
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
        relation: column of `edges` of which each value is a type of edges: names or whole numbers.
        time: column of times, if `split` is `time`: numbers, dates, or texts in the form of ISO 8601. Times without a
            time zone count as UTC.
        label: column of labels in `nodes`.
        label_kind: `class` (names or whole numbers), `real` (numbers, for `task=node_regression`), or `auto`: numbers
            with fractions are real, all others are classes.
        no_label: the label that means no label, as an empty cell always does; null = none; `auto` = none, and -1
            next to other numbers than 1 is an error.
        features: columns of numbers, or of lists of numbers, in `nodes`; `auto` = all without another role. Or a file
            next to the tables: `.npy`, `.npz`, or `.json` with `{id: [number, ...]}`.
        categories: columns of `nodes` of which each value becomes a feature (one-hot).
        empty: what replaces missing numbers: `error` refuses them, `mean` of their column, `zero`.
        standardize: give each column of numbers the mean 0 and the standard deviation 1, over all vertices.
        new_values: for predictions on other tables: `error` refuses categories and words that the model was not
            trained with, `zero` gives them no feature.
        split: `random` shares of the labelled vertices; the words of a column of `nodes` (`split=column`); the first
            words of the names of its files (`split=files`), such as `train-0.parquet`; or shares by `time`: the oldest
            labelled vertices are for training, the newest for the test. With `link_split`, links are held out by time,
            too: the newest ones.
        split_column: this column.
        train: share of training vertices (`split=random` or `time`).
        val: share of validation vertices (`split=random` or `time`); the rest is test.
        on_unknown: what happens to edges that name an unknown vertex: `error`, or `drop`, which is counted.
        as_text: columns that are read as text, whatever they look like.
        path_columns: columns that are in the names of folders, as `month` in `month=3/edges.csv`.
        delimiter: separator of columns in text; null = found.
        header: whether text begins with a line of names; null = found.
        encoding: encoding of text.
        nulls: words in text that mean an empty cell.
        decimal: sign before fractions in text.
        sparse: whether features of several types are stored as sparse rows (true), dense (false), or by size (auto).
        inverse_relations: the reverse of an edge of type r has type R + r; null = if there are several types of
            vertices, or a column of relations.
        merge_weights: the weight of merged edges: the `sum`, `mean`, `max` or `min` of their rows; `error` refuses
            different ones. The two directions of an edge are no parallel edges: each has its own weight.
        buffer_bytes: memory for a part of the edges at a time.
    """

    # 3: the first row gave the weight; 2: ids and classes of texts were numbers; 1: folders `column=value` were columns
    version: ClassVar[int] = 3
    unkeyed: ClassVar[frozenset[str]] = frozenset({"path", "buffer_bytes"})

    name: str = "tables"
    path: str | None = None
    edges: EdgeEntries = "edges.csv"
    nodes: str | Mapping[str, str] | None = None
    id: str = AUTO
    source: str = AUTO
    destination: str = AUTO
    weight: str | None = AUTO
    relation: str | None = AUTO
    time: str = AUTO
    label: str | None = AUTO
    label_kind: LabelKind = "auto"
    no_label: NoLabel = AUTO
    features: list[str] | str | None = AUTO
    categories: list[str] = field(default_factory=list)
    empty: Empty = "error"
    standardize: bool = False
    new_values: NewValues = "error"
    split: Literal["random", "column", "files", "time"] = "random"
    split_column: str = AUTO
    on_unknown: Literal["error", "drop"] = "error"
    as_text: list[str] = field(default_factory=list)
    path_columns: list[str] = field(default_factory=list)
    delimiter: str | None = None
    header: bool | None = None
    encoding: Literal["utf-8", "utf-16", "latin-1"] = "utf-8"
    nulls: list[str] = field(default_factory=lambda: [""])
    decimal: Literal[".", ","] = "."
    buffer_bytes: int = 1 << 29

    def __post_init__(self) -> None:
        self._known: Columns | None = None
        super().__post_init__()
        rules = (
            (
                "split",
                self.split == "random"
                or self.nodes is not None
                or (self.split == "time" and self.link_split is not None),
                "needs a table of vertices",
                "set dataset.nodes=TABLE, or dataset.split=random",
            ),
            (
                "features",
                not isinstance(self.features, str) or self.features == AUTO or Path(self.features).suffix in FILES,
                f"auto, null, [COLUMN, ...], or a file ({', '.join(FILES)})",
                "set dataset.features=auto",
            ),
            (
                "delimiter",
                self.delimiter is None or len(self.delimiter) == 1,
                "one character, or null",
                "set dataset.delimiter=null",
            ),
            ("buffer_bytes", self.buffer_bytes >= 1 << 26, "64 MiB or more", "set dataset.buffer_bytes=536870912"),
        )
        problems = [
            Problem(f"dataset.{name}", getattr(self, name), allowed, fix)
            for name, holds, allowed, fix in rules
            if not holds
        ]
        ConfigError.raise_all(problems + check_tables(self.nodes, self.edges))

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """Folders of known forms. `gnnexp data` looks at other tables itself."""
        return known_tables(place)

    def like(self, names: GraphNames) -> Self:
        """See `Dataset.like`. A model of a graph without columns of features takes any tables."""
        made = copy.copy(self)
        made._known = names.columns or None
        return made

    def options(self) -> dict[str, object]:
        """Constructor arguments that decide the graph, and the columns of a trained model (`like`)."""
        found = super().options()
        if self.path_columns:  # the key has no paths, but what they say
            vertices, edges = self._files()
            tables = [*vertices.values(), *(one.files for one in edges)]
            found["path_values"] = [[path_values(files, name) for files in tables] for name in self.path_columns]
        return found if self._known is None else {**found, "known": self._known}

    @property
    def at_hand(self) -> bool:
        """False: tables may be large, so the configuration is checked first."""
        return False

    def sources(self) -> list[Path]:
        """All files of all tables."""
        vertices, edges = self._files()
        tables = [path for files in (*vertices.values(), *(one.files for one in edges)) for path in files.paths]
        rows = self.feature_file()
        return tables if rows is None else [*tables, rows]

    def _files(self) -> tuple[dict[str, TableFiles], list[EdgeTable]]:
        folder, findings = data_folder(self.path, "tables"), Findings()
        vertices = findings.attempt(vertex_tables, folder, self.nodes)
        edges = findings.attempt(edge_tables, folder, self.edges, self._asked())
        findings.raise_all()
        assert vertices is not None and edges is not None
        return vertices, edges

    def _asked(self) -> ColumnOptions:
        split = self.split_column if self.split == "column" else None
        time = self.time if self.split == "time" else None
        return ColumnOptions(
            self.id,
            self.source,
            self.destination,
            self.weight,
            self.relation,
            time,
            self.label,
            self.target,
            self.features,
            split,
            self.as_text,
            self.categories,
            known=self._known,
            links_by_time=time is not None and self.link_split is not None,
        )

    def generate(self, folder: Path) -> Graph:
        """Write the graph and, next to its arrays, the ids of its vertices and the names of its classes."""
        return self.write(folder)

    def write(self, folder: Path, notes: Sequence[str] = ()) -> Graph:
        """As `generate`; `notes` of what made the tables come before those of the tables themselves."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=folder.parent) as place,
            engine(Path(place), self.buffer_bytes, os.cpu_count() or 1) as reader,
        ):
            layout = self.layout(reader)
            for nodes in layout.vertices.values():
                if nodes.time is not None:
                    check_days(reader, nodes.table, nodes.time, self._form)
            for edges in layout.edges:
                if edges.time is not None:
                    check_days(reader, edges.table, edges.time.column, self._form)
            if self.link_split is None:
                self._write(reader, layout, Path(place), folder, notes)
            else:
                whole = Path(place) / "whole"
                self._hold_out(layout, self._write(reader, layout, Path(place), whole, notes), whole, folder)
        return open_graph(folder)

    def layout(self, reader: Engine) -> TableLayout:
        """What each column means, found without reading all rows."""
        return find_layout(reader, *self._files(), self._form, self._asked())

    @property
    def _form(self) -> TextForm:
        return TextForm(self.delimiter, self.header, self.encoding, self.nulls, self.decimal, self.path_columns)

    def _hold_out(self, layout: TableLayout, numbered: NumberedTables, whole: Path, folder: Path) -> None:
        """Write the graph in `whole` to `folder` without the held-out links. All edges are in memory."""
        count, graph_of_all = numbered.num_relations, open_graph(whole)
        reverses = NO_REVERSES if not self.symmetrize else count if count > 1 and self._inverse(layout) else SAME_TYPE
        assert self.link_split is not None, "links are held out"
        if self.split == "time":
            times = link_times(graph_of_all, numbered, layout, self._rules(layout))
            graph, begins = hold_out_by_time(
                graph_of_all, self.link_split, times, seed=self.seed, reverses=reverses, names=layout.relations
            )
            graph = self._older(graph, layout, numbered, whole, begins)
        else:
            graph = hold_out(graph_of_all, self.link_split, seed=self.seed, reverses=reverses, names=layout.relations)
        with GraphWriter(folder) as writer:
            for name, values in arrays_of(graph).items():
                writer.put(name, values)
            for path in whole.iterdir():
                if is_of_names(path):
                    shutil.copyfile(path, writer.extra(path.name))
            writer.finish_graph(
                name=graph.name, num_classes=graph.num_classes, notes=graph.notes, num_features=graph.num_features
            )

    @property
    def _counts_all_rows(self) -> bool:
        """Whether weights come from all rows. If links are held out by time, only rows before that time count."""
        return self.link_split is None or self.split != "time"

    def _older(self, graph: Graph, layout: TableLayout, numbered: NumberedTables, whole: Path, begins: Times) -> Graph:
        """The graph with the weights and the parallel edges of rows that are older than held-out links.

        `whole` has the ids of vertices.
        """
        rules = self._rules(layout)
        if not numbered.has_weights and rules.duplicates == "merge":
            return graph  # no edge depends on the number of its rows
        with GraphWriter(whole.with_name("older")) as writer:
            try:
                merged = write_edges(numbered, rules, writer, begins)
            except DifferentWeightsError as error:
                raise error_with_ids(error, numbered, whole) from None
            writer.finish_graph(name=self.name)
        older = open_graph(whole.with_name("older"))
        assert rules.duplicates == "keep" or graph.indices.equal(older.indices), "the same edges are older"
        return replace(
            graph,
            indptr=older.indptr,
            indices=older.indices,
            edge_types=older.edge_types,
            edge_weights=older.edge_weights,
            notes=(*graph.notes, *merged.notes(rules.merge_weights)),
        )

    def _inverse(self, layout: TableLayout) -> bool:
        if self.inverse_relations is not None:
            return self.inverse_relations
        return len(layout.types) > 1 or any(one.relation is not None for one in layout.edges)

    def _rules(self, layout: TableLayout) -> TableRules:
        return TableRules(
            self.symmetrize,
            self._inverse(layout),
            self.self_loops,
            self.duplicates,
            self.merge_weights,
            self.on_unknown == "drop",
            self.buffer_bytes,
        )

    def _write(
        self, reader: Engine, layout: TableLayout, place: Path, folder: Path, first: Sequence[str]
    ) -> NumberedTables:
        file, rules, findings = self.feature_file(), self._rules(layout), Findings()
        graph = number(reader, layout, rules, place, None if file is None else rows_of_file(file))
        findings.attempt(check_inverse_relations, self.inverse_relations, graph.num_relations)
        form = FeatureForm(self.categories, self.empty, self.standardize, self._known, self.new_values)
        matrix = findings.attempt(table_features, reader, layout, graph, form, file, self.sparse)
        labels = findings.attempt(table_labels, reader, layout, graph, self.label_kind, self.no_label)
        if self._known is not None and labels is not None and not labels.present.any():
            labels = None  # a column without any label: they are to be predicted
        split = findings.attempt(self._splits, reader, layout, graph, labels)
        findings.raise_all()
        assert matrix is not None and split is not None
        (features, columns, rounded), (splits, notes) = matrix, split
        notes = [*graph.notes, *rounded, *(() if labels is None else labels.notes), *notes]
        names = GraphNames(list(graph.counts), [] if labels is None else labels.classes, layout.relations, columns)
        with GraphWriter(folder) as writer:
            graph = write_ids(graph, writer)
            reader.close()
            try:
                merged = write_edges(graph, rules if self._counts_all_rows else replace(rules, weighted=False), writer)
            except DifferentWeightsError as error:
                raise error_with_ids(error, graph, writer.extra("")) from None
            width = write_rows(graph, features, labels, writer)
            for name in SPLITS:
                writer.put(name, getattr(splits, name))
            names.write(writer)
            writer.finish_graph(
                name=self.name,
                num_classes=0 if labels is None else len(labels.classes),
                num_features=width,
                notes=[*first, *layout.described(), *notes, *merged.notes(self.merge_weights)],
            )
        return graph

    def feature_file(self) -> Path | None:
        """The file of `dataset.features`, if that is a file and no list of columns."""
        if not isinstance(self.features, str) or self.features == AUTO:
            return None
        path = data_folder(self.path, "tables") / self.features
        require([path], "correct dataset.features: auto, null, [COLUMN, ...], or a file next to the tables")
        return path

    def _splits(
        self, reader: Engine, layout: TableLayout, graph: NumberedTables, labels: Labels | None
    ) -> tuple[Splits, list[str]]:
        """The split of the vertices, and what to note about it."""
        by_file = self.split == "files"
        with_splits = [
            (kind, nodes)
            for kind, nodes in layout.vertices.items()
            if (nodes.split is not None if not by_file else labels is None or nodes.label is not None)
        ]
        if with_splits:
            parts: dict[str, list[np.ndarray]] = {name: [np.empty(0, np.int64)] for name in SPLITS}
            for kind, nodes in with_splits:
                read = splits_of_files(reader, nodes, self._form) if by_file else read_splits(reader, nodes)
                for name, ids in read.items():
                    parts[name].append(ids + graph.starts[kind])
            return given_split(*(np.concatenate(parts[name]) for name in SPLITS)), []
        if labels is None:
            return Splits(*no_splits()), []
        if self.split == "time":
            return self._split_by_time(reader, layout, graph, labels)
        return (
            random_split(graph.num_nodes, self.train, self.val, seed=self.seed, among=labels.present),
            [f"split drawn by gnnexp, seed {self.seed}"],
        )

    def _split_by_time(
        self, reader: Engine, layout: TableLayout, graph: NumberedTables, labels: Labels
    ) -> tuple[Splits, list[str]]:
        [(kind, nodes)] = [(kind, columns) for kind, columns in layout.vertices.items() if columns.time is not None]
        start, stop = graph.starts[kind], graph.starts[kind] + graph.counts[kind]
        assert nodes.time is not None
        times = read_times(reader, nodes.table, moment_of(nodes.table, nodes.time), labels.present[start:stop])
        count = times.values.size
        train, val = round(self.train * count), round(self.val * count)
        by_time = parts_by_time(times, (train, val, count - train - val), "vertices")
        ids = np.flatnonzero(labels.present)
        return given_split(*(ids[by_time.parts == number] for number in range(3))), [by_time.note]
