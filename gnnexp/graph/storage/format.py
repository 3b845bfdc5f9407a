"""A graph on disk: one folder with `meta.json` and one `.npy` per array, opened as memory maps in milliseconds.

Arrays have the names of the fields of `Graph`. Sparse features are `features_indptr`, `features_columns` and
`features_values`. Splits are `train`, `val` and `test`. Pairs of link prediction are `links_<name>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from gnnexp.errors import DataError, Problem
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.sparse import SparseRows
from gnnexp.graph.storage.arrays import META, ArrayFolder, Verify, fix, read_folder
from gnnexp.graph.storage.layout import FIELDS, LINKS, SPARSE, SPLITS, arrays_of, check_layout
from gnnexp.graph.storage.writer import ArrayWriter

KIND, SCHEMA = "graph", 1


class GraphWriter(ArrayWriter):
    """Writes a graph array by array, for generators of graphs that may not fit in memory.

    Inside `with GraphWriter(folder) as writer:`, write `indptr`, `indices` and further arrays with `put`, or fill the
    memory map of zeros that `array` returns. Then call `finish_graph`. Without this call the arrays are removed.
    """

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any] | type | str) -> np.ndarray:
        """A new memory-mapped array of the graph, see `ArrayWriter.array`."""
        assert name in FIELDS, f"{name} is no array of a graph"
        return super().array(name, shape, dtype)

    def finish_graph(
        self, *, name: str, num_classes: int = 0, notes: Sequence[str] = (), num_features: int | None = None
    ) -> None:
        """Write `meta.json`, and move the folder into place; missing splits become empty.

        Args:
            name: name of the dataset.
            num_classes: C, or 0 without labels.
            notes: facts that a user must know about this data.
            num_features: D; needed only with sparse features.
        """
        for split in SPLITS:
            if split not in self.shapes:
                self.put(split, np.empty(0, np.int64))
        shapes = self.shapes
        assert SPARSE[0] not in shapes or num_features is not None, "sparse features need num_features"
        dense = shapes["features"][1] if "features" in shapes else 0
        self.finish(
            {
                "kind": KIND,
                "schema": SCHEMA,
                "name": name,
                "notes": list(notes),
                "num_nodes": shapes["indptr"][0] - 1,
                "num_edges": shapes["indices"][0],
                "num_classes": num_classes,
                "num_features": dense if num_features is None else num_features,
            }
        )


def save_graph(graph: Graph, folder: Path) -> None:
    """Write `graph` to `folder`, atomically; replaces a stored graph.

    Raises:
        DataError: the disk has no room, or `folder` holds something else.
    """
    with GraphWriter(folder) as writer:
        for name, tensor in arrays_of(graph).items():
            writer.put(name, tensor)
        writer.finish_graph(
            name=graph.name, num_classes=graph.num_classes, notes=graph.notes, num_features=graph.num_features
        )


def open_graph(folder: Path, *, mmap: bool = True, verify: Verify = "sizes") -> Graph:
    """The graph stored in `folder`.

    Args:
        folder: folder that `save_graph` or `GraphWriter` wrote.
        mmap: whether to map the arrays, so that only used pages are read; mapped tensors must never be written to.
        verify: `none` trusts the headers of the `.npy` files. `sizes` also compares dtype and shape of every array with
            `meta.json`. `checksums` reads every byte. Graphs that gnnexp prepared have passed `validate_graph`; call it
            for graphs of other origin.

    Raises:
        DataError: arrays are missing, damaged or inconsistent; each problem names the file, its content and the fix.
    """
    stored = read_folder(folder, KIND, SCHEMA)
    DataError.raise_all(_check_meta(stored))
    arrays = stored.tensors(mmap=mmap, verify=verify)
    DataError.raise_all(_check_arrays(stored, arrays))
    return _graph_of(stored.meta, arrays)


def _graph_of(meta: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> Graph:
    features: Tensor | SparseRows | None = arrays.get("features")
    if SPARSE[0] in arrays:
        indptr, columns, values = (arrays[name] for name in SPARSE)
        features = SparseRows(indptr, columns, values, meta["num_features"])
    return Graph(
        indptr=arrays["indptr"],
        indices=arrays["indices"],
        features=features,
        labels=arrays.get("labels"),
        num_classes=meta["num_classes"],
        splits=Splits(*(arrays[split] for split in SPLITS)),
        edge_types=arrays.get("edge_types"),
        node_types=arrays.get("node_types"),
        edge_features=arrays.get("edge_features"),
        edge_weights=arrays.get("edge_weights"),
        links={name: arrays[f"links_{name}"] for name in LINKS if f"links_{name}" in arrays},
        name=meta["name"],
        notes=tuple(meta["notes"]),
    )


def _check_meta(stored: ArrayFolder) -> list[Problem]:
    path, meta, help_ = str(stored.folder / META), stored.meta, fix(stored.folder)
    problems = [
        Problem(f"{path}: {key}", str(meta.get(key))[:80], "must be a count from 0 on", help_)
        for key in ("num_nodes", "num_edges", "num_classes", "num_features")
        if type(meta.get(key)) is not int or not 0 <= meta[key] < 1 << 62
    ]
    if not isinstance(meta.get("name"), str):
        problems.append(Problem(f"{path}: name", str(meta.get("name"))[:80], "must be a text", help_))
    notes = meta.get("notes")
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        problems.append(Problem(f"{path}: notes", str(notes)[:80], "must be a list of texts", help_))
    missing = {"indptr", "indices", *SPLITS} - set(stored.specs)
    return problems + [Problem(f"{path}: {name}", None, "this array is missing", help_) for name in sorted(missing)]


def _check_arrays(stored: ArrayFolder, arrays: Mapping[str, Tensor]) -> list[Problem]:
    """Problems that are visible without reading the arrays: their layout, and both ends of `indptr`."""

    def key(name: str) -> str:
        return str(stored.folder / f"{name}.npy")

    num_nodes, num_edges = stored.meta["num_nodes"], stored.meta["num_edges"]
    problems = check_layout(arrays, num_nodes, num_edges, key, fix(stored.folder))
    if not problems:
        ends = [int(arrays["indptr"][0]), int(arrays["indptr"][-1])]
        if ends != [0, num_edges]:
            problems.append(Problem(key("indptr"), ends, f"must run from 0 to {num_edges}", fix(stored.folder)))
        if "features" in arrays and arrays["features"].shape[1] != stored.meta["num_features"]:
            problems.append(
                Problem(
                    key("features"),
                    list(arrays["features"].shape),
                    f"must have {stored.meta['num_features']} columns",
                    fix(stored.folder),
                )
            )
    return problems
