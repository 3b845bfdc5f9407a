"""Full neighbourhoods, expanded once for the same targets."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from reference_sampling import graphs

from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.samplers.full import FullOptions, FullSampler
from gnnexp.testing.graphs import edges_of

NOTHING = BlockNeeds()
KEY = BatchKey(0, 0, 0)


def sampler_of(graph: Graph, num_layers: int, needs: BlockNeeds = NOTHING) -> FullSampler:
    sampler = FullOptions().make()
    sampler.setup(Shard(graph, needs=needs), num_layers)
    return sampler


@given(graphs(), st.integers(1, 4), st.booleans(), st.data())
def test_all_in_edges_of_what_the_targets_need(graph: Graph, layers: int, loops: bool, data: st.DataObject) -> None:
    seeds = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True))
    sampler = sampler_of(graph, layers, BlockNeeds(self_loops=loops))
    batch = sampler.sample(torch.tensor(seeds, dtype=torch.int64), KEY)
    frontier = seeds
    assert len(batch.blocks) == layers
    for block in reversed(batch.blocks):
        assert block.dst_ids.tolist() == frontier
        for dst, sources in edges_of(block).items():
            canonical = graph.indices[graph.indptr[dst] : graph.indptr[dst + 1]].tolist()
            assert sources == canonical + [dst] * loops
        frontier = block.src_ids.tolist()


@given(graphs())
def test_the_same_targets_give_the_same_blocks_under_another_key(graph: Graph) -> None:
    sampler = sampler_of(graph, 2)
    seeds = torch.arange(graph.num_nodes)
    first = sampler.sample(seeds, BatchKey(0, 0, 0), global_count=5)
    again = sampler.sample(seeds.clone(), BatchKey(0, 1, 0), global_count=6)
    assert all(a is b for a, b in zip(first.blocks, again.blocks, strict=True))
    assert (again.key, again.global_count) == (BatchKey(0, 1, 0), 6)


def test_other_targets_are_not_taken_for_the_same() -> None:
    graph = Graph(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2], dtype=torch.int32))
    sampler, key = sampler_of(graph, 1), KEY
    seeds = torch.tensor([0, 1])
    assert sampler.sample(seeds, key).blocks[0].src_ids.tolist() == [0, 1, 2]
    assert sampler.sample(torch.tensor([1, 0]), key).blocks[0].src_ids.tolist() == [1, 0, 2]
    seeds[1] = 2  # the caller's tensor is not what the cache compares with
    assert sampler.sample(torch.tensor([1, 0]), key).blocks[0].src_ids.tolist() == [1, 0, 2]
    assert sampler.sample(seeds, key).blocks[0].src_ids.tolist() == [0, 2, 1]
    assert sampler.sample(torch.empty(0, dtype=torch.int64), key).blocks[0].num_src == 0
