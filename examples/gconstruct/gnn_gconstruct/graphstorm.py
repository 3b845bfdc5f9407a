"""Tables that a JSON file of GraphStorm's gconstruct describes, read as `dataset=tables`.

Its tables are written again with the columns that `Tables` expects. The folders that GraphStorm makes of them are those
of DistDGL: `dataset=dgl_partitions` reads them.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import quote

from gnn_gconstruct.columns import Columns, edge_columns, rewritten, vertex_columns
from gnn_gconstruct.description import Description, Entry, Label, read_description
from gnnexp.datasets.base import WrittenDataset, data_folder
from gnnexp.datasets.reading.features import Sparse
from gnnexp.datasets.splits.held_out import LinkSplit, check_link_split
from gnnexp.datasets.tables.dataset import Tables
from gnnexp.datasets.tables.engine import Engine, engine
from gnnexp.datasets.tables.scaling import Empty
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.merging import MergeWeights

# Options that `Tables` has under the same names.
_OF_TABLES = (
    *("name", "seed", "empty", "on_unknown", "sparse", "symmetrize", "inverse_relations", "self_loops", "duplicates"),
    *("merge_weights", "link_split", "buffer_bytes"),
)


@dataclass(kw_only=True, eq=False)
class GraphStorm(WrittenDataset):
    """The graph of a JSON file of GraphStorm.

    Attributes:
        name: name of the graph.
        path: the JSON file, or its folder; null = `$GNNEXP_DATA/graphstorm`.
        label: column of the labels, if several tasks are defined on vertices; null = the only one.
        target: type of the vertices with labels; null = the only one.
        weight: column of weights among the features of edges; `auto` finds it (`weight`, …); null = none.
        transforms: features with a transform that gnnexp does not have: `error`, or `skip` leaves them out.
        split: `auto` takes the files of the JSON file, or its shares; `random` draws the shares.
        train: share of training vertices; null = that of the JSON file.
        val: share of validation vertices; null = that of the JSON file.
        seed: seed of the split.
        empty, on_unknown, sparse, symmetrize, inverse_relations, self_loops, duplicates, merge_weights,
            link_split, buffer_bytes: as in `Tables`.
    """

    version: ClassVar[int] = 2  # the first row gave the weight; before: ids were numbers, and reverses stayed
    unkeyed: ClassVar[frozenset[str]] = frozenset({"path", "buffer_bytes"})

    name: str = "graphstorm"
    path: str | None = None
    label: str | None = None
    target: str | None = None
    weight: str | None = "auto"
    transforms: Literal["error", "skip"] = "error"
    split: Literal["auto", "random"] = "auto"
    train: float | None = None
    val: float | None = None
    seed: int = 0
    empty: Empty = "error"
    on_unknown: Literal["error", "drop"] = "error"
    sparse: Sparse = "auto"
    symmetrize: bool = True
    inverse_relations: bool | None = None
    self_loops: Literal["keep", "remove"] = "remove"
    duplicates: Literal["merge", "keep"] = "merge"
    merge_weights: MergeWeights = "error"
    link_split: LinkSplit = None
    buffer_bytes: int = 1 << 29

    def __post_init__(self) -> None:
        check_link_split(self.link_split)

    @property
    def at_hand(self) -> bool:
        """False: tables may be large, so the configuration is checked first."""
        return False

    def sources(self) -> list[Path]:
        """The JSON file, and all tables that it names."""
        description = self._description()
        return [description.path, *description.files()]

    def generate(self, folder: Path) -> Graph:
        """Write the graph and, next to its arrays, the ids of its vertices and the names of its classes."""
        description = self._description()
        kind, label = self._label(description)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            translation = _Translation(Path(place), description)
            with engine(Path(place), self.buffer_bytes, os.cpu_count() or 1) as reader:
                self._translate(reader, translation, kind, label)
            try:
                return self._tables(translation, kind, label).write(folder, translation.notes)
            except DataError as error:
                raise DataError([translation.named(problem) for problem in error.problems]) from None

    def _description(self) -> Description:
        return read_description(data_folder(self.path, "graphstorm"))

    def _label(self, description: Description) -> tuple[str | None, Label | None]:
        """The type and the labels to predict.

        Raises:
            DataError: there are several, or not those that are asked for.
        """
        known = [(entry.kind[0], label) for entry in description.nodes for label in entry.labels]
        labels = [
            (kind, label) for kind, label in known if self.label in (None, label.column) and self.target in (None, kind)
        ]
        if len(labels) > 1 or (not labels and (self.label or self.target)):
            names = ", ".join(f"{label.column} of {kind}" for kind, label in known) or "none"
            said = f"labels of {description.path} are {names}"
            fix = "set dataset.label=COLUMN and dataset.target=TYPE"
            raise DataError(Problem("dataset.label", self.label, said, fix))
        return labels[0] if labels else (None, None)

    def _translate(self, reader: Engine, translation: _Translation, labelled: str | None, label: Label | None) -> None:
        """Write all tables again, with the columns that `Tables` expects.

        Raises:
            DataError: columns or files are missing or damaged. Names all problems.
        """
        findings, place, skip = Findings(), translation.place, self.transforms == "skip"
        for entry in translation.description.nodes:
            of_type = label if entry.kind[0] == labelled else None
            files = {} if of_type is None or self.split == "random" else of_type.files
            columns = findings.attempt(vertex_columns, reader, entry, of_type, files, place, skip=skip)
            if columns is not None:
                translation.add_vertices(reader, entry, columns)
        for entry in translation.description.edges:
            columns = findings.attempt(edge_columns, reader, entry, place, self.weight)
            if columns is not None:
                translation.add_edges(reader, entry, columns)
        findings.raise_all()

    def _tables(self, translation: _Translation, labelled: str | None, label: Label | None) -> Tables:
        """The tables as `Tables` reads them."""
        train, val, _ = (0.6, 0.2, 0.2) if label is None else label.shares
        return Tables(
            **{name: getattr(self, name) for name in _OF_TABLES},
            path=str(translation.place),
            nodes=translation.nodes or None,
            edges=translation.edges,
            id="id",
            source="source",
            destination="destination",
            label=None if label is None else "label",
            no_label=None,
            target=labelled,
            categories=translation.categories,
            split="column" if translation.has_split else "random",
            split_column="split" if translation.has_split else "auto",
            train=train if self.train is None else self.train,
            val=val if self.val is None else self.val,
        )


@dataclass
class _Translation:
    """The tables of a description, written again.

    Attributes:
        place: folder of the new tables.
        description: the tables that GraphStorm would read.
        nodes: new table of each type of vertices.
        edges: entries of `dataset.edges`.
        categories: columns of which each value becomes a feature.
        notes: what is left out.
        owners: the user's table, by the new one.
        has_split: whether a table has a column `split`.
    """

    place: Path
    description: Description
    nodes: dict[str, str] = field(default_factory=dict)
    edges: dict[str, Mapping[str, str | None]] = field(default_factory=dict)
    categories: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    has_split: bool = False

    def __post_init__(self) -> None:
        entries = (*self.description.nodes, *self.description.edges)
        self.notes += [note for entry in entries for note in entry.notes]
        self._relations = Counter(entry.kind[1] for entry in self.description.edges)

    def add_vertices(self, reader: Engine, entry: Entry, columns: Columns) -> None:
        """Write the table of a type of vertices."""
        [kind] = entry.kind
        self.nodes[kind] = self._written(reader, entry, columns, f"vertices_{quote(kind, safe='')}")
        self.categories += columns.categories
        self.has_split = self.has_split or columns.has_split

    def add_edges(self, reader: Engine, entry: Entry, columns: Columns) -> None:
        """Write the table of a type of edges, which has the relation's name if no other type has it."""
        source, relation, destination = entry.kind
        name = relation if self._relations[relation] == 1 else ":".join(entry.kind)
        table = self._written(reader, entry, columns, f"edges_{quote(name, safe='')}")
        self.edges[name] = {"table": table, "from": source, "to": destination}

    def _written(self, reader: Engine, entry: Entry, columns: Columns, name: str) -> str:
        table = rewritten(reader, columns, self.place / f"{name}.parquet")
        self.owners[table] = entry.files.shown
        self.notes += columns.notes
        return table

    def named(self, problem: Problem) -> Problem:
        """A problem of a new table, with the name of the user's table."""

        def with_owners(text: str) -> str:
            for table, owner in self.owners.items():
                text = text.replace(table, owner)
            return text

        texts = {name: with_owners(getattr(problem, name)) for name in ("key", "allowed", "fix")}
        return replace(problem, **texts)
