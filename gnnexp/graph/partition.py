"""A partition: the owner of each vertex and, in a vertex-cut, of each edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnexp.errors import DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.arrays import META, ArrayFolder, Verify, fix, read_folder
from gnnexp.graph.storage.writer import ArrayWriter
from gnnexp.graph.stream import EdgeStream
from gnnexp.kernels.graph.checks import count_outside
from gnnexp.kernels.partitioners.replicas import count_parts

KIND, SCHEMA = "partition", 1
_OWNER_DTYPES = (torch.int16, torch.int32)


def owner_dtype(num_parts: int) -> torch.dtype:
    """The dtype of owners: int16 if every part number fits, else int32."""
    return torch.int16 if num_parts <= 1 << 15 else torch.int32


@dataclass(frozen=True, eq=False)
class Partition:
    """An owner for each vertex, and in a vertex-cut an owner for each edge.

    Without `edge_owner` (edge-cut) the owner of an edge is the owner of its destination. Replication depends on the
    shards that are built from a partition; `quality` computes it for several kinds of shards.

    Attributes:
        node_owner: `[V]` int16 or int32, the part that stores a vertex's features and finishes its output.
        num_parts: number of parts; parts may be empty.
        edge_owner: `[E]` int16 or int32 in the graph's canonical edge order, or None.
        method: name of the partitioner (`metis`).
        options: options of the partitioner, scalars and lists.
        graph_key: content key of the graph that was partitioned.
        seconds: wall time of the partitioning.
        peak_rss_bytes: peak resident memory of the process during partitioning, including the graph.
        rss_before_bytes: resident memory of the process before partitioning, including the mapped graph; 0 if unknown.
        facts: figures by name that the partitioner reports about its run.
    """

    node_owner: Tensor
    num_parts: int
    edge_owner: Tensor | None = None
    method: str = "given"
    options: Mapping[str, Any] = field(default_factory=dict)
    graph_key: str = ""
    seconds: float = 0.0
    peak_rss_bytes: int = 0
    rss_before_bytes: int = 0
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def cost(self) -> dict[str, float]:
        """Time and memory of the partitioning, by name; without figures that were not recorded."""
        before = {"rss_before_bytes": float(self.rss_before_bytes)} if self.rss_before_bytes else {}
        return {"seconds": self.seconds, "peak_rss_bytes": float(self.peak_rss_bytes), **before}

    def part_sizes(self) -> Tensor:
        """`[num_parts]` int64 number of vertices of each part."""
        return torch.from_numpy(count_parts(self.node_owner.numpy(), self.num_parts))

    def vertices_of(self, part: int) -> Tensor:
        """Ids of the vertices that `part` owns, `[n]` int64 ascending."""
        return torch.nonzero(self.node_owner == part).flatten()

    def save(self, folder: Path) -> None:
        """Write the partition to `folder`, atomically; replaces a stored partition."""
        with ArrayWriter(folder) as writer:
            writer.put("node_owner", self.node_owner)
            if self.edge_owner is not None:
                writer.put("edge_owner", self.edge_owner)
            writer.finish(
                {
                    "kind": KIND,
                    "schema": SCHEMA,
                    "num_parts": self.num_parts,
                    "num_nodes": self.node_owner.numel(),
                    "method": self.method,
                    "options": dict(self.options),
                    "graph_key": self.graph_key,
                    "seconds": self.seconds,
                    "peak_rss_bytes": self.peak_rss_bytes,
                    "rss_before_bytes": self.rss_before_bytes,
                    "facts": dict(self.facts),
                }
            )


def check_partition(partition: Partition, graph: Graph | EdgeStream, *, name: str) -> list[Problem]:
    """Problems if `partition` does not fit `graph`: wrong shapes, wrong dtypes, and owners out of range.

    Args:
        partition: the partition.
        graph: the graph or stream that the partition should fit.
        name: file or partitioner, the first word of every message.
    """
    if not 1 <= partition.num_parts < 1 << 31:
        fix = "partition the graph again"
        return [Problem(f"{name}: num_parts", partition.num_parts, "must be 1 to 2^31 - 1", fix)]
    problems: list[Problem] = []
    _check_owner(f"{name}: node_owner", partition.node_owner, graph.num_nodes, partition.num_parts, problems)
    if partition.edge_owner is not None:
        _check_owner(f"{name}: edge_owner", partition.edge_owner, graph.num_edges, partition.num_parts, problems)
    return problems


def _check_owner(key: str, owner: Tensor, length: int, num_parts: int, problems: list[Problem]) -> None:
    again = "partition this graph again"
    if owner.dtype not in _OWNER_DTYPES or owner.shape != (length,):
        problems.append(Problem(key, f"{owner.dtype} {list(owner.shape)}", f"must be int16 or int32 [{length}]", again))
        return
    count, first = count_outside(owner.numpy(), 0, num_parts)
    if count:
        problems.append(
            Problem(
                key,
                f"{count} of {length}, first at position {first}: {int(owner[first])}",
                f"parts are 0 to {num_parts - 1}",
                again,
            )
        )


def open_partition(
    folder: Path, *, graph: Graph | EdgeStream, graph_key: str | None = None, verify: Verify = "sizes"
) -> Partition:
    """The partition stored in `folder`, checked against `graph`.

    Args:
        folder: folder that `Partition.save` wrote.
        graph: the graph that the partition must fit, or the stream of its edges.
        graph_key: content key of that graph; None if the launcher has already compared the keys.
        verify: see `open_graph`; the range of owners is always checked.

    Raises:
        DataError: the partition is damaged, or belongs to another graph.
    """
    stored = read_folder(folder, KIND, SCHEMA)
    problems = _check_meta(stored)
    if not problems and graph_key is not None and stored.meta["graph_key"] != graph_key:
        problems.append(
            Problem(
                f"{folder / META}: graph_key",
                stored.meta["graph_key"][:80],
                f"must be {graph_key}, the key of this graph",
                "partition this graph, or choose the dataset that this partition was made for",
            )
        )
    DataError.raise_all(problems)
    arrays = stored.tensors(verify=verify)
    meta = stored.meta
    partition = Partition(
        node_owner=arrays["node_owner"],
        num_parts=meta["num_parts"],
        edge_owner=arrays.get("edge_owner"),
        method=meta["method"],
        options=meta["options"],
        graph_key=meta["graph_key"],
        seconds=meta["seconds"],
        peak_rss_bytes=meta["peak_rss_bytes"],
        rss_before_bytes=meta.get("rss_before_bytes", 0),
        facts=meta.get("facts", {}),
    )
    DataError.raise_all(check_partition(partition, graph, name=str(folder)))
    return partition


def _check_meta(stored: ArrayFolder) -> list[Problem]:
    path, meta, help_ = str(stored.folder / META), stored.meta, fix(stored.folder)
    kinds: dict[str, type | tuple[type, ...]] = {
        "num_parts": int,
        "method": str,
        "options": dict,
        "graph_key": str,
        "seconds": (int, float),
        "peak_rss_bytes": int,
        "rss_before_bytes": int,
    }
    entries = {"rss_before_bytes": 0, **meta}  # older partitions lack it
    problems = [
        Problem(f"{path}: {key}", str(entries.get(key))[:80], "must exist and have the right type", help_)
        for key, kind in kinds.items()
        if not isinstance(entries.get(key), kind) or isinstance(entries[key], bool)
    ]
    facts = meta.get("facts", {})
    if not isinstance(facts, dict) or not all(isinstance(value, int | float) for value in facts.values()):
        problems.append(Problem(f"{path}: facts", str(facts)[:80], "must be numbers by name", help_))
    names = set(stored.specs)
    if "node_owner" not in names or names - {"node_owner", "edge_owner"}:
        problems.append(Problem(path, sorted(names), "arrays are node_owner and, in a vertex-cut, edge_owner", help_))
    return problems
