"""A graph on disk: one folder with `meta.json` and one `.npy` per array, opened as memory maps in milliseconds.

Arrays are named as the fields of `Graph`; sparse features are `features_indptr`, `features_columns` and
`features_values`, splits are `train`, `val` and `test`, pairs of link prediction are `links_<name>`.
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
    """Writes a graph array by array, for generators whose graph need not fit in memory.

    `with GraphWriter(folder) as writer:` make `indptr`, `indices` and what else there is with `array` (a zeroed memory
    map to fill) or `put`, then call `finish_graph`. Leaving the `with` without it removes everything.
    """

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any] | type | str) -> np.ndarray:
        """A new memory-mapped array of the graph, see `ArrayWriter.array`."""
        assert name in FIELDS, f"{name} is no array of a graph"
        return super().array(name, shape, dtype)

    def finish_graph(
        self, *, name: str, num_classes: int = 0, notes: Sequence[str] = (), num_features: int | None = None
    ) -> None:
        """Write `meta.json` and move the folder into place; missing splits are empty.

        Args:
            name: what the dataset is called.
            num_classes: C, 0 without labels.
            notes: what a user must know about this data.
            num_features: D; needed with sparse features only.
        """
        for split in SPLITS:
            if split not in self.shapes:
                self.put(split, np.empty(0, np.int64))
        shapes = self.shapes
        assert SPARSE[0] not in shapes or num_features is not None, "sparse features need num_features"
        dense = shapes["features"][1] if "features" in shapes else 0
        self.finish({
            "kind": KIND, "schema": SCHEMA, "name": name, "notes": list(notes),
            "num_nodes": shapes["indptr"][0] - 1, "num_edges": shapes["indices"][0], "num_classes": num_classes,
            "num_features": dense if num_features is None else num_features,
        })


def save_graph(graph: Graph, folder: Path) -> None:
    """Write `graph` to `folder`, atomically; a stored graph that is there already is replaced.

    Raises:
        DataError: if the disk has no room, or `folder` holds something else.
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
        folder: as written by `save_graph` or `GraphWriter`.
        mmap: map the arrays, so that only what is touched is read; mapped tensors must never be written to.
        verify: `none` trusts the headers of the `.npy` files, `sizes` compares dtype and shape of every array with
            `meta.json` too, `checksums` reads every byte. What gnnexp prepared has been through `validate_graph`;
            call that on a graph from elsewhere.

    Raises:
        DataError: all that is missing, damaged or inconsistent, each with the file, what was found, and the fix.
    """
    stored = read_folder(folder, KIND, SCHEMA)
    problems = _check_meta(stored)
    if problems:
        raise DataError(problems)
    arrays = stored.tensors(mmap=mmap, verify=verify)
    problems = _check_arrays(stored, arrays)
    if problems:
        raise DataError(problems)
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
    """What can be told without reading the arrays: their layout, and both ends of `indptr`."""
    def key(name: str) -> str:
        return str(stored.folder / f"{name}.npy")

    num_nodes, num_edges = stored.meta["num_nodes"], stored.meta["num_edges"]
    problems = check_layout(arrays, num_nodes, num_edges, key, fix(stored.folder))
    if not problems:
        ends = [int(arrays["indptr"][0]), int(arrays["indptr"][-1])]
        if ends != [0, num_edges]:
            problems.append(Problem(key("indptr"), ends, f"must run from 0 to {num_edges}", fix(stored.folder)))
        if "features" in arrays and arrays["features"].shape[1] != stored.meta["num_features"]:
            problems.append(Problem(key("features"), list(arrays["features"].shape),
                                    f"must have {stored.meta['num_features']} columns", fix(stored.folder)))
    return problems
