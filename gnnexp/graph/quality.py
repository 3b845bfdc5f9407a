"""The quality of a partition: cut, replication and balance, counted exactly over all edges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition, check_partition
from gnnexp.graph.stream import EdgeStream, GraphStream
from gnnexp.kernels.partitioners.replicas import (
    PARTS_PER_PASS,
    add_bits,
    add_edges_of_owners,
    count_cut,
    count_parts,
    mark_cut,
    mark_full,
    mark_owned,
)


class Replicas(NamedTuple):
    """Number of distinct vertices that each part holds, `[num_parts]` int64, by three definitions.

    Attributes:
        full: vertices that the part owns, and all their in-neighbours.
        cut: vertices that the part owns, and both ends of its edges.
        either: vertices in `full` or in `cut`.
    """

    full: np.ndarray
    cut: np.ndarray
    either: np.ndarray


def quality(graph: Graph, partition: Partition) -> dict[str, float]:
    """The report of `stream_quality` for a graph, with the balance of training vertices."""
    return stream_quality(GraphStream(graph), partition, graph.splits.train)


def stream_quality(edges: EdgeStream, partition: Partition, train: Tensor | None = None) -> dict[str, float]:
    """Cut, replication and balance of `partition`, and sizes of its parts.

    - `edge_cut`: share of the edges whose endpoints have different owners (0 without edges).
    - `replication_full`: copies per vertex if every part holds its own vertices and all their in-neighbours. This is
      the RF of vertex partitioners in SDT-GNN (section 5).
    - `replication_cut`: copies per vertex if every part holds its own vertices, and its own edges with both ends. This
      is the RF of the vertex-cut papers. In an edge-cut it equals `replication_full`.
    - `replication_artifact`: copies per vertex if every part holds all of these vertices. SDT-GNN's published artifact
      counts the RF of other partitioners in this way. In an edge-cut it equals `replication_full`.
    - `balance_vertices`, `balance_edges`, `balance_train`: largest part over mean part. A balance is left out if the
      graph has no edges or no training vertices.
    - `parts`, and for each part p `part<p>/vertices`, `part<p>/edges`, `part<p>/train`, and `part<p>/halo`: the number
      of foreign in-neighbours of its vertices.

    Takes 8 bytes per vertex (16 in a vertex-cut), and one pass over the edges for every 64 parts.

    Args:
        edges: edges of the graph.
        partition: partition of the graph.
        train: training vertices, or None.

    Raises:
        DataError: the partition does not fit these edges.
    """
    DataError.raise_all(check_partition(partition, edges, name="partition"))
    owner, num_parts = partition.node_owner.numpy(), partition.num_parts
    edge_owner = None if partition.edge_owner is None else partition.edge_owner.numpy()
    vertices, counts = count_parts(owner, num_parts), np.zeros(num_parts, np.int64)
    cut, held = _pass_over(edges, owner, edge_owner, counts)
    sizes = {"vertices": vertices, "edges": counts if edge_owner is None else count_parts(edge_owner, num_parts)}
    sizes["train"] = np.zeros(num_parts, np.int64) if train is None else count_parts(owner[train.numpy()], num_parts)
    num_nodes = owner.size
    report = {
        "parts": float(num_parts),
        "edge_cut": cut / max(1, edges.num_edges),
        "replication_full": held.full.sum() / num_nodes,
        "replication_cut": held.cut.sum() / num_nodes,
        "replication_artifact": held.either.sum() / num_nodes,
    }
    report |= {f"balance_{what}": counts.max() / counts.mean() for what, counts in sizes.items() if counts.any()}
    sizes["halo"] = held.full - vertices
    report |= {f"part{part}/{what}": counts[part] for part in range(num_parts) for what, counts in sizes.items()}
    return {key: float(value) for key, value in report.items()}


def _pass_over(
    edges: EdgeStream, owner: np.ndarray, edge_owner: np.ndarray | None, counts: np.ndarray
) -> tuple[int, Replicas]:
    """Number of cut edges, and vertices of every part; adds in-edges of the parts' vertices to `counts` `[p]`."""
    cut = 0
    full, of_cut, either = (np.zeros(counts.size, np.int64) for _ in range(3))
    for first in range(0, counts.size, PARTS_PER_PASS):
        these, bits = slice(first, first + PARTS_PER_PASS), np.empty(owner.size, np.uint64)
        mark_owned(owner, first, bits)
        bits_of_cut = bits[:0] if edge_owner is None else bits.copy()
        for chunk in edges.chunks():
            if first == 0:
                cut += count_cut(chunk.sources, chunk.destinations, owner)
                add_edges_of_owners(chunk.destinations, owner, counts)
            mark_full(chunk.sources, chunk.destinations, owner, first, bits)
            if edge_owner is not None:
                mark_cut(chunk.sources, chunk.destinations, edge_owner[chunk.positions], first, bits_of_cut)
        add_bits(bits, full[these])
        if edge_owner is not None:
            add_bits(bits_of_cut, of_cut[these])
            bits |= bits_of_cut
            add_bits(bits, either[these])
    return cut, Replicas(full, full, full) if edge_owner is None else Replicas(full, of_cut, either)
