"""Tables that a JSON file of GraphStorm's gconstruct describes, read as `dataset=tables`.

Its tables are written again with the columns that `Tables` expects. The folders that GraphStorm makes of them are those
of DistDGL: `dataset=dgl_partitions` reads them.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import quote

from gnnexp.datasets.base import Dataset, data_folder
from gnnexp.datasets.formats.dgl import partition_files
from gnnexp.datasets.formats.dgl.arrays import AUTO, USUAL
from gnnexp.datasets.formats.dgl.gconstruct import Entry, Gconstruct, Label, gconstruct_in, read_gconstruct
from gnnexp.datasets.formats.dgl.gconstruct_tables import Columns, opened, rewritten, vertex_columns
from gnnexp.datasets.reading.features import Sparse
from gnnexp.datasets.splits.held_out import LinkSplit, check_link_split
from gnnexp.datasets.tables.dataset import Tables
from gnnexp.datasets.tables.engine import Engine, engine
from gnnexp.datasets.tables.scaling import Empty
from gnnexp.datasets.tables.scan import quoted
from gnnexp.datasets.tables.written import integer_or_text
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.merging import MergeWeights
from gnnexp.graph.storage.format import open_graph


@dataclass(kw_only=True, eq=False)
class GraphStorm(Dataset):
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
    weight: str | None = AUTO
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

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A JSON file of gconstruct, or a folder with one that has no partition of it."""
        made = partition_files.partition_config_in(place) if place.is_dir() else None
        return None if made is not None or gconstruct_in(place) is None else []

    @property
    def at_hand(self) -> bool:
        """False: tables may be large, so the configuration is checked first."""
        return False

    def sources(self) -> list[Path]:
        """The JSON file, and all tables that it names."""
        config = self._config()
        return [config.path, *config.files()]

    def _config(self) -> Gconstruct:
        return read_gconstruct(data_folder(self.path, "graphstorm"))

    def load(self) -> Graph:
        """The graph in memory."""
        with tempfile.TemporaryDirectory() as folder:
            self.generate(Path(folder) / "graph")
            return open_graph(Path(folder) / "graph", mmap=False)

    def generate(self, folder: Path) -> Graph:
        """Write the graph and, next to its arrays, the ids of its vertices and the names of its classes."""
        config = self._config()
        chosen = self._label(config)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            tables, shown = self._tables(config, chosen, Path(place))
            try:
                return tables.generate(folder)
            except DataError as error:
                raise DataError([_of_own_files(problem, shown) for problem in error.problems]) from None

    def _label(self, config: Gconstruct) -> tuple[str, Label] | None:
        """The type and the labels to predict.

        Raises:
            DataError: there are several, or not those that are asked for.
        """
        known = [(entry.kind[0], label) for entry in config.nodes for label in entry.labels]
        labels = [
            (kind, label) for kind, label in known if self.label in (None, label.column) and self.target in (None, kind)
        ]
        if len(labels) > 1 or (not labels and (self.label or self.target)):
            names = ", ".join(f"{label.column} of {kind}" for kind, label in known) or "none"
            raise DataError(
                Problem(
                    "dataset.label",
                    self.label,
                    f"labels of {config.path} are {names}",
                    "set dataset.label=COLUMN and dataset.target=TYPE",
                )
            )
        return labels[0] if labels else None

    def _tables(
        self, config: Gconstruct, chosen: tuple[str, Label] | None, place: Path
    ) -> tuple[Tables, dict[str, str]]:
        """The tables with the columns that `Tables` expects, in the folder `place`; and whose tables they are."""
        findings, notes, shown = (
            Findings(),
            [note for entry in (*config.nodes, *config.edges) for note in entry.notes],
            {},
        )
        nodes: dict[str, str] = {}
        categories: list[str] = []
        by_files = False
        edges: dict[str, Mapping[str, str | None]] = {}
        relations = Counter(entry.kind[1] for entry in config.edges)
        with engine(place, self.buffer_bytes, os.cpu_count() or 1) as reader:
            for entry in config.nodes:
                [kind] = entry.kind
                label = chosen[1] if chosen is not None and chosen[0] == kind else None
                files = {} if label is None or self.split == "random" else label.files
                columns = findings.attempt(
                    vertex_columns, reader, entry, label, files, place, skip=self.transforms == "skip"
                )
                if columns is not None:
                    nodes[kind] = rewritten(reader, columns, place / f"vertices_{quote(kind, safe='')}.parquet")
                    shown[nodes[kind]] = entry.files.shown
                    categories += columns.categories
                    notes += columns.notes
                    by_files = by_files or columns.has_split
            for entry in config.edges:
                name = entry.kind[1] if relations[entry.kind[1]] == 1 else ":".join(entry.kind)
                columns = findings.attempt(_edge_columns, reader, entry, place, self.weight)
                if columns is not None:
                    file = rewritten(reader, columns, place / f"edges_{quote(name, safe='')}.parquet")
                    edges[name] = {"table": file, "from": entry.kind[0], "to": entry.kind[2]}
                    shown[file] = entry.files.shown
                    notes += columns.notes
            findings.raise_all()
        train, val = self._shares(chosen)
        tables = _Translated(
            no_label=None,
            name=self.name,
            path=str(place),
            nodes=nodes or None,
            edges=edges,
            id="id",
            source="source",
            destination="destination",
            label="label" if chosen is not None else None,
            target=None if chosen is None else chosen[0],
            categories=categories,
            empty=self.empty,
            split="column" if by_files else "random",
            split_column="split" if by_files else "auto",
            train=train,
            val=val,
            seed=self.seed,
            on_unknown=self.on_unknown,
            sparse=self.sparse,
            symmetrize=self.symmetrize,
            inverse_relations=self.inverse_relations,
            self_loops=self.self_loops,
            duplicates=self.duplicates,
            merge_weights=self.merge_weights,
            link_split=self.link_split,
            buffer_bytes=self.buffer_bytes,
        )
        tables.said = notes
        return tables, shown

    def _shares(self, chosen: tuple[str, Label] | None) -> tuple[float, float]:
        given = chosen[1].shares if chosen is not None else (0.6, 0.2)
        return (given[0] if self.train is None else self.train, given[1] if self.val is None else self.val)


