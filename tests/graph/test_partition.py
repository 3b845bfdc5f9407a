"""Partitions: what is saved comes back, and only for the graph that it was made for."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition, check_partition, open_partition, owner_dtype
from gnnexp.graph.storage.arrays import META
from gnnexp.testing.graphs import random_graph

GRAPH = random_graph(30, 90, 0)


def make(graph: Graph = GRAPH, num_parts: int = 4, *, edges: bool = False, seed: int = 0) -> Partition:
    draws = torch.Generator().manual_seed(seed)
    owners = [
        torch.randint(num_parts, (size,), generator=draws).to(owner_dtype(num_parts))
        for size in (graph.num_nodes, graph.num_edges)
    ]
    return Partition(
        owners[0],
        num_parts,
        owners[1] if edges else None,
        "drawn",
        {"seed": seed, "balance": ["train"]},
        "key-of-graph",
        1.5,
        1 << 20,
        1 << 19,
    )


@pytest.mark.parametrize("edges", [True, False])
@pytest.mark.parametrize("num_parts", [1, 4, 40_000])
def test_round_trip(tmp_path: Path, edges: bool, num_parts: int) -> None:
    partition = make(num_parts=num_parts, edges=edges)
    partition.save(tmp_path / "p")
    back = open_partition(tmp_path / "p", graph=GRAPH, graph_key="key-of-graph", verify="checksums")
    assert torch.equal(back.node_owner, partition.node_owner)
    assert back.node_owner.dtype == (torch.int16 if num_parts < 2**15 else torch.int32)
    assert (back.edge_owner is None) != edges
    if edges:
        assert torch.equal(back.edge_owner, partition.edge_owner)  # type: ignore[arg-type]
    for name in ("num_parts", "method", "options", "graph_key", "seconds", "peak_rss_bytes", "rss_before_bytes"):
        assert getattr(back, name) == getattr(partition, name)


def test_what_older_partitions_do_not_know_is_left_out(tmp_path: Path) -> None:
    make().save(tmp_path / "p")
    meta = json.loads((tmp_path / "p" / META).read_text())
    del meta["rss_before_bytes"]
    (tmp_path / "p" / META).write_text(json.dumps(meta))
    back = open_partition(tmp_path / "p", graph=GRAPH, graph_key="key-of-graph")
    assert back.cost == {"seconds": 1.5, "peak_rss_bytes": float(1 << 20)}
    assert make().cost == back.cost | {"rss_before_bytes": float(1 << 19)}


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(0, 99))
def test_parts_are_a_partition(num_parts: int, seed: int) -> None:
    partition = make(num_parts=num_parts, seed=seed)
    members = [partition.vertices_of(part) for part in range(num_parts)]
    assert [ids.numel() for ids in members] == partition.part_sizes().tolist()
    assert sorted(torch.cat(members).tolist()) == list(range(GRAPH.num_nodes))
    assert all(torch.equal(ids, torch.sort(ids).values) for ids in members)


def test_owner_dtype_holds_every_part() -> None:
    assert torch.tensor(2**15 - 1).to(owner_dtype(2**15)) == 2**15 - 1
    assert owner_dtype(2**15 + 1) == torch.int32


def test_another_graph_is_refused(tmp_path: Path) -> None:
    make().save(tmp_path / "p")
    with pytest.raises(DataError, match="key of this graph"):
        open_partition(tmp_path / "p", graph=GRAPH, graph_key="another")
    with pytest.raises(DataError, match=r"must be int16 or int32 \[31\]"):
        open_partition(tmp_path / "p", graph=random_graph(31, 90, 0), graph_key="key-of-graph")
    make(edges=True).save(tmp_path / "p")
    with pytest.raises(DataError, match=r"edge_owner.*\[90\]"):
        open_partition(tmp_path / "p", graph=random_graph(30, 91, 0), graph_key="key-of-graph")


@pytest.mark.parametrize(("array", "owner"), [("node_owner", 4), ("node_owner", -1), ("edge_owner", 4)])
def test_an_owner_out_of_range_is_refused(tmp_path: Path, array: str, owner: int) -> None:
    make(edges=True).save(tmp_path / "p")
    path = tmp_path / "p" / f"{array}.npy"
    owners = np.load(path)
    owners[17] = owner
    np.save(path, owners)
    with pytest.raises(DataError, match=f"first at position 17: {owner}"):
        open_partition(tmp_path / "p", graph=GRAPH, graph_key="key-of-graph")
    with pytest.raises(DataError, match="bytes have changed"):
        open_partition(tmp_path / "p", graph=GRAPH, graph_key="key-of-graph", verify="checksums")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_parts", "4"),
        ("num_parts", True),
        ("num_parts", 0),
        ("method", 3),
        ("options", []),
        ("seconds", None),
        ("kind", "graph"),
        ("arrays", {}),
        ("graph_key", 7),
        ("rss_before_bytes", "0"),
        ("rss_before_bytes", True),
    ],
)
def test_a_damaged_meta_is_refused(tmp_path: Path, key: str, value: object) -> None:
    make().save(tmp_path / "p")
    meta = json.loads((tmp_path / "p" / META).read_text())
    (tmp_path / "p" / META).write_text(json.dumps({**meta, key: value}))
    with pytest.raises(DataError, match="fix"):
        open_partition(tmp_path / "p", graph=GRAPH, graph_key="key-of-graph")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    make().save(tmp_path / "p")
    os.truncate(tmp_path / "p" / "node_owner.npy", 150)
    with pytest.raises(DataError, match="node_owner"):
        open_partition(tmp_path / "p", graph=GRAPH, graph_key="key-of-graph")


def test_check_partition_says_everything() -> None:
    partition = make(edges=True)
    assert check_partition(partition, GRAPH, name="p") == []
    broken = replace(partition, node_owner=partition.node_owner.long(), edge_owner=partition.edge_owner[1:])  # type: ignore
    assert [problem.key for problem in check_partition(broken, GRAPH, name="p")] == ["p: node_owner", "p: edge_owner"]
    assert check_partition(replace(partition, num_parts=0), GRAPH, name="p")[0].key == "p: num_parts"
