"""Parts on disk: every edge where it belongs, in its order, with the rows of its vertices."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from full_disk import room_for
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import full_graph

from gnnexp.errors import DataError
from gnnexp.graph import parts as module
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.graph.parts import Part, Parts, in_memory, open_parts, write_parts
from gnnexp.graph.sparse import SparseRows
from gnnexp.graph.stream import GraphStream
from gnnexp.preparation.artifacts import prepare_parts
from gnnexp.testing.graphs import edge_list, nasty_graph, typed_graph
from gnnexp.testing.strategies import graphs


def written(graph: Graph, partition: Partition, folder: Path, *, full: bool, chunk: int = 1 << 20) -> Parts:
    write_parts(graph, GraphStream(graph, chunk_edges=chunk), partition, folder / "parts", full_neighbors=full)
    return open_parts(folder / "parts")


Edge = tuple[int, int, int]


def typed_edges(graph: Graph) -> list[Edge]:
    """(src, dst, type), -1 for none."""
    types = [-1] * graph.num_edges if graph.edge_types is None else graph.edge_types.tolist()
    return [(src, dst, kind) for (src, dst), kind in zip(edge_list(graph), types, strict=True)]


def original_edges(part: Part) -> list[Edge]:
    names = part.names.tolist()
    return [(names[src], names[dst], kind) for src, dst, kind in typed_edges(part.graph)]


def held(graph: Graph, partition: Partition, part: int, *, full: bool) -> Counter[Edge]:
    """By sets."""
    owner, edges = partition.node_owner.tolist(), typed_edges(graph)
    if full:
        return Counter(edge for edge in edges if part in (owner[edge[0]], owner[edge[1]]))
    if partition.edge_owner is None:
        return Counter(edge for edge in edges if owner[edge[0]] == owner[edge[1]] == part)
    return Counter(edge for edge, of in zip(edges, partition.edge_owner.tolist(), strict=True) if of == part)


@settings(max_examples=40)
@given(graph=graphs(typed=True), data=st.data(), full=st.booleans(), cut=st.booleans(), chunk=st.integers(1, 100))
def test_every_part_holds_what_it_should(graph, data, full, cut, chunk) -> None:
    num_parts = data.draw(st.integers(1, 4))
    owners = st.integers(0, num_parts - 1)
    nodes = torch.tensor(data.draw(st.lists(owners, min_size=graph.num_nodes, max_size=graph.num_nodes))).short()
    edges = torch.tensor(data.draw(st.lists(owners, min_size=graph.num_edges, max_size=graph.num_edges))).short()
    partition = Partition(nodes, num_parts, edges if cut else None)
    with tempfile.TemporaryDirectory() as folder:
        parts = written(graph, partition, Path(folder), full=full, chunk=chunk)
        for number in range(num_parts):
            part, wanted = in_memory(parts.open(number)), held(graph, partition, number, full=full)
            found = original_edges(part)
            assert Counter(found) == wanted
            assert found == sorted(found, key=lambda edge: (edge[1], edge[0], edge[2])), "as in the whole graph"
            assert (part.graph.edge_types is None) == (graph.edge_types is None)
            owned = {v for v in range(graph.num_nodes) if nodes[v] == number}
            assert part.names.tolist() == sorted(owned | {v for edge in wanted for v in edge[:2]})
            assert set(part.names[part.owned].tolist()) == owned
            sizes = parts.sizes[number]
            assert (sizes.vertices, sizes.owned, sizes.edges) == (len(part.names), len(owned), sum(wanted.values()))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("multilabel", [False, True])
def test_vertex_data_comes_with_its_vertices(tmp_path: Path, sparse: bool, multilabel: bool) -> None:
    graph = full_graph(sparse=sparse, multilabel=multilabel)
    owner = torch.arange(graph.num_nodes).remainder(3).short()
    parts = written(graph, Partition(owner, 3), tmp_path, full=True)
    members = {"train": 0, "val": 0, "test": 0}
    for number in range(3):
        part = parts.open(number)
        ids = part.names.long()
        whole, here = graph.features, part.graph.features
        if isinstance(whole, SparseRows):
            assert isinstance(here, SparseRows) and torch.equal(here.to_dense(), whole.to_dense()[ids])
        else:
            assert isinstance(whole, torch.Tensor) and isinstance(here, torch.Tensor)
            assert torch.equal(here, whole[ids])
        assert graph.labels is not None and part.graph.labels is not None
        assert torch.equal(part.graph.labels.nan_to_num(-7), graph.labels[ids].nan_to_num(-7))
        assert part.graph.num_classes == graph.num_classes
        assert graph.node_types is not None and part.graph.node_types is not None
        assert torch.equal(part.graph.node_types, graph.node_types[ids])
        for split in members:
            mine = getattr(part.graph.splits, split)
            original = getattr(graph.splits, split)
            assert ids[mine].tolist() == sorted(original[owner[original] == number].tolist())
            members[split] += mine.numel()
        assert parts.sizes[number].train == part.graph.splits.train.numel()
    assert members == {split: getattr(graph.splits, split).numel() for split in members}


def test_a_cut_that_dies_leaves_nothing_and_the_next_one_starts_clean(tmp_path: Path, monkeypatch) -> None:
    graph = full_graph()
    partition = Partition(torch.arange(graph.num_nodes).remainder(3).short(), 3)
    whole = module._write_part

    def dies(*arguments: object) -> dict[str, int]:
        if "part_1" in str(arguments[-1]):
            raise KeyboardInterrupt
        return whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_write_part", dies)
    with pytest.raises(KeyboardInterrupt):
        prepare_parts(graph, partition, Path("spring-3-abc"), tmp_path, full_neighbors=True)
    assert list((tmp_path / "parts").iterdir()) == []
    monkeypatch.setattr(module, "_write_part", whole)
    parts, folder = prepare_parts(graph, partition, Path("spring-3-abc"), tmp_path, full_neighbors=True)
    assert [path.name for path in (tmp_path / "parts").iterdir()] == [folder.name]
    assert parts.sizes == prepare_parts(graph, partition, Path("spring-3-abc"), tmp_path, full_neighbors=True)[0].sizes


@pytest.mark.parametrize(("room", "where"), [(200, "edges"), (1000, "features"), (1300, "meta.json")])
def test_a_disk_that_fills_leaves_nothing_and_the_next_cut_succeeds(tmp_path: Path, room: int, where: str) -> None:
    graph = full_graph()
    partition = Partition(torch.arange(graph.num_nodes).remainder(2).short(), 2)
    _, elsewhere = prepare_parts(graph, partition, Path("p"), tmp_path / "elsewhere", full_neighbors=True)
    sizes = {"edges": 8 * open_parts(elsewhere).sizes[0].edges} | {
        path.name: path.stat().st_size for path in (elsewhere / "part_0" / "graph").iterdir()
    }
    assert next(name for name in ("edges", "features.npy", "meta.json") if sizes[name] > room).startswith(where)
    with room_for(room), pytest.raises(DataError, match=r"(?s)File too large.*fix: make room there"):
        prepare_parts(graph, partition, Path("p"), tmp_path / "cache", full_neighbors=True)
    assert list((tmp_path / "cache" / "parts").iterdir()) == []
    parts, _ = prepare_parts(graph, partition, Path("p"), tmp_path / "cache", full_neighbors=True)
    assert original_edges(parts.open(1)) == original_edges(open_parts(elsewhere).open(1))


def test_a_damaged_part_is_cut_again(tmp_path: Path) -> None:
    graph = full_graph()
    partition = Partition(torch.arange(graph.num_nodes).remainder(3).short(), 3)
    _, folder = prepare_parts(graph, partition, Path("p"), tmp_path, full_neighbors=True)
    indices = folder / "part_2" / "graph" / "indices.npy"
    values = np.load(indices)
    values[0] = 10_000
    np.save(indices, values)
    parts, _ = prepare_parts(graph, partition, Path("p"), tmp_path, full_neighbors=True)
    assert original_edges(parts.open(2)) == original_edges(
        written(graph, partition, tmp_path / "again", full=True).open(2)
    )


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path, monkeypatch) -> None:
    graph = full_graph()
    partition = Partition(torch.zeros(graph.num_nodes, dtype=torch.int16), 1)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(DataError, match="GiB are free"):
        written(graph, partition, tmp_path, full=True)
    assert not list((tmp_path / "parts").glob("edges_*"))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("typed", [False, True])
def test_every_edge_keeps_its_weight(tmp_path: Path, full: bool, typed: bool) -> None:
    plain = typed_graph() if typed else nasty_graph()
    graph = replace(plain, edge_weights=torch.arange(plain.num_edges).float())
    parts = written(graph, Partition(torch.arange(graph.num_nodes).remainder(3).short(), 3), tmp_path, full=full)
    edges = typed_edges(graph)
    for number in range(3):
        part = in_memory(parts.open(number))
        assert part.graph.edge_weights is not None
        weights = part.graph.edge_weights.int().tolist()
        assert original_edges(part) == [edges[weight] for weight in weights]
        assert len(set(weights)) == len(weights) and part.nbytes > 4 * part.graph.num_edges
    assert (tmp_path / "parts" / "part_0" / "graph" / "edge_weights.npy").is_file()
    assert not list((tmp_path / "parts").glob("*.bin"))
