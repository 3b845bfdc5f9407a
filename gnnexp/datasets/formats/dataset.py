"""A dataset in the format of another library. A subclass reads its files; the options are the same for all formats."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from gnnexp.datasets.base import Dataset
from gnnexp.datasets.formats.foreign import ForeignGraph, ForeignRules, graph_of
from gnnexp.datasets.reading.features import Sparse
from gnnexp.datasets.reading.names import ids_file
from gnnexp.datasets.splits.held_out import LinkSplit, check_link_split
from gnnexp.datasets.splits.split import check_fractions
from gnnexp.graph.graph import Graph
from gnnexp.graph.merging import MergeWeights
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.storage.layout import arrays_of


@dataclass(kw_only=True, eq=False)
class ForeignDataset(Dataset):
    """A graph from files of another library.

    Attributes:
        name: name of the graph.
        path: the file or the folder.
        target: type of the vertices with labels; null = the only one.
        split: `auto` takes the split of the file, or draws one if there is none; `given` takes that of the file;
            `random` draws shares of the labelled vertices.
        train: share of training vertices, if the split is drawn.
        val: share of validation vertices, if the split is drawn; the rest is test.
        seed: seed of the split.
        sparse: features as sparse rows (true), dense (false), or by their size (auto).
        symmetrize: add the reverse of each edge.
        inverse_relations: the reverse of an edge of type r has type R + r; null = if there are several types of
            vertices.
        self_loops: `keep` or `remove`.
        duplicates: `merge` or `keep` parallel edges.
        merge_weights: the weight of merged edges: the `sum`, `mean`, `max` or `min`; `error` refuses different ones.
            Where a format has a rule, this is the default.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
    """

    version: ClassVar[int] = 2  # the first row gave the weight; before: reverses of held-out links stayed in the graph

    name: str
    path: str | None = None
    target: str | None = None
    split: Literal["auto", "given", "random"] = "auto"
    train: float = 0.6
    val: float = 0.2
    seed: int = 0
    sparse: Sparse = "auto"
    symmetrize: bool = True
    inverse_relations: bool | None = None
    self_loops: Literal["keep", "remove"] = "remove"
    duplicates: Literal["merge", "keep"] = "merge"
    merge_weights: MergeWeights = "error"
    link_split: LinkSplit = None

    def __post_init__(self) -> None:
        check_fractions(train=self.train, val=self.val)
        check_link_split(self.link_split)

    @property
    def in_both_directions(self) -> bool:
        """Whether an edge without a direction is read as two: merged with it, `symmetrize` adds no further one."""
        return not self.symmetrize or self.duplicates == "merge"

    @abstractmethod
    def read(self) -> ForeignGraph:
        """What the files hold.

        Raises:
            DataError: a file is missing, damaged or wrong, or the library that reads it is not installed.
        """

    def load(self) -> Graph:
        """The graph in memory."""
        with tempfile.TemporaryDirectory() as folder:
            self.generate(Path(folder) / "graph")
            return open_graph(Path(folder) / "graph", mmap=False)

    def generate(self, folder: Path) -> Graph:
        """Write the graph and, next to its arrays, the ids of its vertices and the names of its classes."""
        foreign = self.read()
        rules = ForeignRules(
            self.symmetrize,
            self.inverse_relations,
            self.self_loops,
            self.duplicates,
            self.split,
            self.train,
            self.val,
            self.seed,
            self.target,
            self.sparse,
            self.link_split,
            self.merge_weights,
        )
        graph, names = graph_of(foreign, rules, self.name)
        with GraphWriter(folder) as writer:
            for name, values in arrays_of(graph).items():
                writer.put(name, values)
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
