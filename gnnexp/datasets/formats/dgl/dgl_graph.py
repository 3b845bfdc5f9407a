"""Graphs that DGL saved with `dgl.save_graphs` (`graph.bin`), and DGL graphs in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnexp.datasets.base import WrittenDataset, data_folder
from gnnexp.datasets.formats.dataset import ForeignOptions, write_foreign
from gnnexp.datasets.formats.dgl.arrays import (
    AUTO,
    USUAL,
    DataNames,
    DglArrays,
    arrays_of_graph,
    check_masks,
    foreign_of_arrays,
)
from gnnexp.datasets.formats.dgl.partition_files import partition_config_in
from gnnexp.datasets.formats.dgl.reader import is_graph_file, read_graph
from gnnexp.datasets.formats.foreign import ForeignGraph
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file, why_unreadable
from gnnexp.graph.graph import Graph

if TYPE_CHECKING:
    import dgl


def foreign_of_dgl(
    graph: dgl.DGLGraph,
    *,
    label: str = "label",
    features: str = "feat",
    weight: str | None = None,
    masks: Mapping[str, str] | None = None,
    mask: int = 0,
) -> ForeignGraph:
    """The graph of a DGLGraph, with one or several types of vertices and edges.

    Args:
        graph: the graph, in any memory.
        label: name of the labels among the data of vertices. Without `label`, another usual name is taken.
        features: name of the features. Without `feat`, another usual name is taken.
        weight: name of the weights among the data of edges; None: no weights.
        masks: names of the masks `train`, `val` and `test`; None: those with usual names.
        mask: which column of masks with several columns is the split.

    Raises:
        DataError: data are missing, ambiguous, or have a wrong shape.
    """
    names = DataNames(
        label=AUTO if label == USUAL["label"][0] else label,
        features=AUTO if features == USUAL["features"][0] else features,
        weight=weight,
        masks=masks,
        mask=mask,
    )
    return foreign_of_arrays(arrays_of_graph(graph), names, "the graph")


@dataclass(kw_only=True, eq=False)
class DglGraph(ForeignOptions, DataNames, WrittenDataset):
    """A file that `dgl.save_graphs` wrote; DGL reads it.

    Attributes:
        name: name of the graph.
        path: the file, or a folder with one such file; null = `$GNNEXP_DATA/dgl_graph`.
        graph: number of the graph in the file, from 0 on.
    """

    name: str = "dgl_graph"
    path: str | None = None
    graph: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_masks(self.masks)

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A file that begins as DGL's, or a folder with one of them that is no folder of partitions."""
        if place.is_dir() and partition_config_in(place) is not None:
            return None
        return [] if len(_files(place)) == 1 else None

    def sources(self) -> list[Path]:
        """The file."""
        place = data_folder(self.path, "dgl_graph")
        files = _files(place)
        if not files and not place.is_dir():
            raise DataError(
                Problem(
                    str(place),
                    str(why_unreadable(place) or "begins with other bytes"),
                    "must be a file of dgl.save_graphs",
                    "correct dataset.path",
                )
            )
        if len(files) != 1:
            names = ", ".join(file.name for file in files) or "none"
            raise DataError(
                Problem(
                    str(place),
                    f"files of dgl.save_graphs: {names}",
                    "there must be one",
                    "set dataset.path to the file",
                )
            )
        return files

    def generate(self, folder: Path) -> Graph:
        """See `WrittenDataset.generate`."""
        return write_foreign(self.read(), self, self.name, folder)

    def read(self) -> ForeignGraph:
        """The graph that DGL reads, in a process of its own."""
        [path] = self.sources()
        arrays, graphs = read_graph(path, self.graph)
        notes = []
        if arrays.extra:
            arrays, note = _with_labels_of_file(arrays, self.label if graphs == 1 else None)
            notes.append(note)
        if graphs is not None and graphs > 1:
            notes.append(f"graph {self.graph} of {graphs} in the file")
        foreign = foreign_of_arrays(arrays, self, str(path))
        return replace(foreign, notes=[*foreign.notes, *notes])


def _files(place: Path) -> list[Path]:
    candidates = sorted(one for one in place.iterdir() if is_file(one)) if place.is_dir() else [place]
    return [one for one in candidates if is_graph_file(one)]


def _with_labels_of_file(arrays: DglArrays, label: str | None) -> tuple[DglArrays, str]:
    """The arrays with the labels of vertices that are kept next to the graph, if it has none; and a note.

    These are labels of vertices if there is one for each vertex of the only type. `label` is None in a file with
    several graphs.
    """
    extra, [kind, *others] = arrays.extra, list(arrays.counts)
    own, count = arrays.nodes.get(kind, {}), arrays.counts[kind]
    names = USUAL["label"] if label == AUTO else (label,)
    labels = [name for name in names if name is not None and name in extra]
    if others or len(labels) != 1 or count == 1 or extra[labels[0]].shape[:1] != (count,) or set(names) & set(own):
        return arrays, f"what is kept next to the graphs is not used: {', '.join(extra)}"
    nodes: dict[str, dict[str, np.ndarray]] = {kind: {**own, labels[0]: extra[labels[0]]}}
    return replace(arrays, nodes=nodes), f"labels of vertices are {labels[0]}, which is kept next to the graph"
