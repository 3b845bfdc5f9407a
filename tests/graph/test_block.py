"""The bipartite block and its transpose."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.graph.block import Batch, BatchKey, Block


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    num_src = draw(st.integers(1, 12))
    num_dst = draw(st.integers(0, num_src))
    rows = draw(st.lists(st.lists(st.integers(0, num_src - 1), max_size=6), min_size=num_dst, max_size=num_dst))
    indptr = torch.tensor([0, *np.cumsum([len(row) for row in rows], dtype=int).tolist()])
    sources = torch.tensor([src for row in rows for src in row], dtype=torch.int32)
    return Block(indptr, sources, torch.arange(num_src, dtype=torch.int32) * 3 + 5, num_dst)


@settings(max_examples=80, deadline=None)
@given(blocks())
def test_transpose_is_the_stable_sort_by_source(block: Block) -> None:
    turned = block.transpose
    destinations = torch.repeat_interleave(torch.arange(block.num_dst), block.indptr.diff())
    order = torch.argsort(block.sources, stable=True)
    assert torch.equal(turned.edges.long(), order)
    assert torch.equal(turned.destinations.long(), destinations[order])
    assert torch.equal(turned.indptr.diff(), torch.bincount(block.sources, minlength=block.num_src))
    assert int(turned.indptr[0]) == 0
    assert block.transpose is turned


@settings(max_examples=40, deadline=None)
@given(blocks(), st.randoms(use_true_random=False))
def test_destinations_come_first_unless_told_otherwise(block: Block, random: object) -> None:
    assert torch.equal(block.dst_ids, block.src_ids[: block.num_dst])
    places = random.sample(range(block.num_src), block.num_dst)  # type: ignore[attr-defined]
    moved = Block(block.indptr, block.sources, block.src_ids, block.num_dst, dst_positions=torch.tensor(places).long())
    assert moved.dst_ids.tolist() == [int(block.src_ids[place]) for place in places]


@settings(max_examples=40, deadline=None)
@given(blocks())
def test_degree_is_the_complete_one_where_given(block: Block) -> None:
    here = block.indptr.diff()
    assert torch.equal(block.degree, here)
    complete = Block(block.indptr, block.sources, block.src_ids, block.num_dst, in_degree=here + 2)
    assert torch.equal(complete.degree, here + 2)
    assert complete.num_edges == int(here.sum())
    assert complete.nbytes() == block.nbytes() + 8 * block.num_dst


def test_a_batch_reads_the_sources_of_its_first_block() -> None:
    ids = torch.arange(3, dtype=torch.int32)
    outer = Block(torch.tensor([0, 1, 2]), torch.tensor([0, 2], dtype=torch.int32), ids, 2)
    inner = Block(torch.tensor([0, 1]), torch.tensor([1], dtype=torch.int32), ids[:2], 1)
    batch = Batch(ids[:1], (outer, inner), BatchKey(0, 0, 0), 1)
    assert torch.equal(batch.input_ids, ids)