class _Translated(Tables):
    """Tables with notes on what the JSON file has and gnnexp does not use."""

    said: Sequence[str] = ()

    def first_notes(self) -> Sequence[str]:
        """Notes of the translation."""
        return self.said


def _edge_columns(reader: Engine, entry: Entry, place: Path, asked_weight: str | None) -> Columns:
    table = opened(reader, entry, place)
    names = [feature.column for feature in entry.features]
    weights = [name for name in names if name in (USUAL["weight"] if asked_weight == AUTO else (asked_weight,))]
    weight = weights[0] if len(weights) == 1 else None
    asked = [(str(column), end) for column, end in zip(entry.columns, ("source", "destination"), strict=True)]
    asked += [(weight, "weight")] if weight else []
    missing = [name for name, _ in asked if name not in table.types]
    DataError.raise_all(
        [
            Problem(
                f"{entry.files.key}: {name}",
                "missing",
                f"columns of {entry.files.shown} are {', '.join(table.types)}",
                "correct the JSON file",
            )
            for name in missing
        ]
    )
    left = [name for name in names if name != weight]
    notes = [f"features of the edges {':'.join(entry.kind)} that are not used: {', '.join(left)}"] if left else []
    values = [
        f"{quoted(name) if role == 'weight' else integer_or_text(reader, table, name, points=False)} AS {role}"
        for name, role in asked
    ]
    return Columns(table, values, [], notes, has_split=False)


def _of_own_files(problem: Problem, shown: Mapping[str, str]) -> Problem:
    """A problem of a rewritten table, with the name of the user's table."""

    def named(text: str) -> str:
        for file, own in shown.items():
            text = text.replace(file, own)
        return text

    return replace(problem, key=named(problem.key), allowed=named(problem.allowed), fix=named(problem.fix))
