"""What travels or is cut out of a graph is what it was: blocks as packets, a part's own topology."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_sampling import graph_of, graphs

from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.packing import pack_block, unpack_block
from gnnexp.graph.partition import Partition
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.samplers.fused import FusedOptions

NEEDS = st.builds(BlockNeeds, st.booleans(), st.booleans(), st.booleans())
ARRAYS = ("indptr", "sources", "src_ids", "occurrence", "edge_types", "weight", "scale")


def block_of(graph: Graph, seeds: list[int], needs: BlockNeeds, step: int = 0) -> Block:
    sampler = FusedOptions([3]).make()
    sampler.setup(Shard(graph, needs=needs), 1)
    return sampler.sample(torch.tensor(seeds, dtype=torch.int64), BatchKey(0, 0, step)).blocks[0]


def same(found: Block, expected: Block) -> None:
    for name in ARRAYS:
        array, other = getattr(found, name), getattr(expected, name)
        assert (array is None) == (other is None), name
        if other is not None:
            assert array.dtype == other.dtype, name
            assert torch.equal(array, other), name
    assert (found.num_dst, found.self_loops) == (expected.num_dst, expected.self_loops)
    assert found.in_degree is None and found.dst_positions is None


@settings(max_examples=100)
@given(st.sampled_from([0, 3]).flatmap(graphs), NEEDS, st.data())
@pytest.mark.slow
def test_a_block_survives_its_packet(graph: Graph, needs: BlockNeeds, data: st.DataObject) -> None:
    """Int32 and int64 ids, no targets at all, added self loops (-1), with and without identity and types."""
    if graph.edge_types is None:
        needs = BlockNeeds(needs.self_loops, needs.edge_identity)
    vertices = st.lists(st.integers(0, graph.num_nodes - 1), unique=True)
    block, like = (block_of(graph, data.draw(vertices), needs, step) for step in (0, 1))
    sizes, packet = pack_block(block)
    assert packet.dtype == block.src_ids.dtype
    assert sizes.tolist() == [
        block.num_dst,
        block.num_edges,
        block.num_src,
        0 if block.occurrence is None else block.num_edges,
        0 if block.edge_types is None else block.num_edges,
    ]
    assert packet.numel() == int(sizes.sum())
    same(unpack_block(packet, sizes, like), block)


@settings(max_examples=50)
@given(graphs(types=2), NEEDS, st.data())
def test_packets_side_by_side_are_told_apart_by_their_sizes(
    graph: Graph, needs: BlockNeeds, data: st.DataObject
) -> None:
    vertices = st.lists(st.integers(0, graph.num_nodes - 1), unique=True)
    blocks = [block_of(graph, data.draw(vertices), needs, step) for step in range(3)]
    sizes, packets = zip(*map(pack_block, blocks), strict=True)
    whole = torch.cat(packets)
    parts = torch.split_with_sizes(whole, [int(size.sum()) for size in sizes])
    found = [unpack_block(part, size, blocks[0]) for part, size in zip(parts, sizes, strict=True)]
    for block, expected in zip(found, blocks, strict=True):
        same(block, expected)


@pytest.mark.parametrize("names", [("weight",), ("scale",), ("weight", "scale")])
@settings(max_examples=20)
@given(st.sampled_from([0, 3]).flatmap(graphs), st.booleans(), st.booleans(), st.data())
def test_weights_and_scales_travel_to_the_bit(
    names: tuple[str, ...], graph: Graph, loops: bool, identity: bool, data: st.DataObject
) -> None:
    vertices, needs = st.lists(st.integers(0, graph.num_nodes - 1), unique=True), BlockNeeds(loops, identity)
    block, like = (
        replace(plain, **{name: torch.randn(plain.num_edges) for name in names})
        for plain in (block_of(graph, data.draw(vertices), needs, step) for step in (0, 1))
    )
    sizes, packet = pack_block(block)
    assert sizes.numel() == 5 + len(names)
    same(unpack_block(packet, sizes, like), block)


@pytest.mark.parametrize("field", ["in_degree", "dst_positions"])
def test_only_whole_blocks_travel(field: str) -> None:
    block = block_of(graph_of([2, 1, 0], 3, 0), [0, 1], BlockNeeds())
    object.__setattr__(block, field, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(AssertionError, match="whole blocks"):
        pack_block(block)


@settings(max_examples=80)
@given(st.sampled_from([0, 3]).flatmap(graphs), st.integers(1, 4), st.data())
def test_a_part_has_all_in_edges_of_its_vertices_and_no_others(
    graph: Graph, num_parts: int, data: st.DataObject
) -> None:
    owner = torch.tensor(
        data.draw(st.lists(st.integers(0, num_parts - 1), min_size=graph.num_nodes, max_size=graph.num_nodes)),
        dtype=torch.int16,
    )
    total = 0
    for part in range(num_parts):
        own = Shard(graph, part, num_parts, partition=Partition(owner, num_parts), part=part).owned_topology
        assert (own.num_nodes, own.indices.dtype) == (graph.num_nodes, graph.indices.dtype)
        assert (own.edge_types is None) == (graph.edge_types is None)
        for vertex in range(graph.num_nodes):
            here = slice(int(own.indptr[vertex]), int(own.indptr[vertex + 1]))
            there = slice(int(graph.indptr[vertex]), int(graph.indptr[vertex + 1]) if owner[vertex] == part else 0)
            assert torch.equal(own.indices[here], graph.indices[there])
            if own.edge_types is not None and graph.edge_types is not None:
                assert torch.equal(own.edge_types[here], graph.edge_types[there])
        total += own.num_edges
    assert total == graph.num_edges


@given(st.lists(st.integers(0, 19)), st.integers(0, 2))
def test_those_of_some_ids_that_a_part_owns(ids: list[int], part: int) -> None:
    owner = torch.arange(20, dtype=torch.int16) % 3
    shard = Shard(graph_of([1] * 20, 20, 0), partition=Partition(owner, 3), part=part)
    for dtype in (torch.int32, torch.int64):
        found = shard.owned_of(torch.tensor(ids, dtype=dtype))
        assert found.dtype == dtype
        assert found.tolist() == [vertex for vertex in ids if vertex % 3 == part]
    assert shard.num_parts == 3 and Shard(shard.graph).num_parts == 1
    with pytest.raises(AssertionError, match="no partition"):
        _ = Shard(shard.graph).owner
