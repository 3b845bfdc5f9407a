"""A user's own graph: a list of edges, with optional features, labels and splits.

With `streamed=true` the edges are never all in memory: they are read in chunks, and the graph is written in buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from gnnexp.datasets.base import Dataset, check_memory, checked, data_folder, is_believable, load_written, no_edges
from gnnexp.datasets.reading.edge_files import TEXT, PairType, TextFormat, edge_files_of, note_types, open_edges
from gnnexp.datasets.reading.features import Sparse, as_labels, count_classes, empty_classes, typed_rows
from gnnexp.datasets.reading.npz import open_npy
from gnnexp.datasets.reading.tables import NumberTable
from gnnexp.datasets.splits.held_out import NO_REVERSES, SAME_TYPE, LinkSplit, check_link_split, hold_out
from gnnexp.datasets.splits.split import check_fractions, given_split, random_split
from gnnexp.errors import ConfigError, DataError, Findings, Problem
from gnnexp.files.regular import is_file
from gnnexp.graph.build import CscArrays, build_graph
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.sparse import SparseRows
from gnnexp.graph.storage.arrays import META
from gnnexp.graph.storage.external import EdgeRules, write_csc
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.storage.layout import SPLITS
from gnnexp.graph.stream import EdgeStream, SymmetricStream

_SUFFIXES = (*TEXT, ".npy", ".bin")


@dataclass(kw_only=True, eq=False)
class EdgeList(Dataset):
    """Edges in a text file (`.tsv`, `.csv`, `.txt`, also `.gz`) or `.npy`, with rows `source, destination[, type]`.

    If edges are streamed, they have no types. They may then also be in a `.bin` file (pairs of little-endian integers),
    `[2, E]` in `.npy`, a folder in gnnexp's format, or a raw folder of OGB.

    File names other than `path` are relative to the folder of the edges.

    Attributes:
        name: name of the graph.
        path: the file of the edges, or a folder with one file `edges.*`; null = `$GNNEXP_DATA/edge_list`.
        features: `.npy` or text file `[V, D]`, or null.
        node_types: `.npy` or text file with one type per vertex, from 0 on, or null.
        features_by_type: give the features of each type of vertices their own columns (`features_by_type`).
        sparse: features by type as sparse rows (true), dense (false), or by their size (auto).
        labels: `.npy` or text file with one class per vertex (-1 = none), or `[V, C]` zeros and ones; or null.
        split: `random` shares of the labelled vertices, or ids in `files`.
        train_ids: `.npy` file (ids or `[V]` bool) or text file with one id per line (`split=files`).
        val_ids: as `train_ids`.
        test_ids: as `train_ids`.
        train: share of training vertices (`split=random`).
        val: share of validation vertices (`split=random`); the rest is test.
        seed: seed of the split.
        num_nodes: V, number of vertices; null = the number of rows of features or labels, else the largest id + 1.
        delimiter: separator of columns in text files; null = a comma in `.csv`, else any white space.
        header: whether text files start with a line of names.
        comments: text that starts a comment.
        symmetrize: add the reverse of each edge.
        inverse_relations: the reverse of an edge of type r has type R + r.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
        self_loops: `keep`, `add` or `remove`.
        duplicates: `merge` or `keep` parallel edges of the same type.
        streamed: read the edges in chunks, never all at once.
        pairs: type of the integers in a `.bin` file, `int32` or `int64`.
        buffer_bytes: memory for a bucket of edges, if edges are streamed.
    """

    version: ClassVar[int] = 1  # reverses of held-out links stayed in the graph
    unkeyed: ClassVar[frozenset[str]] = frozenset({"path", "buffer_bytes"})

    name: str = "edge_list"
    path: str | None = None
    features: str | None = None
    node_types: str | None = None
    features_by_type: bool = False
    sparse: Sparse = "auto"
    labels: str | None = None
    split: Literal["random", "files"] = "random"
    train_ids: str | None = None
    val_ids: str | None = None
    test_ids: str | None = None
    train: float = 0.6
    val: float = 0.2
    seed: int = 0
    num_nodes: int | None = None
    delimiter: str | None = None
    header: bool = False
    comments: str = "#"
    symmetrize: bool = True
    inverse_relations: bool = False
    link_split: LinkSplit = None
    self_loops: Literal["keep", "add", "remove"] = "remove"
    duplicates: Literal["merge", "keep"] = "merge"
    streamed: bool = False
    pairs: PairType = "int32"
    buffer_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        check_fractions(train=self.train, val=self.val)
        check_link_split(self.link_split)
        files, streamed = self.split == "files", self.streamed
        whole = self.node_types is None and self.link_split is None and not self.inverse_relations
        rules = (
            (
                "num_nodes",
                self.num_nodes is None or self.num_nodes >= 1,
                "1 or more, or null",
                "set dataset.num_nodes=null",
            ),
            (
                "train_ids",
                files == (self.train_ids is not None),
                f"does not fit dataset.split={self.split}",
                "set dataset.split=files and dataset.train_ids=FILE, or neither",
            ),
            (
                "delimiter",
                _can_separate(self.delimiter, self.comments),
                "one character, no line break and not dataset.comments; or null for any white space",
                "set dataset.delimiter=null",
            ),
            (
                "self_loops",
                not streamed or self.self_loops != "add",
                "must be keep or remove if edges are streamed",
                "set dataset.self_loops=remove; models add their own self term",
            ),
            (
                "self_loops",
                self.link_split is None or self.self_loops != "add",
                "must be keep or remove if links are held out: added self loops would be links",
                "set dataset.self_loops=remove; models add their own self term",
            ),
            (
                "streamed",
                not streamed or whole,
                "cannot be combined with node_types, link_split or inverse_relations",
                "set dataset.streamed=false, or remove these options",
            ),
            (
                "features_by_type",
                not self.features_by_type or self.node_types is not None,
                "needs the types of the vertices",
                "set dataset.node_types=FILE, or dataset.features_by_type=false",
            ),
        )
        ConfigError.raise_all(
            [
                Problem(f"dataset.{name}", getattr(self, name), allowed, fix)
                for name, holds, allowed, fix in rules
                if not holds
            ]
        )

    def sources(self) -> list[Path]:
        """The files of edges first, then the other files that the options name."""
        findings = Findings()
        edges = findings.attempt(self._edges_file)
        names = (self.features, self.node_types, self.labels, self.train_ids, self.val_ids, self.test_ids)
        others = [self._folder(edges) / name for name in names if name is not None]
        if edges is not None or self.path is not None:
            findings.problems += [
                Problem(str(path), "missing", "dataset names this file", "correct the name, relative to the edges")
                for path in others
                if not is_file(path)
            ]
        findings.raise_all()
        assert edges is not None
        return [*edge_files_of(edges), *others]

    @property
    def at_hand(self) -> bool:
        """False for streamed edges: they are probably many, so the configuration is checked first."""
        return not self.streamed

    def _folder(self, edges: Path | None) -> Path:
        """The folder of the other files, also if the edges are missing."""
        if edges is not None:
            return edges if edges.is_dir() else edges.parent
        place = Path(self.path or ".").expanduser()
        return place if place.is_dir() else place.parent

    def _edges_file(self) -> Path:
        place = data_folder(self.path, "edge_list")
        if place.is_file():
            return place
        if self.streamed and ((place / META).is_file() or (place / "raw").is_dir()):
            return place
        files = [path for path in sorted(place.glob("edges.*")) if is_file(path)]
        edge_files = [path for path in files if path.name.removesuffix(".gz").endswith(_SUFFIXES)]
        if len(edge_files) != 1:
            names = [path.name for path in edge_files]
            allowed = f"one file edges.* ({', '.join(_SUFFIXES)}, text also .gz)"
            raise DataError(Problem(str(place), names, allowed, "set dataset.path to the file of the edges"))
        return edge_files[0]

    def stream(self) -> EdgeStream | None:
        """The edges in the order of the file; with `symmetrize`, both directions of each edge."""
        if not self.streamed:
            return None
        edges = self._open()
        return SymmetricStream(edges) if self.symmetrize else edges

    def _open(self) -> EdgeStream:
        text = TextFormat(self.delimiter, self.header, self.comments)
        return open_edges(self._edges_file(), self.num_nodes, self.pairs, text)

    def generate(self, folder: Path) -> Graph | None:
        """Write the graph piece by piece if edges are streamed, and open it."""
        if not self.streamed:
            return None
        self.sources()
        path, edges = self._edges_file(), self._open()
        features = None if self.features is None else self._rows(self._folder(path) / self.features, "float32")
        labels = self._read_labels(self._folder(path))
        num_nodes = self._count_nodes((edges.num_nodes - 1, edges.num_edges), path, features=features, labels=labels)
        assert num_nodes is not None
        if edges.num_nodes > num_nodes:
            raise DataError(
                Problem(
                    str(path),
                    f"largest id {edges.num_nodes - 1}",
                    f"must be below {num_nodes}, the number of vertices",
                    "give features and labels of all vertices",
                )
            )
        splits = self._splits(self._folder(path), num_nodes, labels)
        rules = EdgeRules(self.symmetrize, self.self_loops == "remove", self.duplicates == "merge")

        def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            return ((chunk.sources, chunk.destinations) for chunk in edges.chunks())

        with GraphWriter(folder) as writer:
            write_csc(chunks, num_nodes, rules, self.buffer_bytes, writer)
            for name, rows in (("features", features), ("labels", labels)):
                if rows is not None:
                    writer.put(name, rows if name == "labels" else rows.astype(np.float32, copy=False))
            for name in SPLITS:
                writer.put(name, getattr(splits, name))
            writer.finish_graph(name=self.name, num_classes=count_classes(labels), notes=self._notes(labels))
        return open_graph(folder)

    def load(self) -> Graph:
        """The graph in memory."""
        if self.streamed:
            return load_written(self.generate)
        path = self.sources()[0]
        findings = Findings()
        edges = findings.attempt(self._read_edges, path)
        features = findings.attempt(self._optional, path.parent, self.features)
        labels = findings.attempt(self._read_labels, path.parent)
        types = findings.attempt(self._read_types, path)
        # V follows from the edges only if no file could not be read: that file might decide it.
        deciding = None if findings.problems and self.num_nodes is None else edges
        size = None if deciding is None else (int(deciding[:, :2].max()), deciding.shape[0])
        rows = {"features": features, "labels": labels, "node_types": types}
        num_nodes = findings.attempt(self._count_nodes, size, path, **rows)
        if num_nodes is None:
            findings.raise_all()
        assert num_nodes is not None
        arrays = None if edges is None else findings.attempt(self._build, edges, num_nodes, path)
        arrays = arrays or no_edges(num_nodes)
        splits = findings.attempt(self._splits, path.parent, num_nodes, labels)
        graph = Graph(
            arrays.indptr,
            arrays.indices,
            features=findings.attempt(self._as_features, features, types),
            labels=None if labels is None else torch.from_numpy(labels),
            num_classes=count_classes(labels),
            splits=splits or given_split(*(np.empty(0, np.int64),) * 3),
            edge_types=arrays.types,
            node_types=None if types is None else torch.from_numpy(types),
            name=self.name,
            notes=(*self._notes(labels), *note_types(edges)),
        )
        graph = checked(graph, trainable=labels is not None, findings=findings)
        assert edges is not None
        return self._hold_out(graph, edges)

    def _notes(self, labels: np.ndarray | None) -> tuple[str, ...]:
        drawn = self.split == "random" and labels is not None
        empty = empty_classes(labels)
        return (
            *((f"split drawn by gnnexp, seed {self.seed}",) if drawn else ()),
            *((f"no vertex has the classes {empty}",) if empty else ()),
        )

    def _read_edges(self, path: Path) -> np.ndarray:
        edges = self._rows(path, "int64", low=0, high=self.num_nodes)
        _check_edges(edges, path)
        if self.inverse_relations and edges.shape[1] == 2:
            raise DataError(
                Problem(
                    "dataset.inverse_relations",
                    True,
                    f"the edges of {path} have no types",
                    "set dataset.inverse_relations=false, or give types in a third column",
                )
            )
        return edges

    def _optional(self, folder: Path, name: str | None) -> np.ndarray | None:
        return None if name is None else self._rows(folder / name, "float32")

    def _read_labels(self, folder: Path) -> np.ndarray | None:
        path = folder / (self.labels or "")
        return as_labels(None if self.labels is None else self._rows(path, "float64"), path)

    def _read_types(self, path: Path) -> np.ndarray | None:
        """`[V]` int32 types of the vertices, or None."""
        if self.node_types is None:
            return None
        rows = self._rows(path.parent / self.node_types, "int64", low=0, high=1 << 31)
        if rows.shape[1] != 1:
            raise DataError(
                Problem(
                    str(path.parent / self.node_types), rows.shape, "must have one column", "give one type per vertex"
                )
            )
        return rows[:, 0].astype(np.int32)

    def _as_features(self, features: np.ndarray | None, types: np.ndarray | None) -> torch.Tensor | SparseRows | None:
        if self.features_by_type:
            return typed_rows(features, types, self.sparse)
        return None if features is None else torch.from_numpy(np.array(features, np.float32))

    def _num_relations(self, edges: np.ndarray) -> int | None:
        """R, the number of relations, if reverses have their own types; else None."""
        return int(edges[:, 2].max()) + 1 if self.inverse_relations and self.symmetrize else None

    def _hold_out(self, graph: Graph, edges: np.ndarray) -> Graph:
        reverses = self._num_relations(edges) or (SAME_TYPE if self.symmetrize else NO_REVERSES)
        return hold_out(graph, self.link_split, seed=self.seed, reverses=reverses)

    def _build(self, edges: np.ndarray, num_nodes: int, path: Path) -> CscArrays:
        return build_graph(
            edges[:, 0],
            edges[:, 1],
            num_nodes,
            types=edges[:, 2] if edges.shape[1] == 3 else None,
            symmetrize=self.symmetrize,
            num_relations=self._num_relations(edges),
            self_loops=self.self_loops,
            duplicates=self.duplicates,
            key=str(path),
        )

    def _rows(
        self,
        path: Path,
        dtype: Literal["int64", "float32", "float64"],
        *,
        low: int | None = None,
        high: int | None = None,
    ) -> np.ndarray:
        """`[n, k]` numbers of a `.npy` or text file, which must be from `low` to below `high`."""
        if path.suffix == ".npy":
            array = open_npy(path)
            check_memory(array.nbytes, str(path))
            array = array[:, None] if array.ndim == 1 else array
            if array.ndim != 2 or array.dtype.kind not in ("iub" if dtype == "int64" else "iubf"):
                kind = "whole numbers" if dtype == "int64" else "numbers"
                shown = f"{array.dtype} {array.shape}"
                raise DataError(Problem(str(path), shown, f"must be {kind} [n] or [n, k]", "save it again"))
            if array.size and ((low is not None and array.min() < low) or (high is not None and array.max() >= high)):
                shown = f"{array.min()}..{array.max()}"
                allowed = f"must be from {low} on" + ("" if high is None else f" and below {high}")
                raise DataError(Problem(str(path), shown, allowed, "renumber the ids, or set dataset.num_nodes"))
            return array
        comma = path.name.removesuffix(".gz").endswith(".csv")
        delimiter = self.delimiter if self.delimiter is not None else "," if comma else None
        return NumberTable(path, dtype, delimiter, self.header, self.comments, low, high, settable=True).read()

    def _count_nodes(self, edges: tuple[int, int] | None, path: Path, **rows: np.ndarray | None) -> int | None:
        """V from `num_nodes`, `rows`, or `(largest id, number)` of edges. None if it depends on unread edges."""
        known = {} if self.num_nodes is None else {"dataset.num_nodes": self.num_nodes}
        known |= {f"dataset.{name}": array.shape[0] for name, array in rows.items() if array is not None}
        if len(set(known.values())) > 1:
            fix = (
                "give one row of features, one label and one type per vertex; empty lines do not "
                "count (a vertex without label: nan)"
            )
            raise DataError(Problem(", ".join(known), [*known.values()], "must all be the number of vertices", fix))
        if known:
            num_nodes = next(iter(known.values()))
        elif edges is None:
            return None
        else:
            num_nodes = edges[0] + 1
            if not is_believable(num_nodes, edges[1]):
                fix = "renumber the ids from 0 on without gaps, or set dataset.num_nodes if they are right"
                shown = f"largest id {num_nodes - 1} with {edges[1]} edges"
                raise DataError(Problem(str(path), shown, "ids must be numbered from 0 on", fix))
        check_memory(24 * num_nodes, f"{num_nodes} vertices")
        return num_nodes

    def _splits(self, folder: Path, num_nodes: int, labels: np.ndarray | None) -> Splits:
        if self.split == "random":
            if labels is None:
                return given_split(*(np.empty(0, np.int64),) * 3)
            among = labels >= 0 if labels.ndim == 1 else ~np.isnan(labels).any(axis=1)
            return random_split(num_nodes, self.train, self.val, seed=self.seed, among=among)
        files = (self.train_ids, self.val_ids, self.test_ids)
        return given_split(*(self._ids(folder, name, num_nodes) for name in files))

    def _ids(self, folder: Path, name: str | None, num_nodes: int) -> np.ndarray:
        if name is None:
            return np.empty(0, np.int64)
        rows = self._rows(folder / name, "int64", low=0, high=num_nodes)
        if rows.size and rows.shape[1] != 1:
            fix = "give one vertex id per line, or a [V] mask"
            raise DataError(Problem(str(folder / name), rows.shape, "must have one column", fix))
        ids = np.array(rows).reshape(-1)
        if ids.dtype == bool and ids.size != num_nodes:
            fix = "give a mask with one entry per vertex"
            raise DataError(Problem(str(folder / name), ids.size, f"a mask must have {num_nodes} entries", fix))
        return ids


def _check_edges(edges: np.ndarray, path: Path) -> None:
    if edges.shape[0] == 0 or edges.shape[1] not in (2, 3):
        fix = "give rows of source and destination, or source, destination and type"
        raise DataError(Problem(str(path), f"shape {edges.shape}", "two or three columns, one row or more", fix))


def _can_separate(delimiter: str | None, comments: str) -> bool:
    """Whether `delimiter` and `comments` can separate text into columns and comments."""
    breaks = ("\r", "\n")
    fits = delimiter is None or (len(delimiter) == 1 and delimiter not in (*breaks, comments))
    return fits and not any(one in comments for one in breaks)
