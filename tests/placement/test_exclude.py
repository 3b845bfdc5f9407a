"""Blocks without some links against the same in plain Python."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.placement.exclude import excluded, without
from gnnexp.samplers.fused import FusedOptions
from gnnexp.testing.strategies import graphs


def block_of(graph: Graph, seeds: list[int], fanout: int, *, loops: bool, types: bool) -> Block:
    sampler = FusedOptions([fanout]).make()
    needs = BlockNeeds(self_loops=loops, edge_identity=True, edge_types=types, edge_ids=True)
    sampler.setup(Shard(graph, needs=needs), 1)
    return sampler.sample(torch.tensor(seeds, dtype=torch.int64), BatchKey(0, 0, 0)).blocks[0]


def edges(block: Block) -> list[tuple[int | None, ...]]:
    """(destination, source, type, occurrence, id, whether it is an added loop), in the block's order."""
    ends, found = block.indptr.tolist(), []
    for dst in range(block.num_dst):
        for edge in range(ends[dst], ends[dst + 1]):
            data = [
                None if values is None else int(values[edge])
                for values in (block.edge_types, block.occurrence, block.edge_ids)
            ]
            added = block.self_loops and edge == ends[dst + 1] - 1
            found.append((int(block.dst_ids[dst]), int(block.src_ids[block.sources[edge]]), *data, added))
    return found


@given(graphs(typed=True), st.sampled_from([-1, 2]), st.booleans(), st.booleans(), st.data())
@settings(max_examples=60)
def test_what_is_left_is_what_was_not_named(
    graph: Graph, fanout: int, loops: bool, carried: bool, data: st.DataObject
) -> None:
    vertex = st.integers(0, graph.num_nodes - 1)
    typed, of_links = graph.edge_types is not None, data.draw(st.sampled_from([1, 2, 3]))
    loops, carried = loops and not typed, carried and typed
    block = block_of(graph, data.draw(st.lists(vertex, unique=True)), fanout, loops=loops, types=carried)
    link = st.tuples(vertex, st.integers(0, of_links - 1), vertex) if typed else st.tuples(vertex, vertex)
    links = data.draw(st.lists(link, max_size=30))
    inverse = of_links if graph.num_relations > of_links else 0
    gone = {(t, h, *kind) for h, *kind, t in links} | {(h, t, *(r + inverse for r in kind)) for h, *kind, t in links}
    if not (carried and graph.num_relations):
        gone = {pair[:2] for pair in gone}
    pairs = excluded(torch.tensor(links, dtype=torch.int64).view(-1, 3 if typed else 2), of_links, graph.num_relations)
    left = without(block, pairs)
    compared = 3 if carried and graph.num_relations else 2
    assert edges(left) == [edge for edge in edges(block) if edge[-1] or edge[:compared] not in gone]
    assert left.src_ids is block.src_ids and left.num_dst == block.num_dst
    assert left.degree.equal(left.indptr.diff()) and left.in_relation_degree is None
    if left.edge_types is not None:
        alike = [sum(e[0] == f[0] and e[2] == f[2] for f in edges(left)) for e in edges(left)]
        assert left.relation_degree.tolist() == alike


def test_a_block_without_them_is_handed_on_and_weights_are_not() -> None:
    graph = Graph(torch.tensor([0, 2, 3, 3]), torch.tensor([1, 2, 0], dtype=torch.int32))
    block = block_of(graph, [0, 1, 2], -1, loops=True, types=False)
    assert without(block, excluded(torch.tensor([[2, 2]]), 0, 0)) is block  # the loops that a model adds stay
    left = without(block, excluded(torch.tensor([[0, 1]]), 0, 0))
    assert [edge[:2] for edge in edges(left) if not edge[-1]] == [(0, 2)]


def test_weights_of_the_edges_that_are_left_stay() -> None:
    graph = Graph(
        torch.tensor([0, 2, 3, 3]),
        torch.tensor([1, 2, 0], dtype=torch.int32),
        edge_weights=torch.tensor([1.0, 2.0, 4.0]),
    )
    block = block_of(graph, [0, 1, 2], -1, loops=True, types=False)
    assert block.weight is not None and block.weight.tolist() == [1, 2, 1, 4, 1, 1]  # added loops weigh 1
    left = without(replace(block, scale=torch.arange(6).float()), excluded(torch.tensor([[0, 1]]), 0, 0))
    assert left.weight is not None and left.weight.tolist() == [2, 1, 1, 1]
    assert left.scale is not None and left.scale.tolist() == [1, 2, 4, 5]
    assert left.total_weight is not None and left.total_weight.tolist() == [3, 1, 1]
