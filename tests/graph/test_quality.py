"""The quality report against counting by sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.partition import Partition, owner_dtype
from gnnexp.graph.quality import quality
from gnnexp.testing.graphs import edge_list, random_graph
from gnnexp.testing.strategies import graphs

NONE = torch.empty(0, dtype=torch.int64)


def brute_force(graph: Graph, partition: Partition) -> dict[str, float]:
    owner, num_parts = partition.node_owner.tolist(), partition.num_parts
    edges = edge_list(graph)
    places = [owner[dst] for _, dst in edges] if partition.edge_owner is None else partition.edge_owner.tolist()
    full = [{v for v in range(graph.num_nodes) if owner[v] == p} for p in range(num_parts)]
    cut = [set(vertices) for vertices in full]
    owned = [len(vertices) for vertices in full]
    for (src, dst), place in zip(edges, places, strict=True):
        full[owner[dst]].add(src)
        cut[place] |= {src, dst}
    counts = {
        "vertices": owned,
        "edges": [places.count(p) for p in range(num_parts)],
        "train": [sum(owner[v] == p for v in graph.splits.train.tolist()) for p in range(num_parts)],
    }
    report = {
        "parts": num_parts,
        "edge_cut": sum(owner[src] != owner[dst] for src, dst in edges) / max(1, len(edges)),
        "replication_full": sum(map(len, full)) / graph.num_nodes,
        "replication_cut": sum(map(len, cut)) / graph.num_nodes,
        "replication_artifact": sum(len(one | other) for one, other in zip(full, cut, strict=True)) / graph.num_nodes,
    }
    report |= {f"balance_{what}": max(sizes) * num_parts / sum(sizes) for what, sizes in counts.items() if sum(sizes)}
    counts["halo"] = [len(full[p]) - owned[p] for p in range(num_parts)]
    return report | {f"part{p}/{what}": sizes[p] for what, sizes in counts.items() for p in range(num_parts)}


@settings(max_examples=80, deadline=None)
@given(graphs(), st.sampled_from([1, 2, 3, 63, 64, 65, 130]), st.booleans(), st.integers(0, 999))
def test_equals_brute_force(graph: Graph, num_parts: int, vertex_cut: bool, seed: int) -> None:
    draws = np.random.default_rng(seed)
    train = torch.from_numpy(np.flatnonzero(draws.random(graph.num_nodes) < 0.4))
    graph = replace(graph, splits=Splits(train, NONE, NONE))
    owners = [
        torch.from_numpy(draws.integers(0, num_parts, size)).to(owner_dtype(num_parts))
        for size in (graph.num_nodes, graph.num_edges)
    ]
    partition = Partition(owners[0], num_parts, owners[1] if vertex_cut else None)
    found, expected = quality(graph, partition), brute_force(graph, partition)
    assert found == pytest.approx(expected, rel=1e-12)
    if not vertex_cut:
        assert found["replication_cut"] == found["replication_artifact"] == found["replication_full"]
        placed = replace(partition, edge_owner=owners[0][graph.destinations().long()])
        assert quality(graph, placed) == pytest.approx(expected, rel=1e-12)


def test_one_part_replicates_nothing() -> None:
    graph = random_graph(20, 60, 0)
    found = quality(graph, Partition(torch.zeros(20, dtype=torch.int16), 1))
    assert (found["edge_cut"], found["part0/halo"]) == (0, 0)
    assert found["replication_full"] == found["balance_vertices"] == found["balance_edges"] == 1
    assert "balance_train" not in found


def test_a_partition_of_another_graph_is_refused() -> None:
    with pytest.raises(DataError, match="node_owner"):
        quality(random_graph(20, 60, 0), Partition(torch.zeros(19, dtype=torch.int16), 1))
    with pytest.raises(DataError, match="node_owner"):
        quality(random_graph(20, 60, 0), Partition(torch.full((20,), 2, dtype=torch.int16), 2))
