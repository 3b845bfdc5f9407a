"""What tests of feature stores share: configurations, a graph and its shards, reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from small_graphs import sparse_rows

from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph

STATIC = "gnnexp.feature_stores.static_cache.StaticCacheOptions"
STORES: dict[str, dict[str, Any]] = {
    "mapped": {"_target_": "gnnexp.feature_stores.local.LocalOptions"},
    "ram": {"_target_": "gnnexp.feature_stores.local.LocalOptions", "memory": "ram"},
    "partitioned": {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"},
}


def graph_of(*, sparse: bool = False, num_features: int = 13) -> Graph:
    graph = nasty_graph(num_features=num_features)
    assert isinstance(graph.features, torch.Tensor)
    # Of two thirds of the dense columns nothing is left in the sparse rows; some rows are empty.
    return replace(graph, features=sparse_rows(graph.features)) if sparse else graph


def shard_of(graph: Graph, rank: int, size: int) -> Shard:
    return Shard(
        graph, rank, size, partition=parts(graph, size), part=rank, frequency=torch.arange(graph.num_nodes) % 7
    )


def as_dense(rows: Rows) -> torch.Tensor:
    return rows.to_dense() if isinstance(rows, SparseRows) else rows


def reads_of(rank: int, num_nodes: int) -> list[torch.Tensor]:
    """Arbitrary orders, repetitions, nothing on some or all ranks; another number of rows on every rank."""
    generator = torch.Generator().manual_seed(rank)
    reads = [torch.randint(0, num_nodes, (size,), generator=generator) for size in (40 + 11 * rank, 90, 3)]
    none = torch.empty(0, dtype=torch.int64)
    return [
        *reads,
        none if rank == 0 else reads[0].flip(0),
        reads[1] if rank == 1 else none,
        none,
        torch.full((5,), rank),
        torch.randperm(num_nodes, generator=generator).int(),
    ]
