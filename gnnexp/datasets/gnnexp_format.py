"""A graph that is already stored in gnnexp's own format."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from gnnexp.datasets.base import Dataset, checked
from gnnexp.datasets.options import LinkOptions, is_symmetric
from gnnexp.datasets.reading.names import is_of_names
from gnnexp.datasets.splits.held_out import LinkSplit
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file, is_folder, open_regular
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.arrays import META
from gnnexp.graph.storage.format import KIND, GraphWriter, open_graph
from gnnexp.graph.storage.layout import arrays_of


class GnnexpFormat(LinkOptions, Dataset):
    """A folder that `gnnexp.graph.storage.format.save_graph` wrote. Its arrays are memory-mapped.

    Args:
        path: the folder.
        name: name of the graph in reports; null = the name of the folder.
        weights: whether edges keep their weights; false drops them.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null. With
            it, edges are in memory. A graph without types must have the reverse of each edge.
        seed: seed of the draw of these links.
    """

    def __init__(
        self,
        *,
        path: str,
        name: str | None = None,
        weights: bool = True,
        link_split: LinkSplit = None,
        seed: int = 0,
    ) -> None:
        super().__init__(link_split=link_split, seed=seed)
        self.check_links()
        self.path, self.weights = path, weights
        self.name = Path(path).name if name is None else name

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A folder whose `meta.json` says that it is a graph."""
        meta = place / META
        known = is_file(meta) and json.loads(meta.read_text("utf-8")).get("kind") == KIND
        return [] if known else None

    def sources(self) -> list[Path]:
        """`meta.json`, which has a checksum of every array, and the files of names and ids next to it."""
        open_graph(Path(self.path))
        return [Path(self.path) / META, *self._names()]

    def load(self) -> Graph:
        """The graph. Its arrays stay on disk, but edges only without `link_split`.

        Raises:
            DataError: also if `link_split` is set, and the graph has links, or has neither types nor all reverses.
        """
        graph = open_graph(Path(self.path), verify="checksums")
        graph = checked(replace(graph, name=self.name, edge_weights=graph.edge_weights if self.weights else None))
        if self.link_split is None:
            return graph
        typed = graph.edge_types is not None
        if not typed and not is_symmetric(graph):
            raise DataError(
                Problem(
                    "dataset.link_split",
                    dict(self.link_split),
                    f"a pair without a type is one link, in either direction, and edges of {self.name} lack reverses",
                    "save the graph with both directions of each edge, or with types of edges",
                )
            )
        # Relations with reverses, of the same type or another, are found by their edges.
        return self.with_links(graph, symmetrize=not typed)

    def generate(self, folder: Path) -> Graph | None:
        """If there are names or ids next to the graph, write both to `folder`; else None."""
        files = self._names()
        if not files:
            return None
        graph = self.load()
        with GraphWriter(folder) as writer:
            for name, values in arrays_of(graph).items():
                writer.put(name, values)
            for path in files:
                with open_regular(path) as source, writer.extra(path.name).open("wb") as target:
                    shutil.copyfileobj(source, target)
            writer.finish_graph(
                name=graph.name, num_classes=graph.num_classes, notes=graph.notes, num_features=graph.num_features
            )
        return open_graph(folder)

    def _names(self) -> list[Path]:
        folder = Path(self.path)
        return (
            sorted(path for path in folder.iterdir() if is_of_names(path) and is_file(path))
            if is_folder(folder)
            else []
        )
