"""A prefix of the chunks stays as far as it fits; every array of it crosses once, and so do its static weights."""

from __future__ import annotations

import torch

from gnnexp.graph.block import Block
from gnnexp.graph.shard import BlockNeeds
from gnnexp.placement.chunks import Chunk, cut, even_ranges
from gnnexp.samplers.expansion import Expansion
from gnnexp.testing.graphs import nasty_graph
from gnnexp.tiers.resident import ResidentChunks, most_bytes, prefix
from gnnexp.tiers.tier import DeviceTier

CPU = torch.device("cpu")


def _chunks(count: int = 4) -> tuple[Chunk, ...]:
    graph = nasty_graph()
    (block,) = Expansion(graph, BlockNeeds(), (-1,)).blocks(torch.arange(graph.num_nodes), (0,))
    return cut(block, even_ranges(block, count))


def _blocks(count: int = 4) -> list[Block]:
    return [chunk.block for chunk in _chunks(count)]


def test_the_prefix_is_the_longest_that_fits():
    blocks = _blocks()
    weights = torch.ones(sum(block.num_edges for block in blocks), 2)
    sizes = [most_bytes(block, reads_transpose=True) + 8 * block.num_edges for block in blocks]
    for budget, count in ((0, 0), (sizes[0] - 1, 0), (sizes[0], 1), (sum(sizes) - 1, 3), (sum(sizes), 4)):
        found = prefix(blocks, budget, [weights], reads_transpose=True)
        assert [block in found for block in blocks] == [True] * count + [False] * (4 - count)
        assert found.num_bytes == found.num_chunks == 0, "nothing has crossed"


def test_the_bound_is_what_a_block_and_its_transpose_have():
    for block in _blocks():
        arrays = block.arrays()
        assert most_bytes(block, reads_transpose=False) == sum(array.nbytes for array in arrays)
        turned = sum(array.nbytes for array in block.transpose.arrays())
        assert most_bytes(block, reads_transpose=True) == sum(array.nbytes for array in arrays) + turned


def test_an_array_crosses_once_if_its_chunk_stays():
    first, second = _blocks()[:2]
    stays = ResidentChunks([first])
    for block, again in ((first, []), (second, second.arrays())):
        assert stays.missing(block, block.arrays()) == block.arrays()
        stays.crossed(block, block.arrays()[:2])
        left = stays.missing(block, block.arrays())
        stays.crossed(block, left)
        assert [id(array) for array in stays.missing(block, block.arrays())] == [id(array) for array in again]
    assert (stays.num_bytes, stays.num_chunks) == (first.nbytes(), 1)


def test_only_static_weights_stay():
    chunks = _chunks()
    count = chunks[-1].edges.stop
    static, learned = torch.rand(count, 1), torch.rand(count, 1)
    tier = DeviceTier(CPU)
    tier.resident = ResidentChunks([chunks[0].block], [static])
    for weights, stay in ((static, True), (learned, False)):
        for chunk, crossings in ((chunks[0], 1 if stay else 3), (chunks[1], 3)):
            for _ in range(3):
                own = tier.enter_weights(weights, chunk.block, chunk.edges)
                assert torch.equal(own, weights[chunk.edges])
            assert tier.take_counts()["tier/h2d_bytes"] == crossings * 4 * chunk.block.num_edges
    assert tier.resident.num_bytes == 4 * chunks[0].block.num_edges


def test_weights_without_edges_are_nobody_elses():
    """Empty tensors all lie at address 0."""
    chunk = _chunks()[0]
    tier = DeviceTier(CPU)
    tier.resident = ResidentChunks([chunk.block], [torch.empty(0, 1)])
    tier.enter_weights(torch.empty(0, 1), chunk.block, slice(0, 0))
    assert tier.enter_weights(torch.empty(0, 3), chunk.block, slice(0, 0)).shape == (0, 3)


def test_what_stays_counts_at_the_peak_once():
    (block, other), out = _blocks()[:2], torch.zeros(10, 4)
    tier = DeviceTier(CPU)
    tier.resident = ResidentChunks([block])
    tier.resident.crossed(block, block.arrays())
    with tier.measured(), tier.chunk(other.nbytes(), (out, *other.arrays())):
        kept = block.sources + 1  # reads what stays, which is not counted again
        made = tier.enter(out)
        del kept, made
    assert tier.peak_bytes == block.nbytes() + other.nbytes() + max(block.sources.nbytes, 0) + out.nbytes
