"""A graph that is already stored in gnnexp's own format."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from gnnexp.datasets.base import Dataset, checked
from gnnexp.files.regular import is_file
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.arrays import META
from gnnexp.graph.storage.format import KIND, open_graph


class GnnexpFormat(Dataset):
    """A folder that `gnnexp.graph.storage.format.save_graph` wrote. Its arrays are memory-mapped.

    Args:
        path: the folder.
        name: name of the graph in reports; null = the name of the folder.
        weights: whether edges keep their weights; false drops them.
    """

    def __init__(self, *, path: str, name: str | None = None, weights: bool = True) -> None:
        self.path, self.weights = path, weights
        self.name = Path(path).name if name is None else name

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A folder whose `meta.json` says that it is a graph."""
        meta = place / META
        known = is_file(meta) and json.loads(meta.read_text("utf-8")).get("kind") == KIND
        return [] if known else None

    def sources(self) -> list[Path]:
        """`meta.json`, which has a checksum of every array."""
        open_graph(Path(self.path))
        return [Path(self.path) / "meta.json"]

    def load(self) -> Graph:
        """The graph. Its arrays stay on disk."""
        graph = open_graph(Path(self.path), verify="checksums")
        return checked(replace(graph, name=self.name, edge_weights=graph.edge_weights if self.weights else None))

    def options(self) -> dict[str, object]:
        """Without `weights` where they are kept: keys are those that came before the option."""
        return {name: value for name, value in super().options().items() if (name, value) != ("weights", True)}
