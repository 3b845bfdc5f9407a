"""Chunks: every destination in exactly one, with all its in-edges in order, within the budget or refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.components.facts import GraphFacts
from gnnexp.errors import DataError
from gnnexp.graph.block import Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds
from gnnexp.paradigms.loops.chunking import Chunking
from gnnexp.placement.chunks import Chunk, ChunkCost, cut, even_ranges, ranges_in_budget
from gnnexp.samplers.expansion import Expansion
from gnnexp.testing.graphs import csc, nasty_graph
from gnnexp.testing.strategies import graphs

EVERYTHING = BlockNeeds(self_loops=True, edge_identity=True, edge_types=True)


def whole(graph: Graph, needs: BlockNeeds = EVERYTHING) -> Block:
    (block,) = Expansion(graph, needs, (-1,)).blocks(torch.arange(graph.num_nodes), (0,))
    return block


def assert_chunks_make_up(block: Block, chunks: tuple[Chunk, ...]) -> None:
    assert [chunk.first for chunk in chunks] == [0, *(chunk.last for chunk in chunks)][:-1]
    assert chunks[-1].last == block.num_dst
    assert [chunk.edges.start for chunk in chunks] == [0, *(chunk.edges.stop for chunk in chunks)][:-1]
    assert chunks[-1].edges.stop == block.num_edges
    for chunk in chunks:
        part, edges = chunk.block, chunk.edges
        rows = torch.arange(block.num_src) if chunk.rows is None else chunk.rows
        assert part.num_dst == chunk.last - chunk.first and part.self_loops == block.self_loops
        assert rows.unique().numel() == rows.numel() == part.num_src
        assert rows[: part.num_dst].tolist() == list(range(chunk.first, chunk.last))
        assert torch.equal(part.src_ids, block.src_ids[rows])
        assert torch.equal(part.dst_ids, block.dst_ids[chunk.first : chunk.last])
        assert torch.equal(part.indptr + edges.start, block.indptr[chunk.first : chunk.last + 1])
        assert torch.equal(rows[part.sources.long()], block.sources[edges].long())
        assert torch.equal(part.degree, block.degree[chunk.first : chunk.last])
        for name in ("edge_ids", "occurrence", "edge_types"):
            values = getattr(block, name)
            assert (getattr(part, name) is None) == (values is None)
            assert values is None or torch.equal(getattr(part, name), values[edges]), name


@given(graphs(), st.integers(1, 12))
def test_even_ranges_make_up_the_block(graph: Graph, count: int) -> None:
    block = whole(graph)
    bounds = even_ranges(block, count)
    assert 1 <= len(bounds) - 1 <= count
    assert_chunks_make_up(block, cut(block, bounds))
    weight = [int(block.indptr[last] - block.indptr[first]) + last - first for first, last in pairwise(bounds)]
    largest = int(block.degree.max()) + 1
    assert max(weight) <= sum(weight) / count + largest, "about equally many edges and vertices"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 12])
def test_equal_vertices_are_shared_out_equally(count):
    block = whole(csc(12, np.empty(0, int), np.empty(0, int)))
    assert even_ranges(block, count) == list(range(0, 13, 12 // count))


def spent(chunk: Chunk, cost: ChunkCost) -> int:
    block = chunk.block
    return block.num_dst * cost.per_dst + block.num_edges * cost.per_edge + block.num_src * cost.per_src


@given(graphs(), st.integers(1, 8), st.integers(1, 8), st.integers(0, 2), st.floats(1, 20))
def test_a_budget_is_kept_by_every_chunk(graph: Graph, width: int, out: int, heads: int, times: float) -> None:
    block, cost = whole(graph), ChunkCost.of(width, out, heads, 4)
    _, dearest = ranges_in_budget(block, cost, 1)
    budget = int(dearest * times)
    chunks = Chunking(None, budget).chunks(block, cost)
    assert_chunks_make_up(block, chunks)
    assert max(spent(chunk, cost) for chunk in chunks) <= budget


@given(graphs(), st.integers(1, 8))
def test_a_budget_below_the_dearest_destination_is_refused_with_one_that_is_not(graph: Graph, width: int) -> None:
    block, cost = whole(graph), ChunkCost.of(width, width, 1, 8)
    _, dearest = ranges_in_budget(block, cost, 1)
    with pytest.raises(DataError) as error:
        Chunking(None, dearest - 1).chunks(block, cost)
    (problem,) = error.value.problems
    assert (problem.key, problem.value) == ("paradigm.device_memory", dearest - 1)
    assert problem.fix == f"set paradigm.device_memory={dearest} or more"
    Chunking(None, dearest).chunks(block, cost)
    # The same verdict before anything is launched, from degrees alone.
    assert Chunking(None, dearest).data_problems(GraphFacts.of(graph), [cost], self_loops=True) == []
    (early,) = Chunking(None, dearest - 1).data_problems(GraphFacts.of(graph), [cost], self_loops=True)
    assert (early.key, early.fix) == (problem.key, problem.fix)


def test_a_budget_for_everything_makes_one_chunk_that_is_the_block():
    block, cost = whole(nasty_graph()), ChunkCost.of(4, 4, 1, 4)
    for chunks in (Chunking(None, 1 << 40).chunks(block, cost), Chunking(1, None).chunks(block, cost)):
        (chunk,) = chunks
        assert chunk.block is block and chunk.rows is None
        assert_chunks_make_up(block, chunks)


def test_a_typed_graph_with_parallel_edges_keeps_the_identity_of_every_edge():
    graph = nasty_graph()
    block = whole(graph)
    assert block.edge_ids is not None and block.occurrence is not None and int(block.occurrence.max()) > 0
    assert_chunks_make_up(block, cut(block, even_ranges(block, 7)))
