"""A graph that is already in gnnexp's own on-disk format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gnnexp.datasets.base import Dataset, checked
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import open_graph


class GnnexpFormat(Dataset):
    """A folder written by `gnnexp.graph.storage.format.save_graph`, opened as memory maps.

    Args:
        path: the folder.
        name: of the graph in reports; null = the name of the folder.
    """

    def __init__(self, *, path: str, name: str | None = None) -> None:
        self.path = path
        self.name = Path(path).name if name is None else name

    def sources(self) -> list[Path]:
        """`meta.json`, which holds a checksum of every array."""
        open_graph(Path(self.path))
        return [Path(self.path) / "meta.json"]

    def load(self) -> Graph:
        """The graph; its arrays stay on the disk."""
        graph = open_graph(Path(self.path), verify="checksums")
        return checked(replace(graph, name=self.name))
