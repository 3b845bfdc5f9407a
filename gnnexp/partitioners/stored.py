"""A stored partition, written by `gnnexp partition` or by other code that calls `Partition.save`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import KIND, SCHEMA, Partition, open_partition
from gnnexp.graph.storage.arrays import META, read_folder
from gnnexp.graph.storage.presample import Presample
from gnnexp.partitioners.base import Owners, Partitioner


class StoredPartitioner(Partitioner):
    """Reads a folder written by `Partition.save`, for the same graph and the same number of parts as the run.

    The partition is a vertex-cut if the folder has owners of edges.

    Args:
        path: folder of the stored partition.
        num_parts: number of parts, `auto` for one per rank.
    """

    def __init__(self, path: str, num_parts: int | Literal["auto"] = "auto") -> None:
        self.path, self.num_parts = path, num_parts
        self._folder = Path(path).expanduser()
        if not self._is_there():
            raise ConfigError(
                Problem(
                    "partitioner.path",
                    path,
                    "must be a folder with a stored partition",
                    "make one with gnnexp partition, or choose partitioner=metis",
                )
            )
        self.vertex_cut = "edge_owner" in read_folder(self._folder, KIND, SCHEMA).specs

    def _is_there(self) -> bool:
        try:
            return (self._folder / META).is_file()
        except OSError:  # a name that is too long, or a place that may not be looked into
            return False

    def options(self) -> dict[str, Any]:
        """The checksums of the stored arrays: they identify the content, independent of the path."""
        return {name: spec.sha256 for name, spec in read_folder(self._folder, KIND, SCHEMA).specs.items()}

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """The stored owners."""
        partition = self._read(graph, num_parts, None)
        return Owners(partition.node_owner, partition.edge_owner)

    def partition(
        self, graph: Graph, num_parts: int, graph_key: str = "", presample: Presample | None = None
    ) -> Partition:
        """The stored partition, checked against the graph and the number of parts.

        Raises:
            DataError: the partition is damaged, belongs to another graph, or has another number of parts.
        """
        return self._read(graph, num_parts, graph_key)

    def _read(self, graph: Graph, num_parts: int, graph_key: str | None) -> Partition:
        partition = open_partition(self._folder, graph=graph, graph_key=graph_key, verify="checksums")
        if partition.num_parts != num_parts:
            raise DataError(
                Problem(
                    "partitioner.path",
                    self.path,
                    f"has {partition.num_parts} parts, the run needs {num_parts}: one per rank (of a group)",
                    f"use as many workers, or partition again with partitioner.num_parts={num_parts}",
                )
            )
        return partition
